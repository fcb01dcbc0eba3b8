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
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// Spec is sweep.json.
type Spec struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Words   []string  `json:"command"`
	Script  bool      `json:"script"` // a shell evaluates the only word
	Workdir string    `json:"workdir"`
	Tasks   int       `json:"tasks"`
	Batch   int       `json:"batch"` // tasks that are claimed at once
	Slots   int       `json:"slots"` // tasks at once in a worker
	Created time.Time `json:"created"`
	// Limit is the longest a task may run; 0 is no limit.
	Limit time.Duration `json:"limit_ns,omitempty"`
	// Worker is where each worker runs, and with what. Nil is the queue of the machine
	// that submitted it, as it was before this was recorded.
	Worker *jobs.Place `json:"worker,omitempty"`
	// Workers is how many jobs of a cluster are submitted, of which Together run at a
	// time; 0 of these is all.
	Workers  int `json:"workers,omitempty"`
	Together int `json:"together,omitempty"`
	// Request is what each task takes of its worker.
	Request command.Request `json:"request,omitzero"`
}

// Sweep is a sweep's directory.
type Sweep struct {
	Spec Spec
	Dir  string
}

// Files of a sweep.
const (
	fileSpec    = "sweep.json"
	fileText    = "definition"
	fileTasks   = "tasks.1.jsonl"
	fileOffsets = "tasks.1.offsets"
	fileIndex   = "index"
	fileCancel  = "cancel"
	dirWorkers  = "workers"
	dirClaims   = "claims"
)

// Files is how many files a sweep has when it is made.
const Files = 4

// every is how many lines of the table share an offset.
const every = 256

// BatchOf is how many tasks are claimed at once: so few that each worker has some 50
// batches, and so many that there are 4,000 at most.
func BatchOf(tasks, workers int) int {
	b := tasks / (max(workers, 1) * 50)
	b = min(max(b, 1), 4096)
	return max(b, (tasks+3999)/4000)
}

// Create makes a sweep below root. tasks gives each task to add, in their order;
// when it fails, nothing is left. text is what the user has written.
func Create(root string, spec Spec, workers int, text []byte, tasks func(add func(command.Task) error) error) (s *Sweep, err error) {
	if len(spec.ID) < 8 {
		return nil, fmt.Errorf("a sweep without an id")
	}
	parent := filepath.Join(root, spec.ID[len(spec.ID)-2:])
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = disk.RemoveTree(tmp)
		}
	}()
	if spec.Tasks, err = writeTable(tmp, tasks); err != nil {
		return nil, err
	}
	spec.Version, spec.Batch = 1, BatchOf(spec.Tasks, workers)
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{fileSpec, append(data, '\n')}, {fileText, text}} {
		if err := os.WriteFile(filepath.Join(tmp, f.name), f.data, 0o600); err != nil {
			return nil, err
		}
		if err := disk.SyncFile(filepath.Join(tmp, f.name)); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{filepath.Join(dirWorkers, "000"), filepath.Join(dirClaims, "1")} {
		if err := os.MkdirAll(filepath.Join(tmp, d), 0o700); err != nil {
			return nil, err
		}
	}
	if err := disk.SyncDir(tmp); err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, spec.ID)
	if err := os.Rename(tmp, dir); err != nil {
		return nil, err
	}
	return &Sweep{spec, dir}, errors.Join(disk.SyncDir(parent), disk.SyncDir(root))
}

// writeTable writes a line for each task, and where every 256th begins.
func writeTable(dir string, tasks func(add func(command.Task) error) error) (n int, err error) {
	table, err := os.OpenFile(filepath.Join(dir, fileTasks), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
		path := filepath.Join(dir, fileOffsets)
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

// Open opens a sweep's directory.
func Open(dir string) (*Sweep, error) {
	b, err := disk.ReadRegular(filepath.Join(dir, fileSpec), 8<<20)
	if err != nil {
		return nil, err
	}
	s := &Sweep{Dir: dir}
	if err := json.Unmarshal(b, &s.Spec); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + filepath.Join(dir, fileSpec) + " cannot be read", Err: err}
	}
	if s.Spec.Version != 1 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the sweep %s was made by a newer berth", dir), Hint: "use that one"}
	}
	if s.Spec.Tasks < 1 || s.Spec.Batch < 1 {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + filepath.Join(dir, fileSpec) + " has no tasks"}
	}
	return s, nil
}

// List are the sweeps below root, the newest first. One that cannot be read is left out.
func List(root string) ([]*Sweep, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "[0-9a-f][0-9a-f]", "*-*"))
	if err != nil {
		return nil, err
	}
	var all []*Sweep
	for _, d := range dirs {
		if s, err := Open(d); err == nil && s.Spec.ID == filepath.Base(d) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Sweep) int { return b.Spec.Created.Compare(a.Spec.Created) })
	return all, nil
}

// Find is the sweep that a word names: its id, a beginning or end of that, or its
// name, of which the newest counts. No word is the newest of all.
func Find(root, word string) (*Sweep, error) {
	all, err := List(root)
	if err != nil {
		return nil, err
	}
	var found []*Sweep
	for _, s := range all {
		if word == "" || s.Spec.Name == word {
			return s, nil
		}
		if len(word) >= 4 && (strings.HasPrefix(s.Spec.ID, word) || strings.HasSuffix(s.Spec.ID, word)) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q names %d sweeps", word, len(found)), Hint: "berth sweep ls lists them"}
	case word == "":
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no sweep yet", Hint: "berth sweep run sweep.toml"}
	}
	return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no sweep %q", word), Hint: "berth sweep ls lists them"}
}

// Tasks gives the tasks from lo to hi, by their numbers.
func (s *Sweep) Tasks(lo, hi int, each func(command.Task) error) error {
	f, err := os.Open(filepath.Join(s.Dir, fileTasks))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.seek(f, lo); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 256<<10)
	for n := (lo-1)/every*every + 1; n <= hi; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", f.Name(), n, err)
		}
		if n < lo {
			continue
		}
		t, err := parseTask(line, n)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", f.Name(), n, err)
		}
		if err := each(t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweep) seek(f *os.File, task int) error {
	offsets, err := os.Open(filepath.Join(s.Dir, fileOffsets))
	if err != nil {
		return err
	}
	defer offsets.Close()
	var b [8]byte
	if _, err := offsets.ReadAt(b[:], int64((task-1)/every*8)); err != nil {
		return err
	}
	_, err = f.Seek(int64(binary.LittleEndian.Uint64(b[:])), io.SeekStart)
	return err
}

func parseTask(line []byte, n int) (command.Task, error) {
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

// Task is the task that a word names: its number, or a beginning of its id.
func (s *Sweep) Task(word string) (command.Task, error) {
	var found []command.Task
	n, err := strconv.Atoi(word)
	if err == nil && n >= 1 && n <= s.Spec.Tasks {
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
			Hint: fmt.Sprintf("its tasks are 1 to %d, or the beginnings of their ids", s.Spec.Tasks)}
	}
	return command.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q names %d tasks", word, len(found))}
}

func (s *Sweep) lines(each func(n int, line []byte) error) error {
	f, err := os.Open(filepath.Join(s.Dir, fileTasks))
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for n := 1; n <= s.Spec.Tasks; n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // a long one
			var rest []byte
			rest, err = in.ReadBytes('\n')
			line = append(bytes.Clone(line), rest...)
		}
		if err != nil {
			return err
		}
		if err := each(n, line); err != nil {
			return err
		}
	}
	return nil
}

// Command is what its tasks run.
func (s *Sweep) Command() (*command.Template, error) { return command.New(s.Spec.Words, s.Spec.Script) }

// Round is the round of its tasks.
func (s *Sweep) Round() claims.Round {
	return claims.Round{Dir: filepath.Join(s.Dir, dirClaims, "1"), Tasks: s.Spec.Tasks, Batch: s.Spec.Batch}
}

// workersPerDir bounds the entries of a directory.
const workersPerDir = 500

// WorkerDir is where a worker writes.
func (s *Sweep) WorkerDir(n uint32) string {
	return filepath.Join(s.Dir, dirWorkers, fmt.Sprintf("%03d", n/workersPerDir), fmt.Sprintf("%06d", n))
}

// Workers are the numbers of all that there were.
func (s *Sweep) Workers() ([]uint32, error) {
	dirs, err := os.ReadDir(filepath.Join(s.Dir, dirWorkers))
	if err != nil {
		return nil, err
	}
	var all []uint32
	for _, d := range dirs {
		entries, err := os.ReadDir(filepath.Join(s.Dir, dirWorkers, d.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && n > 0 {
				all = append(all, uint32(n))
			}
		}
	}
	return all, nil
}

// NewWorker takes a number. A reply that is lost costs one.
func (s *Sweep) NewWorker() (n uint32, dir string, err error) {
	all, err := s.Workers()
	if err != nil {
		return 0, "", err
	}
	if len(all) > 0 {
		n = slices.Max(all)
	}
	for range 10_000 {
		n++
		dir = s.WorkerDir(n)
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return 0, "", err
		}
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return n, dir, err
		}
	}
	return 0, "", fmt.Errorf("no number for a worker in %s", s.Dir)
}

// Fold is how the tasks stand. It saves what it has read for the next look.
func (s *Sweep) Fold() (*journal.Fold, error) {
	path := filepath.Join(s.Dir, fileIndex)
	f := journal.Load(path, s.Spec.Tasks)
	read := f.Read()
	all, err := s.Workers()
	if err != nil {
		return nil, err
	}
	if err := f.Update(all, s.WorkerDir); err != nil {
		return nil, err
	}
	if f.Read() > read {
		_ = f.Save(path) // a cache, in a directory that may be full
	}
	return f, nil
}

// Cancel has all workers end; what has a result keeps it.
func (s *Sweep) Cancel() error {
	_, err := store.CreateOnce(filepath.Join(s.Dir, fileCancel), []byte("{}\n"))
	return err
}

// Resume takes a cancellation back.
func (s *Sweep) Resume() error {
	err := os.Remove(filepath.Join(s.Dir, fileCancel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Cancelled tells whether it was cancelled.
func (s *Sweep) Cancelled() bool {
	_, err := os.Lstat(filepath.Join(s.Dir, fileCancel))
	return err == nil
}
