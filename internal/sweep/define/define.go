package define

import (
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/sweep/command"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// MostTasks is how many tasks a sweep may have unless its user says otherwise.
const MostTasks = 10_000_000

// Param is a parameter of a task, as text.
type Param = command.Param

// Sweep is a definition that was read and is right as far as that can be told
// without its rows.
type Sweep struct {
	Name      string
	Command   *command.Template // or nil
	TaskFile  string            // its path, or ""
	Most      int               // tasks; 0 is [MostTasks]
	Collect   string            // files with results, or ""
	Own       string            // what each task has for itself, or ""
	Request   command.Request   // of each task
	Steps     bool              // whether a worker can begin a step of its job for a task with ranks
	Retry     *jobs.Retry       // of each task; nil is not said
	Worker    jobs.Resources    // that no task may ask for more than; 0 is not known
	GPUs      int               // of each worker; 0 is none that are known
	rows      *source           // of a file or the standard input, or nil
	factors   []factor          // that are multiplied; the first changes slowest
	constants []Param
	where     []Condition
	repeat    int
	names     map[string]bool // of all parameters but those of rows
}

// factor has rows of its own, which are multiplied with those of the others.
type factor struct {
	count int
	row   func(i int) []Param
}

var nameForm = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkName(name string) error {
	switch {
	case !nameForm().MatchString(name):
		return fmt.Errorf("%q is no name of a parameter: letters, digits and _, the first one no digit", name)
	case len(name) > 64:
		return fmt.Errorf("the name %q... has more than 64 letters", name[:64])
	case name == command.RepeatName:
		return fmt.Errorf("%q is a parameter that every task has", name)
	}
	return nil
}

// Read reads a sweep.toml; file names it in errors, and what it names is relative
// to its directory.
func Read(file string, data []byte) (*Sweep, error) {
	doc, err := strict.DecodeTOML(file, data)
	if err != nil {
		return nil, err
	}
	r := reader{doc: doc, s: &Sweep{names: map[string]bool{}, repeat: 1}}
	root := doc.Root()
	r.s.Name = root.Take("name").Text()
	if r.s.Name == "" {
		r.s.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	r.command(root)
	if v := root.Take("rows"); v.Given() {
		if s, ok := v.Raw(); ok && s == "-" {
			r.s.rows = &source{path: "-"}
		} else if path := v.Path(); path != "" {
			s, _ := v.Raw()
			r.s.rows = &source{path: path, said: s}
		}
		if r.s.rows != nil {
			if err := r.s.rows.check(); err != nil {
				v.Fail(err)
			}
		}
	}
	r.list(root.Take("list"))
	seed := int64(root.Take("seed").UpTo(math.MaxInt32))
	r.sample(root.Table("sample"), seed)
	r.zip(root.Table("zip"))
	r.grid(root.Table("grid"))
	r.constant(root.Table("constants"))
	if v := root.Take("repeat"); v.Given() {
		r.s.repeat = max(v.Count(MostTasks), 1)
	}
	r.s.Collect = root.Take("collect").Text()
	if v := root.Take("own"); v.Given() {
		r.s.Own = v.OneOf(command.Owns...)
	}
	for _, v := range root.Take("where").Items("conditions") {
		text := v.Text()
		if text == "" {
			continue
		}
		c, err := ParseCondition(text)
		if err == nil && r.s.rows == nil {
			err = c.known(r.s.names)
		}
		if err != nil {
			v.Fail(err)
			continue
		}
		r.s.where = append(r.s.where, c)
	}
	if v := root.Take("cpus"); v.Given() {
		r.s.Request.CPUs, _ = text(v)
	}
	if v := root.Take("gpus"); v.Given() {
		r.s.Request.GPUs, _ = text(v)
	}
	if v := root.Take("ntasks"); v.Given() {
		r.s.Request.Ranks, _ = text(v)
	}
	if v := root.Take("mpi"); v.Given() {
		var p jobs.Place
		keys.Find("slurm.mpi").Take(v, &p)
		if r.s.Request.MPI = p.Slurm.MPI; r.s.Request.Ranks == "" {
			v.Failf("", "is of tasks with ntasks")
		}
	}
	if v := root.Take("mem"); v.Given() {
		r.s.Request.Memory, _ = text(v)
	}
	r.s.Retry = task.Retry(root.Take("retry"))
	for _, k := range [][2]string{{"infrastructure", "what is not a task's doing costs it no attempt"},
		{"core_hours", "attempts and max_time bound what tasks use"}} {
		if v := doc.At("retry", k[0]); v.Given() {
			v.Failf(k[1], "is of jobs, and not of the tasks of a sweep")
		}
	}
	root.Synonyms("mem", "memory")
	root.Synonyms("cpus", "cpu", "cores", "threads")
	root.Synonyms("command", "cmd", "program", "run")
	root.Synonyms("constants", "constant", "fixed")
	root.Synonyms("where", "condition", "conditions", "if", "filter")
	root.Synonyms("repeat", "repeats", "replicas")
	root.Synonyms("sample", "random", "samples")
	if r.s.Command != nil && r.s.rows == nil {
		if err := known(r.s.Command, r.s.names); err != nil {
			r.commandAt.Fail(err)
		}
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return r.s, nil
}

// Of is the sweep of a command and rows that stand in a file, or "-": the standard input.
func Of(name string, words []string, rows string) (*Sweep, error) {
	t, err := command.Parse(words)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: "berth help sweeps"}
	}
	return OfTemplate(name, t, rows)
}

// OfTemplate is [Of] with a command that was read already.
func OfTemplate(name string, t *command.Template, rows string) (*Sweep, error) {
	s := &Sweep{Name: name, Command: t, repeat: 1, names: map[string]bool{}, rows: &source{path: rows}}
	if err := s.rows.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// OfTaskFile is the sweep of a task file and rows.
func OfTaskFile(file, rows string) (*Sweep, error) {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	s := &Sweep{Name: name, TaskFile: file, repeat: 1, names: map[string]bool{}, rows: &source{path: rows}}
	return s, s.rows.check()
}

type reader struct {
	doc       *strict.Doc
	s         *Sweep
	commandAt strict.Value
}

func (r *reader) command(root *strict.Reader) {
	said, task := root.Take("command"), root.Take("task")
	switch {
	case said.Given() && task.Given():
		task.Failf("a sweep has one of the two", "and command stand both")
	case task.Given():
		r.s.TaskFile = task.Path()
	case !said.Given():
		root.Need("command", `"python3 train.py --lr {lr}"`)
	default:
		r.commandAt = said
		var words []string
		if said.Is(strict.List) {
			for _, v := range said.Items("words") {
				if s, ok := v.Raw(); ok {
					words = append(words, s)
				}
			}
		} else if s := said.Script(); s != "" {
			words = []string{s}
		}
		if len(words) == 0 {
			return
		}
		t, err := command.New(words, !said.Is(strict.List))
		if err != nil {
			said.Fail(err)
			return
		}
		r.s.Command = t
	}
}

// add makes a parameter known, once.
func (r *reader) add(v strict.Value, name string) bool {
	if err := checkName(name); err != nil {
		v.Fail(err)
		return false
	}
	if r.s.names[name] {
		v.Failf("a parameter stands in one of them", "is a parameter already")
		return false
	}
	r.s.names[name] = true
	return true
}

// text is a value as it is written.
func text(v strict.Value) (string, bool) {
	var s string
	switch v.Kind() {
	case strict.String:
		s, _ = v.Raw()
	case strict.Int, strict.Number:
		s = strings.ReplaceAll(v.Source(), "_", "")
	case strict.Bool, strict.Date:
		s = v.Source()
	case strict.Null, strict.Table, strict.List:
		v.MustBe("a string, a number, true or false")
		return "", false
	}
	if err := command.CheckText(s); err != nil {
		v.Failf("", "%v", err)
		return "", false
	}
	return s, true
}

// values are those of a list, or of a range of whole numbers.
func values(v strict.Value) []string {
	if v.Is(strict.Table) {
		return whole(v)
	}
	var out []string
	items := v.Items("values")
	for _, i := range items {
		if s, ok := text(i); ok {
			out = append(out, s)
		}
	}
	if v.Is(strict.List) && len(items) == 0 {
		v.Failf("", "is an empty list: there would be no rows")
	}
	return out
}

func whole(v strict.Value) []string {
	t := v.Table()
	from, to, step := t.Take("from"), t.Take("to"), t.Take("step")
	by := int64(1)
	for _, x := range []strict.Value{from, to, step} {
		if x.Given() && !x.Is(strict.Int) {
			x.MustBe("a whole number")
			return nil
		}
	}
	if step.Given() {
		by = step.Whole()
	}
	switch {
	case !from.Given() || !to.Given():
		v.Failf("", "has no from or no to: write for example { from = 1, to = 20 }")
		return nil
	case by == 0 || (to.Whole()-from.Whole())/by < 0:
		v.Failf("", "never comes from %d to %d by %d", from.Whole(), to.Whole(), by)
		return nil
	case (to.Whole()-from.Whole())/by >= MostTasks:
		v.Failf("", "has more than %d values", MostTasks)
		return nil
	}
	var out []string
	for n := from.Whole(); by > 0 && n <= to.Whole() || by < 0 && n >= to.Whole(); n += by {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func (r *reader) grid(t *strict.Reader) {
	for _, name := range t.Names() {
		v := t.Take(name)
		all := values(v)
		if r.add(v, name) && len(all) > 0 {
			r.s.factors = append(r.s.factors, factor{len(all), func(i int) []Param { return []Param{{Name: name, Text: all[i]}} }})
		}
	}
}

func (r *reader) zip(t *strict.Reader) {
	var names []string
	var columns [][]string
	for _, name := range t.Names() {
		v := t.Take(name)
		all := values(v)
		if !r.add(v, name) || len(all) == 0 {
			continue
		}
		if len(columns) > 0 && len(all) != len(columns[0]) {
			v.Failf("lists in [zip] are equally long", "has %d values, and %s has %d", len(all), names[0], len(columns[0]))
			continue
		}
		names, columns = append(names, name), append(columns, all)
	}
	if len(columns) == 0 {
		return
	}
	r.s.factors = append(r.s.factors, factor{len(columns[0]), func(i int) []Param {
		row := make([]Param, len(names))
		for k := range names {
			row[k] = Param{Name: names[k], Text: columns[k][i]}
		}
		return row
	}})
}

// list reads rows that are written out: each has the parameters of the first.
func (r *reader) list(v strict.Value) {
	var rows [][]Param
	for n, item := range v.Items("tables") {
		if !item.Is(strict.Table) {
			item.MustBe("a table")
			continue
		}
		t := item.Table()
		var row []Param
		for _, name := range t.Names() {
			x := t.Take(name)
			s, ok := text(x)
			if n == 0 && !r.add(x, name) || !ok {
				continue
			}
			row = append(row, Param{Name: name, Text: s})
		}
		if n > 0 && !sameNames(rows[0], row) {
			item.Failf("each [[list]] has the parameters of the first", "has other parameters")
			continue
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		r.s.factors = append(r.s.factors, factor{len(rows), func(i int) []Param { return rows[i] }})
	}
}

func (r *reader) constant(t *strict.Reader) {
	for _, name := range t.Names() {
		v := t.Take(name)
		if s, ok := text(v); ok && r.add(v, name) {
			r.s.constants = append(r.s.constants, Param{Name: name, Text: s})
		}
	}
}

func sameNames(a, b []Param) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range b {
		if _, ok := command.Find(a, p.Name); !ok {
			return false
		}
	}
	return true
}

// Rows gives the standard input to a sweep whose rows are "-".
func (s *Sweep) Rows(stdin io.Reader) {
	if s.rows != nil {
		s.rows.stdin = stdin
	}
}

// known tells whether a command names parameters only.
func known(t *command.Template, names map[string]bool) error {
	for _, n := range t.Names() {
		if !names[n] && n != command.RepeatName {
			return fmt.Errorf("names {%s}, which is no parameter%s; {{%s}} stays as it is", n, strict.DidYouMean(n, keysOf(names)), n)
		}
	}
	return nil
}

func keysOf(names map[string]bool) []string { return slices.Sorted(maps.Keys(names)) }
