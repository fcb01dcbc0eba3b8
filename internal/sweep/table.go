package sweep

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sweep/command"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// every is how many lines of the table share an offset.
const every = 256

// writeTable writes a line for each task, and where every 256th begins.
func writeTable(dir, name string, tasks func(add func(command.Task) error) error) (n int, err error) {
	table, err := os.OpenFile(filepath.Join(dir, name+tableEnd), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer table.Close()
	w := bufio.NewWriterSize(table, 1<<20)
	var offsets, line []byte
	at := int64(0)
	err = tasks(func(t command.Task) error {
		if n%every == 0 {
			offsets = binary.LittleEndian.AppendUint64(offsets, uint64(at))
		}
		n++
		line = appendTask(line[:0], t)
		at += int64(len(line))
		_, err := w.Write(line)
		return err
	})
	if err == nil {
		err = errors.Join(w.Flush(), table.Sync())
	}
	if err == nil {
		path := filepath.Join(dir, name+offsetsEnd)
		if err = os.WriteFile(path, offsets, 0o600); err == nil {
			err = disk.SyncFile(path)
		}
	}
	return n, err
}

func appendTask(b []byte, t command.Task) []byte {
	b = append(b, `{"id":"`...)
	b = hex.AppendEncode(b, t.ID[:])
	b = append(b, `","params":{`...)
	for i, p := range t.Params {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, p.Name), ':')
		b = appendText(b, p.Text)
	}
	b = append(b, '}')
	if t.Repeat > 0 {
		b = strconv.AppendInt(append(b, `,"repeat":`...), int64(t.Repeat), 10)
	}
	return append(b, '}', '\n')
}

// appendText adds a string of JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil { // of a string there is none
				return append(b, `""`...)
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// TaskReader reads the tasks of a sweep, best in the order of their numbers: it stays where it was.
type TaskReader struct {
	s     *Sweep
	table Table
	f     *os.File
	in    *bufio.Reader
	next  int // the task whose line comes next; 0 is none
}

// TaskReader begins to read tasks. Whoever asks for it closes it.
func (s *Sweep) TaskReader() *TaskReader { return &TaskReader{s: s} }

// Close ends it.
func (r *TaskReader) Close() {
	if r.f != nil {
		_ = r.f.Close()
	}
}

// line is that of a task, valid until the next one is read.
func (r *TaskReader) line(task int) ([]byte, error) {
	t, err := r.s.tableOf(task)
	if err != nil {
		return nil, err
	}
	if r.f == nil || t.Name != r.table.Name {
		r.Close()
		if r.f, err = os.Open(filepath.Join(r.s.Dir, t.Name+tableEnd)); err != nil {
			r.f = nil
			return nil, err
		}
		r.table, r.next = t, 0
		r.in = bufio.NewReaderSize(r.f, 256<<10)
	}
	if r.next == 0 || task < r.next || task-r.next > 2*every {
		if err := r.seek(task); err != nil {
			return nil, fmt.Errorf("%s: task %d: %w", r.f.Name(), task, err)
		}
	}
	for {
		line, err := r.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // a long one
			var rest []byte
			line = bytes.Clone(line)
			rest, err = r.in.ReadBytes('\n')
			line = append(line, rest...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: task %d: %w", r.f.Name(), r.next, err)
		}
		if r.next++; r.next > task {
			return line, nil
		}
	}
}

func (r *TaskReader) seek(task int) error {
	offsets, err := os.Open(filepath.Join(r.s.Dir, r.table.Name+offsetsEnd))
	if err != nil {
		return err
	}
	defer offsets.Close()
	var b [8]byte
	part := (task - r.table.First) / every
	if _, err := offsets.ReadAt(b[:], int64(part)*8); err != nil {
		return err
	}
	if _, err = r.f.Seek(int64(binary.LittleEndian.Uint64(b[:])), io.SeekStart); err != nil {
		return err
	}
	r.in.Reset(r.f)
	r.next = r.table.First + part*every
	return nil
}

// Task is the one with this number.
func (r *TaskReader) Task(n int) (command.Task, error) {
	line, err := r.line(n)
	if err != nil {
		return command.Task{}, err
	}
	t, err := parseTask(line, n)
	if err != nil {
		err = fmt.Errorf("%s: task %d: %w", r.f.Name(), n, err)
	}
	return t, err
}

// tableOf is the table that has a task.
func (s *Sweep) tableOf(task int) (Table, error) {
	t := Table{Name: tasksName, First: 1, Tasks: s.Spec.Tasks}
	for i := -1; ; {
		if task >= t.First && task < t.First+t.Tasks {
			return t, nil
		}
		if i++; i >= len(s.later) {
			return t, fmt.Errorf("the sweep %s has no task %d", s.Spec.Name, task)
		}
		if s.later[i].Table != nil {
			t = *s.later[i].Table
		}
	}
}

// Tasks gives the tasks from lo to hi, by their numbers.
func (s *Sweep) Tasks(lo, hi int, each func(command.Task) error) error {
	return s.Pick(Numbers{{lo, hi}}, each)
}

// Pick gives the tasks with these numbers.
func (s *Sweep) Pick(numbers Numbers, each func(command.Task) error) error {
	r := s.TaskReader()
	defer r.Close()
	for _, part := range numbers {
		for n := part[0]; n <= part[1]; n++ {
			t, err := r.Task(n)
			if err != nil {
				return err
			}
			if err := each(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseTask(line []byte, n int) (command.Task, error) {
	if t, ok := plainTask(line); ok {
		t.Number = n
		return t, nil
	}
	var row struct {
		ID     string            `json:"id"`
		Params map[string]string `json:"params"`
		Repeat int               `json:"repeat"`
	}
	if err := json.Unmarshal(line, &row); err != nil {
		return command.Task{}, err
	}
	t := command.Task{Number: n, Repeat: row.Repeat, Params: make([]command.Param, 0, len(row.Params))}
	if m, err := hex.Decode(t.ID[:], []byte(row.ID)); err != nil || m != len(t.ID) {
		return command.Task{}, fmt.Errorf("%q is no id", row.ID)
	}
	for name, text := range row.Params {
		t.Params = append(t.Params, command.Param{Name: name, Text: text})
	}
	slices.SortFunc(t.Params, func(a, b command.Param) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

// plainTask reads a line as [appendTask] writes it, without JSON's escapes: a million of
// them are read at once.
func plainTask(line []byte) (t command.Task, ok bool) {
	if bytes.IndexByte(line, '\\') >= 0 {
		return t, false
	}
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":"`))
	if !ok || len(rest) < 2*len(t.ID) {
		return t, false
	}
	if _, err := hex.Decode(t.ID[:], rest[:2*len(t.ID)]); err != nil {
		return t, false
	}
	if rest, ok = bytes.CutPrefix(rest[2*len(t.ID):], []byte(`","params":{`)); !ok {
		return t, false
	}
	text := func() (s string, ok bool) { // in quotes
		if len(rest) == 0 || rest[0] != '"' {
			return "", false
		}
		end := bytes.IndexByte(rest[1:], '"')
		if end < 0 {
			return "", false
		}
		s, rest = string(rest[1:1+end]), rest[end+2:]
		return s, true
	}
	for len(rest) > 0 && rest[0] != '}' {
		if len(t.Params) > 0 {
			if rest, ok = bytes.CutPrefix(rest, []byte(",")); !ok {
				return t, false
			}
		}
		var p command.Param
		if p.Name, ok = text(); !ok {
			return t, false
		}
		if rest, ok = bytes.CutPrefix(rest, []byte(":")); !ok {
			return t, false
		}
		if p.Text, ok = text(); !ok {
			return t, false
		}
		t.Params = append(t.Params, p)
	}
	if repeat, ok := bytes.CutPrefix(rest, []byte(`},"repeat":`)); ok {
		n := 0
		for n < len(repeat) && repeat[n] >= '0' && repeat[n] <= '9' {
			n++
		}
		var err error
		if t.Repeat, err = strconv.Atoi(string(repeat[:n])); err != nil {
			return t, false
		}
		rest = append([]byte("}"), repeat[n:]...)
	}
	slices.SortFunc(t.Params, func(a, b command.Param) int { return strings.Compare(a.Name, b.Name) })
	return t, string(rest) == "}}\n"
}

// Task is the task that a word names: its number, or a beginning of its id.
func (s *Sweep) Task(word string) (command.Task, error) {
	var found []command.Task
	n, err := strconv.Atoi(word)
	if err == nil && n >= 1 && n <= s.Total() {
		err := s.Tasks(n, n, func(t command.Task) error { found = append(found, t); return nil })
		if err != nil {
			return command.Task{}, err
		}
	} else if len(word) >= 4 {
		needle := []byte(`{"id":"` + word)
		if err := s.lines(func(n int, line []byte) error {
			if !bytes.HasPrefix(line, needle) {
				return nil
			}
			t, err := parseTask(line, n)
			found = append(found, t)
			return err
		}); err != nil {
			return command.Task{}, err
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return command.Task{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("the sweep %s has no task %q", s.Spec.Name, word),
			Hint: fmt.Sprintf("its tasks are 1 to %d, or the beginnings of their ids", s.Total())}
	}
	return command.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q names %d tasks", word, len(found))}
}

func (s *Sweep) lines(each func(n int, line []byte) error) error {
	r := s.TaskReader()
	defer r.Close()
	for n := 1; n <= s.Total(); n++ {
		line, err := r.line(n)
		if err != nil {
			return err
		}
		if err := each(n, line); err != nil {
			return err
		}
	}
	return nil
}

// IDs gives the id of each task.
func (s *Sweep) IDs(each func(n int, id command.ID)) error {
	const head = `{"id":"`
	return s.lines(func(n int, line []byte) error {
		var id command.ID
		if len(line) < len(head)+32 {
			return fmt.Errorf("task %d of the sweep %s has no id", n, s.Spec.Name)
		}
		if _, err := hex.Decode(id[:], line[len(head):len(head)+32]); err != nil {
			return fmt.Errorf("task %d of the sweep %s has no id", n, s.Spec.Name)
		}
		each(n, id)
		return nil
	})
}
