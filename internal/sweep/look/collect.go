package look

import (
	"bufio"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Collector finds what tasks have left as results: metrics, JSON lines on their
// standard output, and JSON files below their working directory.
type Collector struct {
	l     *Look
	root  *os.Root // of files, or nil
	files *command.Template
	byID  map[command.ID][]string // files that are named by a task's id
	lists map[string][]string     // names in directories

	Rows     int
	Files    int
	LeftOut  int      // files and outputs that could not be taken
	Examples []string // of these, and why
}

const mostLeftOut = 10

// NewCollector takes files by a pattern: {lr} is a parameter, and * ? [] may stand in its
// last part. Files of a pattern without parameters are named by the ids of their tasks.
func NewCollector(l *Look, files string) (*Collector, error) {
	c := &Collector{l: l, lists: map[string][]string{}}
	if files == "" {
		return c, nil
	}
	wrong := func(format string, args ...any) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "--collect " + files + ": " + fmt.Sprintf(format, args...),
			Hint: "it is such as 'results/{lr}-{seed}.json', or 'results/*.json' with files that are named by $BERTH_TASK"}
	}
	dir, base := path.Split(files)
	switch {
	case path.IsAbs(files) || slices.Contains(strings.Split(files, "/"), ".."):
		return nil, wrong("it is to be below the directory in which tasks run")
	case strings.ContainsAny(dir, `*?[`):
		return nil, wrong("only its last part may have * ? [")
	}
	if _, err := path.Match(base, ""); err != nil {
		return nil, wrong("%v", err)
	}
	t, err := command.New([]string{path.Clean(files)}, false)
	if err != nil {
		return nil, wrong("%v", err)
	}
	if c.root, err = os.OpenRoot(l.Sweep.Spec.Workdir); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the directory in which the tasks ran", Err: err}
	}
	if len(t.Names()) > 0 {
		c.files = t
		return c, nil
	}
	return c, c.named(path.Clean(files))
}

// Close closes its directory.
func (c *Collector) Close() {
	if c.root != nil {
		_ = c.root.Close()
	}
}

func (c *Collector) leave(format string, args ...any) {
	c.LeftOut++
	if len(c.Examples) < mostLeftOut {
		c.Examples = append(c.Examples, fmt.Sprintf(format, args...))
	}
}

var idForm = pattern.Lazy(`(?:^|[^0-9a-f])([0-9a-f]{32})(?:[^0-9a-f]|$)`)

// named finds files whose names have the id of a task.
func (c *Collector) named(files string) error {
	c.byID = map[command.ID][]string{}
	if err := c.l.Sweep.IDs(func(_ int, id command.ID) { c.byID[id] = nil }); err != nil {
		return err
	}
	found, err := c.match(files)
	for _, f := range found {
		var id command.ID
		m := idForm().FindStringSubmatch(path.Base(f))
		if m == nil {
			c.leave("%s: its name has no id of a task ($BERTH_TASK)", f)
			continue
		}
		_, _ = hex.Decode(id[:], []byte(m[1]))
		if had, ok := c.byID[id]; ok {
			c.byID[id] = append(had, f)
		} else {
			c.leave("%s: no task of this sweep has this id", f)
		}
	}
	return err
}

// match finds files by a pattern with * ? [ in its last part.
func (c *Collector) match(files string) ([]string, error) {
	dir, base := path.Dir(files), path.Base(files)
	plain := strings.IndexAny(base, `*?[\`)
	if plain < 0 {
		return []string{files}, nil
	}
	names, ok := c.lists[dir]
	if !ok {
		entries, err := fs.ReadDir(c.root.FS(), dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--collect: read the directory " + dir, Err: err}
		}
		for _, e := range entries { // in their order
			names = append(names, e.Name())
		}
		if len(c.lists) >= 64 {
			clear(c.lists)
		}
		c.lists[dir] = names
	}
	var found []string
	at, _ := slices.BinarySearch(names, base[:plain])
	for _, n := range names[at:] {
		if !strings.HasPrefix(n, base[:plain]) {
			break
		}
		if ok, _ := path.Match(base, n); ok {
			found = append(found, path.Join(dir, n))
		}
	}
	return found, nil
}

// filesOf are the files of a task.
func (c *Collector) filesOf(t command.Task) ([]string, error) {
	if c.files == nil {
		return c.byID[t.ID], nil
	}
	escaped := t
	escaped.Params = make([]command.Param, 0, len(t.Params)+2)
	for _, p := range t.Params {
		for _, meta := range []string{`\`, "*", "?", "["} {
			p.Text = strings.ReplaceAll(p.Text, meta, `\`+meta)
		}
		escaped.Params = append(escaped.Params, p)
	}
	for name, text := range map[string]string{"task": strconv.Itoa(t.Number), "id": t.ID.String()} {
		if _, ok := command.Find(t.Params, name); !ok {
			escaped.Params = append(escaped.Params, command.Param{Name: name, Text: text})
		}
	}
	argv, err := c.files.Command(escaped)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--collect: " + err.Error(),
			Hint: "there are the task's parameters, {repeat}, {task} and {id}"}
	}
	return c.match(path.Clean(argv[0]))
}

// read reads a file that a task has written: a regular one, not too long, and no
// symbolic link leads out of the directory.
func (c *Collector) read(name string) ([][]Value, error) {
	f, err := c.root.OpenFile(unescape(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, mostFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > mostFileBytes {
		return nil, fmt.Errorf("has more than %d bytes", mostFileBytes)
	}
	return objects(b)
}

// unescape takes back what stands before * ? [ in the name of a file that was not matched.
func unescape(name string) string {
	if !strings.Contains(name, `\`) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' && i+1 < len(name) {
			i++
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// Values are the rows of what a task has found: one, unless it has several JSON objects.
// Its metrics stand in each.
func (c *Collector) Values(r Row) ([][]Value, error) {
	if r.Record == nil || !r.State.Result() {
		return nil, nil
	}
	metrics, err := c.l.Metrics(r.Record)
	if err != nil {
		c.leave("task %d: %v", r.Number, err)
	}
	var rows [][]Value
	out, err := c.l.stdout(r.Record)
	if err != nil {
		c.leave("task %d: %v", r.Number, err)
	}
	rows = lineObjects(out)
	if c.root != nil {
		files, err := c.filesOf(r.Task)
		if err != nil {
			return nil, err
		}
		for i, f := range files {
			if i >= mostFiles {
				c.leave("task %d has %d files, of which %d are taken", r.Number, len(files), mostFiles)
				break
			}
			more, err := c.read(f)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				c.leave("%s: %v", f, err)
				continue
			}
			c.Files++
			rows = append(rows, more...)
		}
	}
	if len(rows) == 0 {
		rows = [][]Value{nil}
	}
	for i := range rows {
		rows[i] = merge(rows[i], metrics)
	}
	return rows, nil
}

// line is a row of the JSON lines.
type line struct {
	Task    int                        `json:"task"`
	Round   int                        `json:"round,omitempty"` // of the result
	ID      string                     `json:"id"`
	Row     int                        `json:"row"`
	State   string                     `json:"state"`
	Exit    int                        `json:"exit"`
	Seconds float64                    `json:"seconds"`
	Memory  int64                      `json:"memory_bytes"`
	Repeat  int                        `json:"repeat"`
	Params  map[string]string          `json:"params"`
	Values  map[string]json.RawMessage `json:"values"`
}

const mostColumns = 1000

// Lines writes a line of JSON for each row of these tasks, and returns the names of the columns that
// parameters and values need.
func (c *Collector) Lines(to io.Writer, numbers sweep.Numbers, holds func(Row) (bool, error)) (params, values []string, err error) {
	seenP, seenV := map[string]bool{}, map[string]bool{}
	note := func(seen map[string]bool, list *[]string, name string) {
		if !seen[name] && len(*list) < mostColumns {
			seen[name] = true
			*list = append(*list, name)
		}
	}
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	err = c.l.Rows(numbers, func(r Row) error {
		if ok, err := holds(r); err != nil || !ok {
			return err
		}
		rows, err := c.Values(r)
		if err != nil {
			return err
		}
		l := line{Task: r.Number, ID: r.ID.String(), State: Word(r.State), Repeat: r.Repeat, Params: map[string]string{}}
		if r.Record != nil && r.State.Result() {
			l.Exit, l.Seconds, l.Memory, l.Round = Exit(*r.Record), r.Record.Took.Seconds(), r.Record.Memory, int(r.Record.Round)
		}
		for _, p := range r.Params {
			l.Params[p.Name] = p.Text
			note(seenP, &params, p.Name)
		}
		for i := range max(len(rows), 1) {
			l.Row, l.Values = i+1, map[string]json.RawMessage{}
			if i < len(rows) {
				for _, v := range rows[i] {
					l.Values[v.Name] = v.JSON
					note(seenV, &values, v.Name)
				}
			}
			c.Rows++
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		return nil
	})
	slices.Sort(params)
	return params, values, err
}

// CSV makes a table of these lines.
func CSV(lines io.Reader, to io.Writer, params, values []string) error {
	w := csv.NewWriter(to)
	head := []string{"task", "id", "row", "state", "exit", "seconds", "memory_bytes", "repeat"}
	column := func(prefix, name string) string {
		if slices.Contains(head, name) {
			return prefix + name
		}
		return name
	}
	for _, p := range params {
		head = append(head, jobs.Cell(column("param.", p)))
	}
	for _, v := range values {
		head = append(head, jobs.Cell(column("value.", v)))
	}
	if err := w.Write(head); err != nil {
		return err
	}
	d := json.NewDecoder(bufio.NewReaderSize(lines, 1<<20))
	for {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		row := []string{strconv.Itoa(l.Task), l.ID, strconv.Itoa(l.Row), l.State, strconv.Itoa(l.Exit),
			strconv.FormatFloat(l.Seconds, 'f', -1, 64), strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.Repeat)}
		for _, p := range params {
			row = append(row, jobs.Cell(l.Params[p]))
		}
		for _, v := range values {
			row = append(row, jobs.Cell(Value{v, l.Values[v]}.Text()))
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// WriteFile writes a whole file or nothing, through a link to the file that it leads to. What is no regular
// file, such as /dev/stdout, is written as it is.
func WriteFile(name string, write func(io.Writer) error) error {
	dir, err := Beside(name)
	if err != nil {
		return err
	}
	fail := func(err error) error { return &jobs.Error{Kind: jobs.KindUsage, Msg: "write " + name, Err: err} }
	if dir == "" {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return fail(disk.Bare(err))
		}
		return fill(f, write, fail)
	}
	to := resolved(name)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(to)+".*")
	if err != nil {
		return fail(disk.Bare(err))
	}
	if err = fill(tmp, write, fail); err == nil {
		if err = os.Rename(tmp.Name(), to); err != nil {
			err = fail(disk.Bare(err))
		}
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// Beside is the directory of what is written before the file of this name has it: its own, or "" where the name
// is of something else than a regular file.
func Beside(name string) (string, error) {
	fi, err := os.Stat(name)
	switch {
	case err == nil && fi.IsDir():
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "write " + name + ": it is a directory", Hint: "name a file in it"}
	case err == nil && !fi.Mode().IsRegular():
		return "", nil
	case err == nil && strings.HasPrefix(name, "/dev/"): // what stands in that file already would be lost
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "write " + name + ": it leads to a file", Hint: "name the file; - is the standard output"}
	}
	dir := filepath.Dir(resolved(name))
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("write %s: its directory does not exist", name),
			Hint: "make it, or name another file"}
	}
	return dir, nil
}

// resolved is the file that a link leads to, or the name where there is none yet.
func resolved(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	return name
}

// fill writes and closes a file.
func fill(f *os.File, write func(io.Writer) error, fail func(error) error) error {
	w := bufio.NewWriterSize(f, 1<<20)
	err := write(w)
	if err == nil {
		err = w.Flush()
	}
	if e := new(fs.PathError); errors.As(err, &e) && e.Path == f.Name() {
		err = e.Err
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	return nil
}
