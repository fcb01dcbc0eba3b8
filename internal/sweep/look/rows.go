package look

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sweep/define"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// Row is a task and how it stands.
type Row struct {
	command.Task
	State  journal.State
	Record *journal.Record // that counts, or nil
}

// Look is a sweep with what its workers have recorded. Close it.
type Look struct {
	Sweep *sweep.Sweep
	Fold  *journal.Fold
	In    *journal.Reader
}

// New looks at a sweep.
func New(s *sweep.Sweep, f *journal.Fold) *Look {
	return &Look{s, f, journal.NewReader(s.WorkerDir)}
}

// Close closes its files.
func (l *Look) Close() { l.In.Close() }

// Row is that of a task.
func (l *Look) Row(t command.Task) (Row, error) {
	_, rec, err := l.In.Record(l.Fold, uint32(t.Number))
	return Row{t, l.Fold.State(uint32(t.Number)), rec}, err
}

// Rows gives the rows of these tasks.
func (l *Look) Rows(numbers sweep.Numbers, each func(Row) error) error {
	return l.Sweep.Pick(numbers, func(t command.Task) error {
		r, err := l.Row(t)
		if err != nil {
			return err
		}
		return each(r)
	})
}

// All are the numbers of all tasks, and In those in one of these states.
func (l *Look) All() sweep.Numbers { return sweep.Numbers{{1, l.Fold.Tasks()}} }

// States are the numbers of the tasks that are in one of these states.
func (l *Look) States(states ...journal.State) (n sweep.Numbers) {
	var in [16]bool
	for _, s := range states {
		in[s] = true
	}
	for t := 1; t <= l.Fold.Tasks(); t++ {
		if in[l.Fold.State(uint32(t))] {
			n.Add(t)
		}
	}
	return n
}

// NotOK are the states of results other than success.
var NotOK = []journal.State{journal.Failed, journal.Killed, journal.TimedOut, journal.NoStart, journal.SetAside, journal.OverMemory}

// Word is a state as conditions and JSON have it.
func Word(s journal.State) string { return strings.ReplaceAll(s.String(), " ", "_") }

// Fields are what conditions may ask of a task beside its parameters, which come first
// where one has such a name.
func (r Row) Fields() []command.Param {
	var rec journal.Record
	if r.Record != nil && r.State.Result() {
		rec = *r.Record
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	return []command.Param{
		{Name: "task", Text: strconv.Itoa(r.Number)}, {Name: "id", Text: r.ID.String()}, {Name: command.RepeatName, Text: strconv.Itoa(r.Repeat)},
		{Name: "state", Text: Word(r.State)},
		{Name: "class", Text: string(sweep.ClassOf(r.State))}, {Name: "tries", Text: strconv.Itoa(rec.Tries.Sum())}, {Name: "exit",
			Text: strconv.Itoa(Exit(rec))}, {Name: "signal", Text: strconv.Itoa(int(rec.Signal))},
		{Name: "seconds", Text: seconds(rec.Took)}, {Name: "cpu_seconds", Text: seconds(rec.CPU)},
		{Name: "memory", Text: strconv.FormatFloat(float64(rec.Memory)/(1<<20), 'f', -1, 64)},
		{Name: "deaths", Text: strconv.Itoa(int(rec.Deaths))}, {Name: "round", Text: strconv.Itoa(int(rec.Round))}, {Name: "worker",
			Text: strconv.Itoa(int(rec.Worker))},
	}
}

// Exit is the exit code as a shell tells it: 128 and the signal, of a task that was killed.
func Exit(r journal.Record) int {
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return int(r.Code)
}

// FieldNames says for a help what [Row.Fields] has.
const FieldNames = "task, id, repeat, state, class, tries, exit, signal, seconds, cpu_seconds, memory (MiB), deaths, round, worker"

// Where is a condition over rows.
func Where(text string) (func(Row) (bool, error), error) {
	c, err := define.ParseCondition(text)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--where " + err.Error(),
			Hint: "it is such as: lr < 0.1 and exit == 137; parameters, and " + FieldNames}
	}
	return func(r Row) (bool, error) {
		ok, err := c.Holds(append(r.Params[:len(r.Params):len(r.Params)], r.Fields()...))
		if err != nil {
			err = &jobs.Error{Kind: jobs.KindUsage, Msg: "task " + strconv.Itoa(r.Number) + ": " + err.Error(),
				Hint: "a task has its parameters, and " + FieldNames}
		}
		return ok, err
	}, nil
}

// One is the row of one task.
func (l *Look) One(number int) (r Row, err error) {
	err = l.Rows(sweep.Numbers{{number, number}}, func(x Row) error { r = x; return nil })
	return r, err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
