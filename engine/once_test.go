package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// once submits a task under a key.
func (f *fixture) once(key string, t jobs.Task, c Choice) (*jobs.Record, bool, error) {
	return f.SubmitOnce(context.Background(), key, t, c, func(c Choice) (*jobs.Spec, error) { return f.Plan(context.Background(), t, c, false) })
}

func TestSubmitOnce(t *testing.T) {
	f := newFixture(t)
	first, made, err := f.once("key 1", task(), Choice{})
	must(t, err)
	if !made || first.Spec.Key != store.KeyHash("key 1") {
		t.Errorf("made %v, key %q", made, first.Spec.Key)
	}
	again, made, err := f.once("key 1", task(), Choice{})
	must(t, err)
	if made || again.Spec.ID != first.Spec.ID || f.slurm.Calls().Submit != 1 {
		t.Errorf("made %v, job %s and %s, %d submissions", made, first.Spec.ID, again.Spec.ID, f.slurm.Calls().Submit)
	}
	// Another task is refused, and the refusal names what differs.
	_, _, err = f.once("key 1", task(func(t *jobs.Task) { t.Resources.CPUs = 7; t.Name = "other" }), Choice{})
	if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), jobs.Short(first.Spec.ID)) || !strings.Contains(err.Error(), "differs in: name, resources (task ") || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	if _, _, err = f.once("key 1", at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{}); err == nil || !strings.Contains(err.Error(), "differs in: place") {
		t.Error(err)
	}
	// Another key is another job.
	// Keys of before a task had a place are compared by what both have.
	old, err := store.LoadKey(f.Store.KeyDir(store.KeyHash("key 1")))
	must(t, err)
	old.Parts["terminal"] = "0123456789abcdef"
	parts, err := partsOf(at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}))
	must(t, err)
	if err := (&once{key: "key 1", parts: parts}).same(old); err != nil {
		t.Error(err)
	}
	if other, made, err := f.once("key 2", task(), Choice{}); err != nil || !made || other.Spec.ID == first.Spec.ID {
		t.Error(made, err)
	}
	// The key goes with the job.
	must(t, f.Store.Remove(f.load(first)))
	anew, made, err := f.once("key 1", task(func(t *jobs.Task) { t.Name = "other" }), Choice{})
	if err != nil || !made || anew.Spec.ID == first.Spec.ID {
		t.Error(made, err)
	}
	for _, key := range []string{"", " ", strings.Repeat("x", 513)} {
		if _, _, err := f.once(key, task(), Choice{}); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestSubmitOnceAtOnce is many at the same time, with the same key.
func TestSubmitOnceAtOnce(t *testing.T) {
	f := newFixture(t)
	const n = 8
	ids, makers := map[string]bool{}, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rec, made, err := f.once("the same", task(), Choice{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[rec.Spec.ID] = true
			if made {
				makers++
			}
			if rec.Current().Submitted == nil {
				t.Error("it is not submitted")
			}
		}()
	}
	wg.Wait()
	if len(ids) != 1 || makers != 1 || f.slurm.Calls().Submit != 1 {
		t.Errorf("%d jobs, %d makers, %d submissions", len(ids), makers, f.slurm.Calls().Submit)
	}
}

// holdDead makes the lease of a key that of a process that is gone.
func (f *fixture) holdDead(key string) string {
	f.t.Helper()
	dir, err := f.Store.MakeKeyDir(store.KeyHash(key))
	must(f.t, err)
	self := lease.Self()
	_, err = lease.Acquire(dir, lease.Owner{Version: 1, Dir: dir, Host: self.Host, BootID: self.BootID, PID: 1 << 30, Start: "7"}, func(lease.Owner) bool { return true })
	must(f.t, err)
	return dir
}

// TestSubmitOnceKilled goes through the moments in which a submitter may be
// killed, and comes again with the same key.
func TestSubmitOnceKilled(t *testing.T) {
	id := "01234567-89ab-7cde-8f01-23456789abcd"
	key := func(f *fixture) {
		parts, err := partsOf(task())
		must(t, err)
		_, err = store.SetKey(f.holdDead("k"), store.Key{Job: id, Parts: parts})
		must(t, err)
	}
	// recorded is the job without its submission, which came there or not.
	recorded := func(f *fixture, came bool) {
		key(f)
		s, err := f.Plan(context.Background(), task(), Choice{ID: id}, false)
		must(t, err)
		s.Key = store.KeyHash("k")
		if came {
			f.slurm.LoseReplies = 1
		} else {
			f.slurm.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindUnclear, Msg: "killed"} }
		}
		f.slurm.findFails = -1
		rec, err := f.Submit(context.Background(), s, task())
		if rec == nil || jobs.KindOf(err) != jobs.KindUnclear {
			t.Fatal(rec, err)
		}
		f.slurm.findFails, f.slurm.Submits = 0, nil
	}
	for name, c := range map[string]struct {
		before  func(f *fixture)
		same    bool // the id that was chosen
		submits int
	}{
		"with the lease": {func(f *fixture) { f.holdDead("k") }, false, 1},
		"with the key":   {key, true, 1},
		"with half a record": {func(f *fixture) {
			key(f)
			half := filepath.Join(filepath.Dir(f.Store.JobDir(id)), ".new-"+id)
			must(t, os.MkdirAll(half, 0o700))
			must(t, os.WriteFile(filepath.Join(half, "job.json"), nil, 0o600))
		}, true, 1},
		"with the record":           {func(f *fixture) { recorded(f, false) }, true, 2},
		"when the scheduler had it": {func(f *fixture) { recorded(f, true) }, true, 1},
		"before it recorded that": {func(f *fixture) {
			must(t, os.Remove(filepath.Join(f.submitOnce("k").Current().Dir, store.FileSubmitted)))
			f.holdDead("k")
		}, false, 1},
		"before it gave the key back": {func(f *fixture) { f.submitOnce("k"); f.holdDead("k") }, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.before(f)
			rec, _, err := f.once("k", task(), Choice{})
			must(t, err)
			if (rec.Spec.ID == id) != c.same || rec.Current().Submitted == nil || f.slurm.Calls().Submit != c.submits || len(f.slurm.Launches()) != 1 {
				t.Errorf("job %s, submitted %v, %d submissions, %d launches", rec.Spec.ID, rec.Current().Submitted != nil, f.slurm.Calls().Submit, len(f.slurm.Launches()))
			}
			again, made, err := f.once("k", task(), Choice{})
			if err != nil || made || again.Spec.ID != rec.Spec.ID || f.slurm.Calls().Submit != c.submits {
				t.Errorf("then %v %v %d", made, err, f.slurm.Calls().Submit)
			}
		})
	}
}

func (f *fixture) submitOnce(key string) *jobs.Record {
	f.t.Helper()
	rec, _, err := f.once(key, task(), Choice{})
	must(f.t, err)
	return rec
}

// TestSubmitOnceRefused is about submissions of which nothing came: the key is
// free for another task.
func TestSubmitOnceRefused(t *testing.T) {
	f := newFixture(t)
	f.slurm.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindRejected, Msg: "invalid partition"} }
	if _, _, err := f.once("k", task(), Choice{}); jobs.KindOf(err) != jobs.KindRejected {
		t.Fatal(err)
	}
	f.slurm.Submits = nil
	bad := errors.New("no image")
	if _, _, err := f.SubmitOnce(context.Background(), "k", task(), Choice{}, func(Choice) (*jobs.Spec, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	other := task(func(t *jobs.Task) { t.Slurm.Partition = "debug" })
	if _, made, err := f.once("k", other, Choice{}); err != nil || !made {
		t.Fatal(made, err)
	}
	if _, _, err := f.once("k", task(), Choice{}); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Fatal(err)
	}
}
