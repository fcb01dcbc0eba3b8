package runner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
)

func TestConclude(t *testing.T) {
	ok, three := jobs.Exit{Started: true}, jobs.Exit{Started: true, Code: 3}
	killed := jobs.Exit{Started: true, Code: 137, Signal: 9}
	changed, same := &jobs.Result{Commit: "c"}, &jobs.Result{}
	outside := &jobs.Result{Commit: "c", OutOfScope: []string{"x", "y"}}
	config := &jobs.Error{Kind: jobs.KindConfig, Msg: "no overlay", Hint: "make one"}
	done := func(e jobs.Exit) []jobs.DoneResult {
		return []jobs.DoneResult{{Command: jobs.Command{Shell: "true"}, Exit: ok}, {Command: jobs.Command{Argv: []string{"go", "test"}}, Exit: e}}
	}
	for _, c := range []struct {
		name   string
		out    outcome
		why    *why
		kills  int // of the job's cgroup
		state  jobs.State
		code   int
		reason string
		hint   string
		oom    bool
		note   string
	}{
		{name: "ok", out: outcome{exit: ok}, state: jobs.StateCompleted},
		{name: "changed", out: outcome{exit: ok, result: changed}, state: jobs.StateCompleted},
		{name: "no change", out: outcome{exit: ok, result: same}, state: jobs.StateCompleted, code: 7, reason: "it changed nothing"},
		{name: "out of scope", out: outcome{exit: ok, result: outside}, state: jobs.StateCompleted, code: 9, reason: "it changed 2 files outside its scope"},
		{name: "failed", out: outcome{exit: three, result: changed}, state: jobs.StateFailed, code: 1, reason: "the command ended with exit code 3", hint: "berth logs"},
		{name: "killed", out: outcome{exit: killed}, state: jobs.StateFailed, code: 1, reason: "the command was killed by signal 9", hint: "berth logs"},
		{name: "not started", out: outcome{exit: jobs.Exit{Code: 127, Error: "not found"}}, state: jobs.StateFailed, code: 1, reason: "the command did not start: not found", hint: "berth logs"},
		{name: "done", out: outcome{exit: ok, done: done(ok)}, state: jobs.StateCompleted},
		{name: "not done", out: outcome{exit: ok, result: changed, done: done(three)}, state: jobs.StateFailed, code: 1, reason: `the done command ["go" "test"] ended with exit code 3`, hint: "berth logs --done"},
		{name: "not done, out of scope", out: outcome{exit: ok, result: outside, done: done(three)}, state: jobs.StateFailed, code: 1, reason: "the done command", hint: "berth logs --done"},
		{name: "out of memory", out: outcome{exit: killed}, kills: 1, state: jobs.StateOutOfMemory, code: 1, reason: "the command was killed for memory", hint: "raise", oom: true},
		{name: "out of memory by a shell", out: outcome{exit: jobs.Exit{Started: true, Code: 137}}, kills: 1, state: jobs.StateOutOfMemory, code: 1, reason: "the command was killed for memory", hint: "raise", oom: true},
		{name: "a child out of memory", out: outcome{exit: ok}, kills: 2, state: jobs.StateCompleted, note: "killed 2 processes"},
		{name: "failed after a child was out of memory", out: outcome{exit: three}, kills: 1, state: jobs.StateOutOfMemory, code: 1, reason: "the command ended with exit code 3, after the kernel had killed a process of it for memory", hint: "raise"},
		{name: "not done for memory", out: outcome{exit: ok, done: done(three)}, kills: 1, state: jobs.StateOutOfMemory, code: 1, reason: "the done command", hint: "raise"},
		{name: "the guest out of memory", out: outcome{err: errors.New("the guest has left")}, kills: 1, state: jobs.StateOutOfMemory, code: 1, reason: "the kernel killed a process of the job for memory: the guest has left", hint: "raise"},
		{name: "a FUSE helper out of memory", out: outcome{err: errStopped}, why: &why{state: jobs.StateError, fuse: true, reason: "died"}, kills: 2, state: jobs.StateOutOfMemory, code: 1, reason: "the kernel killed 2 processes of the job for memory: died", hint: "raise"},
		{name: "error", out: outcome{err: errors.New("disk")}, state: jobs.StateError, code: 5, reason: "disk"},
		{name: "classified error", out: outcome{err: fmt.Errorf("prepare: %w", config)}, state: jobs.StateError, code: 78, reason: "prepare: no overlay", hint: "make one"},
		{name: "cancelled", out: outcome{err: errStopped}, why: &why{state: jobs.StateCancelled, reason: "cancelled"}, state: jobs.StateCancelled, code: 130, reason: "cancelled"},
		{name: "cancelled and ok", out: outcome{exit: ok, result: changed}, why: &why{state: jobs.StateCancelled, reason: "cancelled"}, state: jobs.StateCancelled, code: 130, reason: "cancelled"},
		{name: "time", out: outcome{exit: killed}, why: &why{state: jobs.StateTimeout, reason: "time", hint: "more"}, state: jobs.StateTimeout, code: 124, reason: "time", hint: "more"},
		{name: "watched memory", out: outcome{exit: killed}, why: &why{state: jobs.StateOutOfMemory, reason: "too much"}, state: jobs.StateOutOfMemory, code: 1, reason: "too much", oom: true},
		{name: "fenced", out: outcome{err: errStopped}, why: &why{state: jobs.StateError, reason: "taken over"}, state: jobs.StateError, code: 5, reason: "taken over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &attempt{claim: jobs.Claim{Host: "node1"}, ooms: -c.kills}
			r.spec.ID = "01890000-0000-7000-8000-0123456789ab"
			if c.why != nil {
				r.stop.set(*c.why)
			}
			c.out.started = time.Unix(1, 0)
			rec := r.conclude(&c.out)
			if rec.State != c.state || rec.Code != c.code || rec.Reason != c.reason && (c.reason == "" || !strings.HasPrefix(rec.Reason, c.reason)) || rec.Exit.OOM != c.oom || rec.OOMKills != c.kills {
				t.Errorf("%+v", rec)
			}
			if !strings.Contains(rec.Hint, c.hint) || (c.hint == "" && rec.Hint != "") || !strings.Contains(strings.Join(r.notes, " "), c.note) || (c.note == "" && r.notes != nil) {
				t.Errorf("hint %q, notes %q", rec.Hint, r.notes)
			}
			if rec.Node != "node1" || !rec.Started.Equal(c.out.started) {
				t.Errorf("%+v", rec)
			}
		})
	}
}

func TestCodeOf(t *testing.T) {
	for state, want := range map[jobs.State]int{
		jobs.StateCompleted: 0, jobs.StateFailed: 1, jobs.StateOutOfMemory: 1, jobs.StateLost: 1, jobs.StateCancelled: 130, jobs.StateTimeout: 124, jobs.StateError: 5,
	} {
		if got := codeOf(jobs.ExitRecord{State: state}, nil); got != want {
			t.Errorf("%s: %d, want %d", state, got, want)
		}
	}
}

// Twenty paths are enough in a record; the manifest has them all.
func TestResultOfMany(t *testing.T) {
	res := workspace.Result{Branch: "b", SkippedMore: 2}
	for i := range 25 {
		res.OutOfScope = append(res.OutOfScope, workspace.Path(fmt.Sprintf("f%02d", i)))
	}
	got := res.Record()
	if len(got.OutOfScope) != 21 || got.OutOfScope[19] != "f19" || got.OutOfScope[20] != "and 5 more" || got.Skipped != 2 {
		t.Errorf("%+v", got)
	}
}
