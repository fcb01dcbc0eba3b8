package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// A worker whose job is about to end stops what runs and gives it back, without blame:
// the next one runs it. It ends in good order, with its end recorded.
func TestTimeIsOver(t *testing.T) {
	s := made(t, 3, 1, `if [ -e go ]; then exit 0; fi; exec sleep 600`)
	c := config(t, s)
	c.Ends, c.Job = time.Now().Add(400*time.Millisecond), "70"
	must(t, Run(t.Context(), c))
	var a about
	text, err := os.ReadFile(filepath.Join(s.WorkerDir(1), claims.WorkerFile))
	must(t, err)
	if must(t, json.Unmarshal(text, &a)); a.Job != "70" || !a.Ends.Equal(c.Ends) || a.PID != os.Getpid() {
		t.Errorf("%s", text)
	}
	_, err = os.Stat(filepath.Join(s.WorkerDir(1), claims.EndFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "go"), nil, 0o600))
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	for n := range uint32(3) {
		if _, r, err := f.Record(n+1, s.WorkerDir); err != nil || r == nil || r.State != journal.OK || r.Deaths != 0 || r.Worker != 2 {
			t.Errorf("task %d: %+v %v", n+1, r, err)
		}
	}
}

// Nothing is begun, and nothing claimed, that would likely be cut off.
func TestTimeIsShort(t *testing.T) {
	now := time.Now()
	w := &worker{}
	if w.late(now.Add(1000 * time.Hour)) {
		t.Error("late without an end")
	}
	w.stops = now.Add(time.Minute)
	if w.late(now) {
		t.Error("late before any task has ended")
	}
	for range 95 {
		w.times.add(10 * time.Second)
	}
	for range 5 {
		w.times.add(time.Hour)
	}
	if most := w.times.most(); most < 10*time.Second || most > 11*time.Second {
		t.Errorf("95 of 100 took %v", most)
	}
	if w.late(now) || w.late(now.Add(40*time.Second)) || !w.late(now.Add(46*time.Second)) || !w.late(now.Add(time.Hour)) {
		t.Error("not by 1.5 times what tasks take")
	}
	if stops := stopAt(now, now.Add(time.Hour)); stops != now.Add(59*time.Minute) {
		t.Error(stops)
	}
	if stops := stopAt(now, now.Add(time.Minute)); stops != now.Add(45*time.Second) {
		t.Error(stops)
	}
	if stops := stopAt(now, time.Time{}); !stops.IsZero() {
		t.Error(stops)
	}
	s := made(t, 3, 1, "true")
	c := config(t, s)
	c.Ends = now.Add(-time.Second)
	must(t, Run(t.Context(), c))
	if all, err := os.ReadDir(s.Claims(1).Dir); err != nil || len(all) > 0 {
		t.Errorf("claims: %v %v", all, err)
	}
}

// Tasks begin while their requests fit. A large one is not passed by those behind it.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(&sweep.Spec{Worker: &jobs.Place{Resources: jobs.Resources{CPUs: 4, Memory: 8 * jobs.GiB}}}, nil)
		begins := func(cpus, mem string) (end chan struct{}, began *bool) {
			end, began = make(chan struct{}), new(bool)
			go func() {
				share, _ := command.Request{CPUs: cpus, Memory: mem}.Of(command.Task{})
				has := r.take(share)
				*began = true
				<-end
				r.give(has)
			}()
			synctest.Wait()
			return end, began
		}
		one, a := begins("2", "1GiB")
		two, b := begins("1", "6GiB")
		three, c := begins("{{x}}", "") // no number: the table was checked
		four, d := begins("16", "")     // more than there is: alone
		five, e := begins("1", "")
		if !*a || !*b || !*c || *d || *e {
			t.Errorf("at first: %v %v %v %v %v", *a, *b, *c, *d, *e)
		}
		close(one)
		synctest.Wait()
		if *d || *e {
			t.Error("no room yet")
		}
		close(two)
		synctest.Wait()
		if !*d || *e {
			t.Errorf("the large one: %v, behind it: %v", *d, *e)
		}
		close(four)
		synctest.Wait()
		if !*e {
			t.Error("the last one waits")
		}
		close(three)
		close(five)
		synctest.Wait()
		if r.cpus != 0 || r.memory != 0 {
			t.Errorf("%d CPUs and %s are left taken", r.cpus, r.memory)
		}
	})
}

// What tasks ask for is held by the worker, whatever it may run at once.
func TestPacked(t *testing.T) {
	s := made(t, 12, 1, `mkdir running.{n}; set -- running.*; echo $#; sleep 0.05; rmdir running.{n}`)
	s.Spec.Slots = 8
	s.Spec.Request = command.Request{CPUs: "2"}
	s.Spec.Worker = &jobs.Place{Resources: jobs.Resources{CPUs: 4}}
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	var most sync.Map
	for n := range uint32(12) {
		text, code := output(t, s, f, n+1)
		if text != "1:1\n" && text != "1:2\n" || code != 0 {
			t.Errorf("task %d: %q", n+1, text)
		}
		most.Store(text, true)
	}
	if _, ok := most.Load("1:2\n"); !ok {
		t.Error("no two ran at once")
	}
}

// While all of its slots are taken a worker holds no further batch of which it does not
// know that it is short: another worker runs that.
func TestLeavesOthersTheirShare(t *testing.T) {
	s := made(t, 3, 2, `touch on.{n}; until [ -e on.1 ] && [ -e on.2 ] && [ -e on.3 ]; do sleep 0.05; done`)
	s.Spec.Limit = time.Minute
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := Run(t.Context(), config(t, s)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if f, err := s.Fold(); err != nil || f.Count(journal.OK) != 3 {
		t.Errorf("%d of 3, %v", f.Count(journal.OK), err)
	}
}

// Where a sweep says no time of its workers, as before its pilot has ended, longer tries of a task
// are bounded by what the worker's own job has.
func TestLongerTriesFit(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		said time.Duration
		ends time.Time
		want time.Duration
	}{
		{0, now.Add(10 * time.Minute), 8 * time.Minute},
		{time.Hour, now.Add(10 * time.Minute), 32 * time.Minute}, // what is said is the same for all workers
		{0, time.Time{}, 32 * time.Minute},
		{0, now, 32 * time.Minute},
	} {
		of := &jobs.Place{Resources: jobs.Resources{Time: c.said, CPUs: 2}}
		spec := sweep.Spec{Limit: 4 * time.Minute, Retry: &jobs.Retry{Attempts: 9, Time: 3}, Worker: timed(of, c.ends, now)}
		if got := spec.LimitOf(journal.Tries{Time: 3}); got != c.want || spec.Worker.Resources.CPUs != 2 || of.Resources.Time != c.said {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
