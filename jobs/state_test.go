package jobs_test

import (
	"testing"

	"berth/jobs"
)

// states are all of them, whether they are final, and what `berth wait` exits
// with when a client has concluded them.
var states = []struct {
	state jobs.State
	final bool
	code  int
}{
	{jobs.StateSubmitting, false, 8},
	{jobs.StatePending, false, 8},
	{jobs.StateRunning, false, 8},
	{jobs.StateCompleted, true, 0},
	{jobs.StateFailed, true, 1},
	{jobs.StateCancelled, true, 130},
	{jobs.StateTimeout, true, 124},
	{jobs.StateOutOfMemory, true, 1},
	{jobs.StateError, true, 5},
	{jobs.StateLost, true, 5},
	{"", false, 8},
	{"of a later version", false, 8},
}

func TestStates(t *testing.T) {
	for _, c := range states {
		if c.state.Final() != c.final {
			t.Errorf("%q: final is %t", c.state, !c.final)
		}
		r := &jobs.Record{Attempts: []jobs.Attempt{{Verdict: &jobs.Verdict{State: c.state}}}}
		if got := jobs.StateOf(r); got != c.state {
			t.Errorf("a verdict %q gives %q", c.state, got)
		}
		if got := jobs.CodeOfRecord(r); got != c.code {
			t.Errorf("a verdict %q gives code %d, want %d", c.state, got, c.code)
		}
		r.Attempts[0].Exit = &jobs.ExitRecord{State: c.state, Code: 42}
		if got := jobs.CodeOfRecord(r); got != 42 {
			t.Errorf("an exit %q gives code %d, want its own", c.state, got)
		}
	}
}

// TestPrecedence goes through every combination of the four files: exit beats
// verdict beats claim beats submitted.
func TestPrecedence(t *testing.T) {
	for bits := range 16 {
		a := jobs.Attempt{}
		want, code := jobs.StateSubmitting, jobs.CodePending
		if bits&1 != 0 {
			a.Submitted, want = &jobs.Submitted{}, jobs.StatePending
		}
		if bits&2 != 0 {
			a.Claim, want = &jobs.Claim{}, jobs.StateRunning
		}
		if bits&4 != 0 {
			a.Verdict, want, code = &jobs.Verdict{State: jobs.StateLost}, jobs.StateLost, jobs.CodeInfra
		}
		if bits&8 != 0 {
			a.Exit, want, code = &jobs.ExitRecord{State: jobs.StateCompleted, Code: jobs.CodeNoChanges}, jobs.StateCompleted, jobs.CodeNoChanges
		}
		// An earlier attempt counts for nothing.
		r := &jobs.Record{Attempts: []jobs.Attempt{{N: 1, Exit: &jobs.ExitRecord{State: jobs.StateFailed, Code: 1}}, a}}
		if got := jobs.StateOf(r); got != want {
			t.Errorf("%04b: state %q, want %q", bits, got, want)
		}
		if got := jobs.CodeOfRecord(r); got != code {
			t.Errorf("%04b: code %d, want %d", bits, got, code)
		}
	}
	empty := &jobs.Record{}
	if empty.Current() != nil || jobs.StateOf(empty) != jobs.StateSubmitting || jobs.CodeOfRecord(empty) != jobs.CodePending {
		t.Error("a record without attempts is being submitted")
	}
}

func TestExit(t *testing.T) {
	for _, c := range []struct {
		exit jobs.Exit
		ok   bool
		text string
	}{
		{jobs.Exit{}, false, "did not start"},
		{jobs.Exit{Code: 127, Error: "no such file"}, false, "did not start: no such file"},
		{jobs.Exit{Started: true}, true, "exit code 0"},
		{jobs.Exit{Started: true, Code: 3}, false, "exit code 3"},
		{jobs.Exit{Started: true, Code: 143, Signal: 15}, false, "killed by signal 15"},
		{jobs.Exit{Started: true, Code: 137, Signal: 9, OOM: true}, false, "killed: out of memory"},
	} {
		if c.exit.OK() != c.ok || c.exit.String() != c.text {
			t.Errorf("%+v: %t, %q", c.exit, c.exit.OK(), c.exit.String())
		}
	}
}

func TestWords(t *testing.T) {
	if c := jobs.Words([]string{"make test"}); c.Shell != "make test" || c.Argv != nil {
		t.Errorf("%+v", c)
	}
	if c := jobs.Words([]string{"make", "test"}); c.Shell != "" || len(c.Argv) != 2 {
		t.Errorf("%+v", c)
	}
	if !jobs.Words(nil).Empty() || !(jobs.Command{}).Empty() || jobs.Words([]string{"x"}).Empty() {
		t.Error("Empty")
	}
}
