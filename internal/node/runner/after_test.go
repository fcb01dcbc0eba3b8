package runner

import (
	"strings"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// parent is another job in the same ledger, which has ended so; "" is that it
// waits in a queue.
func (j *job) parent(p *jobs.Retry, state jobs.State) *jobs.Record {
	j.t.Helper()
	ledger, err := store.At(store.HomeOf(j.rec.Dir))
	if err != nil {
		j.t.Fatal(err)
	}
	n := store.New{Spec: j.rec.Spec, Attempt: jobs.AttemptInfo{Version: 1, Number: 1, Name: "parent", Created: time.Now()}, Script: func(string) (string, error) { return "#!/bin/sh\n", nil }}
	for _, id := range []*string{&n.Spec.ID, &n.Attempt.ID} {
		if *id, err = ids.New(); err != nil {
			j.t.Fatal(err)
		}
	}
	n.Spec.Retry, n.Spec.After = p, nil
	rec, err := ledger.Create(n)
	if err == nil && state != "" {
		_, err = store.SetExit(rec.Current().Dir, jobs.ExitRecord{Version: 1, Attempt: n.Attempt.ID, State: state, Reason: "so it ended", Ended: time.Now()})
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return rec
}

// TestGate: an attempt begins only when the jobs that it waits for have ended as
// they must, by the ledger.
func TestGate(t *testing.T) {
	for name, c := range map[string]struct {
		need   jobs.Need
		retry  *jobs.Retry
		parent jobs.State
		// what came of the attempt
		code   int // of the batch job
		class  jobs.Class
		verb   jobs.Verb
		state  jobs.State // of the job
		reason string
	}{
		"it succeeded":         {need: jobs.NeedOK, parent: jobs.StateCompleted, verb: jobs.VerbAccept, state: jobs.StateCompleted},
		"it ended":             {need: jobs.NeedAny, parent: jobs.StateLost, verb: jobs.VerbAccept, state: jobs.StateCompleted},
		"it failed":            {need: jobs.NeedNotOK, parent: jobs.StateFailed, verb: jobs.VerbAccept, state: jobs.StateCompleted},
		"it goes on":           {need: jobs.NeedOK, class: jobs.ClassWaiting, verb: jobs.VerbRetry, state: jobs.StatePending, reason: "it waits for "},
		"it is tried again":    {need: jobs.NeedNotOK, retry: jobs.DefaultRetry(), parent: jobs.StateError, class: jobs.ClassWaiting, verb: jobs.VerbRetry, state: jobs.StatePending, reason: "it waits for "},
		"it never succeeds":    {need: jobs.NeedOK, parent: jobs.StateFailed, code: 1, class: jobs.ClassPolicy, verb: jobs.VerbAccept, state: jobs.StateError, reason: "has ended as failed: so it ended"},
		"it never fails":       {need: jobs.NeedNotOK, parent: jobs.StateCompleted, code: 1, class: jobs.ClassPolicy, verb: jobs.VerbAccept, state: jobs.StateError, reason: "has ended as completed"},
		"its record was taken": {need: jobs.NeedOK, parent: "gone", code: 1, class: jobs.ClassPolicy, verb: jobs.VerbAccept, state: jobs.StateError, reason: "was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := ids.New()
			if err != nil {
				t.Fatal(err)
			}
			var after jobs.After
			first := newJob(t, "true", nil)
			if c.parent != "gone" {
				id = first.parent(c.retry, c.parent).Spec.ID
			}
			after = jobs.After{Job: id, Need: c.need}
			j := newJobIn(t, store.HomeOf(first.rec.Dir), "echo began", func(n *store.New) { n.Spec.After, n.Spec.Retry = []jobs.After{after}, &jobs.Retry{} })
			code, rec := j.run()
			now := reread(t, j.rec)
			if code != c.code || rec.Class != c.class || !strings.Contains(rec.Reason, c.reason) || jobs.StateOf(now) != c.state || now.Current().Decision == nil || now.Current().Decision.Verb != c.verb {
				t.Errorf("exit %d, record %+v, the job is %s, decision %+v", code, rec, jobs.StateOf(now), now.Current().Decision)
			}
			if began := j.read(store.FileStdout) != ""; began != (c.state == jobs.StateCompleted) {
				t.Errorf("it began: %v", began)
			}
			if c.class == jobs.ClassPolicy && (rec.Code != jobs.CodeTaskFailed || jobs.CodeOfRecord(now) != jobs.CodeTaskFailed || !strings.Contains(rec.Hint, jobs.Short(id))) {
				t.Errorf("code %d, hint %q", rec.Code, rec.Hint)
			}
		})
	}
}

// TestGateLate: the end of what it hangs on may be seen late; what is tried
// again in the meantime is not waited for here.
func TestGateLate(t *testing.T) {
	first := newJob(t, "true", nil)
	for name, again := range map[string]bool{"seen late": false, "tried again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := first.parent(jobs.DefaultRetry(), "")
			a := parent.Current()
			claimFor(t, a, 0)
			began := time.Now()
			j := newJobIn(t, store.HomeOf(first.rec.Dir), "true", func(n *store.New) {
				n.Spec.After, n.Spec.Retry = []jobs.After{{Job: parent.Spec.ID, Need: jobs.NeedOK}}, &jobs.Retry{}
				if again {
					n.Attempt.Created = began.Add(-time.Hour)
				}
			})
			j.start()
			if !again {
				time.Sleep(500 * time.Millisecond) // most of the time the gate has looked then
				if _, err := store.SetExit(a.Dir, jobs.ExitRecord{Version: 1, Attempt: a.Info.ID, State: jobs.StateCompleted, Ended: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
			_, rec := j.wait()
			if waiting := rec.Class == jobs.ClassWaiting; waiting != again {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// TestHeld: what stands in the local queue sees the jobs it waits for end.
func TestHeld(t *testing.T) {
	t.Parallel()
	first := newJob(t, "true", nil)
	parent := first.parent(nil, "")
	for need, never := range map[jobs.Need]bool{jobs.NeedOK: true, jobs.NeedAny: false} {
		j := newJobIn(t, store.HomeOf(first.rec.Dir), "true", func(n *store.New) { n.Spec.After = []jobs.After{{Job: parent.Spec.ID, Need: need}} })
		held := Held(j.dir, "")
		if waits, no := held(); waits != jobs.Short(parent.Spec.ID)+" ("+string(need)+")" || no {
			t.Errorf("%s: waits for %q, never %v", need, waits, no)
		}
		if _, err := store.SetExit(parent.Current().Dir, jobs.ExitRecord{Version: 1, Attempt: parent.Current().Info.ID, State: jobs.StateFailed, Ended: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if waits, no := held(); waits != "" || no != never {
			t.Errorf("%s: waits for %q, never %v", need, waits, no)
		}
		parent = first.parent(nil, "")
	}
}
