// Package top is the screen of berth top: lists side by side, and beside them what the
// chosen row says of itself and what it writes.
//
// It knows rows, not jobs: the command line makes them as it does for berth ps, berth env ls,
// berth sweep ls and berth review ls, and a row brings what can be done with it. What is
// drawn passes [jobs.Printable] or termsafe, whoever wrote it: cell and Lines are the places.
package top

import (
	"cmp"
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Tab is one of the lists.
type Tab int

// The lists, in their order on the screen.
const (
	Jobs Tab = iota
	Environments
	Allocations
	Sweeps
	Reviews
	tabs
)

var titles = [tabs]string{"jobs", "environments", "allocations", "sweeps", "reviews"}

// Tone is how a row goes, for its colour.
type Tone int

// The tones.
const (
	Plain   Tone = iota
	Running      // it does something
	Waiting      // it waits for something
	Good         // it ended well
	Bad          // it did not
)

// Column is a column of a list.
type Column struct {
	Title string
	// Most is how wide it is at most; 0 takes what is left.
	Most int
	// Drop is when it is left out on a narrow screen: the greatest first, 0 never.
	Drop  int
	Right bool // numbers
}

// Table is a list, as it was read.
type Table struct {
	Columns []Column
	Rows    []Row
	Empty   string // said where there is no row
}

// Row is one line of a list.
type Row struct {
	// Key identifies it in its list from one reading to the next.
	Key   string
	Cells []string
	// By sorts columns of numbers and times; nil, or a missing one, sorts by the text.
	By      map[int]float64
	Tone    Tone
	Actions []Action
	// Detail returns labels and values; it may take a while.
	Detail func(context.Context) ([][2]string, error)
	// Output begins to pass what the row's task has written to Lines, and returns what passes on
	// more; nil is that there is none. Another OutputOf is another output of the same row.
	Output   func(*Lines) (next func() error)
	OutputOf string
}

// Action is what can be done with a row.
type Action struct {
	Key  string // that is pressed
	Name string // one word
	// Ask is a question that is answered by y before it is done; "" is done at once.
	Ask string
	// Do does it, and returns what to say.
	Do func(context.Context) (string, error)
}

// Want is what is to be read.
type Want struct {
	// Quick wants the jobs alone, from their records, for the first screen: no scheduler is asked.
	Quick bool
	All   bool // what has ended, too
	Tabs  [tabs]bool
}

// Snapshot is what was read: at most one question to each scheduler.
type Snapshot struct {
	Tables  map[Tab]Table
	Summary string   // one line about all jobs
	Said    []string // warnings meanwhile
}

// Config is what a screen needs.
type Config struct {
	Read func(context.Context, Want) Snapshot
	Now  func() time.Time
	// Tab is the list that is shown first, All whether it has what ended.
	Tab Tab
	All bool
	// Every is the least time between two readings.
	Every time.Duration
}

// Run shows the screen on a terminal until it is left or the context ends, and puts the
// terminal back as it was. Where it is left while an action goes on, that is waited for: the
// error may be the action's.
func Run(ctx context.Context, in io.Reader, out io.Writer, environ []string, c Config) error {
	m := newModel(ctx, c)
	m.cpu = cpuTime
	_, err := tea.NewProgram(newPaced(m), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(environ),
		tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return ctx.Err()
	}
	return cmp.Or(err, m.failed)
}

// cpuTime is what this process and those that it started have used.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
