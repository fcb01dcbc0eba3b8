package jobs

import "testing"

// TestUnguarded changes one thing each.
func TestUnguarded(t *testing.T) {
	fresh := func() *Record {
		return &Record{Spec: Spec{Retry: &Retry{Attempts: 3}, Place: Place{Scheduler: SchedulerSlurm}}, Attempts: []Attempt{{N: 1, Submitted: &Submitted{Handle: Handle{NativeID: "7"}}}}}
	}
	if !fresh().Unguarded() {
		t.Error("a job that was just submitted counts as guarded")
	}
	for name, change := range map[string]func(r *Record){
		"no attempt":       func(r *Record) { r.Attempts = nil },
		"not submitted":    func(r *Record) { r.Attempts[0].Submitted = nil },
		"ended":            func(r *Record) { r.Attempts[0].Exit = &ExitRecord{} },
		"concluded":        func(r *Record) { r.Attempts[0].Verdict = &Verdict{} },
		"not tried again":  func(r *Record) { r.Spec.Retry = nil },
		"the local queue":  func(r *Record) { r.Spec.Scheduler = SchedulerLocal },
		"another cluster":  func(r *Record) { r.Spec.Login = &SSHSpec{} },
		"nodes are mute":   func(r *Record) { r.Spec.Profile.NodesMute = true },
		"it has a reaper":  func(r *Record) { r.Attempts[0].Reaper = &Submitted{} },
		"tried in vain":    func(r *Record) { r.Attempts[0].Unfollowed = &Unfollowed{} },
		"started anew":     func(r *Record) { r.Attempts[0].Reaper = &Submitted{}; again(r, "7") },
		"the next has one": func(r *Record) { again(r, "8"); r.Attempts[1].Reaper = &Submitted{} },
	} {
		r := fresh()
		if change(r); r.Unguarded() {
			t.Errorf("%s: it counts as unguarded", name)
		}
	}
	r := fresh()
	r.Attempts[0].Reaper = &Submitted{}
	if again(r, "8"); !r.Unguarded() {
		t.Error("the next attempt, another job of the scheduler's, counts as guarded")
	}
}

// again adds an attempt that is a job of the scheduler's with this id.
func again(r *Record, id string) {
	r.Attempts = append(r.Attempts, Attempt{N: len(r.Attempts) + 1, Submitted: &Submitted{Handle: Handle{NativeID: id}}})
}
