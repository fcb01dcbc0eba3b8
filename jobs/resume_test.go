package jobs_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// TestResume is what follows each way to end of a task that can go on.
func TestResume(t *testing.T) {
	here := jobs.Point{Attempt: 1, ID: "1", Commit: "c"}
	reached := &jobs.Checkpoint{Ran: time.Hour, Point: here}
	timeUp := jobs.ExitRecord{State: jobs.StateTimeout, Class: jobs.ClassTime}
	for name, c := range map[string]struct {
		retry  jobs.Retry
		exit   jobs.ExitRecord
		at     *jobs.Checkpoint
		word   *jobs.Status
		hours  float64
		verb   jobs.Verb
		change jobs.Change
		reason string
	}{
		"its time was up":      {exit: timeUp, at: reached, verb: jobs.VerbRetry, change: jobs.Change{Resume: &here}, reason: "goes on where it stopped"},
		"with nothing kept":    {exit: timeUp, verb: jobs.VerbAccept, reason: "not to be tried again"},
		"with more time":       {retry: jobs.Retry{Attempts: 3, Time: 1}, exit: timeUp, verb: jobs.VerbRetry, change: jobs.Change{Time: 2 * time.Hour}, reason: "with 2h"},
		"at once":              {exit: timeUp, at: &jobs.Checkpoint{Ran: time.Second, Point: here}, verb: jobs.VerbAccept, reason: "less than resume.min (1m0s)"},
		"too much used":        {exit: timeUp, at: reached, hours: 1.5, verb: jobs.VerbAccept, reason: "resume.core_hours allows 1.5"},
		"preempted":            {exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassEnded}, at: reached, word: &jobs.Status{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: "PREEMPTED"}, verb: jobs.VerbRetry, change: jobs.Change{Resume: &here}, reason: "goes on where it was"},
		"preempted at once":    {exit: jobs.ExitRecord{State: jobs.StateCancelled, Class: jobs.ClassPreempted}, verb: jobs.VerbRetry, reason: "starts again"},
		"a node, and no retry": {exit: jobs.ExitRecord{State: jobs.StateError, Class: jobs.ClassNode}, at: reached, verb: jobs.VerbAccept, reason: "not to be tried again"},
		"a node":               {retry: jobs.Retry{Attempts: 2, Node: 1}, exit: jobs.ExitRecord{State: jobs.StateError, Class: jobs.ClassNode}, at: reached, verb: jobs.VerbRetry, change: jobs.Change{Resume: &here, Exclude: []string{"c1"}}, reason: "another node"},
		"the task":             {retry: jobs.Retry{Attempts: 2, Task: 1}, exit: jobs.ExitRecord{State: jobs.StateFailed}, at: reached, verb: jobs.VerbRetry, reason: "retry.task"},
	} {
		r := record(&c.retry, c.exit)
		r.Spec.Resume = &jobs.Resume{Attempts: 3, Min: time.Minute, CoreHours: c.hours}
		r.Attempts[0].Checkpoint = c.at
		d := jobs.Next(r, c.word, noon).Decision
		if d.Verb != c.verb || !reflect.DeepEqual(d.Change, c.change) || !strings.Contains(d.Reason, c.reason) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestResumeAttempts: as often as it was allowed, and preemptions do not count.
func TestResumeAttempts(t *testing.T) {
	r := record(&jobs.Retry{}, jobs.ExitRecord{})
	r.Spec.Resume = &jobs.Resume{Attempts: 3}
	r.Attempts = nil
	var classes []jobs.Class
	for n, class := range []jobs.Class{jobs.ClassTime, jobs.ClassPreempted, jobs.ClassTime, jobs.ClassPreempted, jobs.ClassTime} {
		id := string(rune('a' + n))
		a := jobs.Attempt{N: n + 1, Info: jobs.AttemptInfo{ID: id}, Exit: &jobs.ExitRecord{State: jobs.StateTimeout, Class: class},
			Checkpoint: &jobs.Checkpoint{Point: jobs.Point{Attempt: n + 1, ID: id}}}
		if n > 0 {
			a.Info.Change = r.Current().Decision.Change
		}
		r.Attempts = append(r.Attempts, a)
		d := jobs.Next(r, nil, noon).Decision
		r.Current().Decision = &d
		if d.Verb == jobs.VerbRetry {
			classes = append(classes, d.Class)
		}
	}
	if d := r.Current().Decision; len(classes) != 4 || d.Verb != jobs.VerbAccept || !strings.Contains(d.Reason, "resume.attempts allows 3") {
		t.Errorf("%q, then %+v", classes, d)
	}
}
