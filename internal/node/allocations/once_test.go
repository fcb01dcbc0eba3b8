package allocations

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"berth/jobs"
	"berth/jobs/jobstest"
)

// A scheduler is asked once about many environments.
func TestAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		if Handle(f.Record) != nil {
			t.Error("an allocation before any was asked for")
		}
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		<-c
		h := Handle(f.Record)
		if h == nil || h.Name != f.name(t) {
			t.Fatalf("%+v", h)
		}
		gone := *h
		gone.Name = "berth-gone"
		before := f.fake.Calls().Status
		s := AskOnce(t.Context(), steps{f.fake}, []jobs.Handle{*h, gone})
		f.Scheduler = s
		for range 3 {
			if st, err := f.State(t.Context()); err != nil || st == nil || st.ID != "1" || !st.Running {
				t.Errorf("%+v %v", st, err)
			}
		}
		if all, err := s.Status(t.Context(), []jobs.Handle{gone}); err != nil || len(all) != 0 {
			t.Errorf("%+v %v", all, err)
		}
		if n := f.fake.Calls().Status - before; n != 1 {
			t.Errorf("asked %d times", n)
		}
		other := *h
		other.Name = "berth-other"
		if _, err := s.Status(t.Context(), []jobs.Handle{other}); err != nil || f.fake.Calls().Status-before != 2 {
			t.Errorf("another job: %v, asked %d times", err, f.fake.Calls().Status-before)
		}
		down := errors.New("it is down")
		f.fake.Fault(func(s *jobstest.FakeScheduler) { s.Queries = down })
		f.Scheduler = AskOnce(t.Context(), steps{f.fake}, []jobs.Handle{*h})
		if _, err := f.State(t.Context()); !errors.Is(err, down) {
			t.Error(err)
		}
	})
}

func TestDeniedTo(t *testing.T) {
	said := errors.New("srun, exit code 13: slurmstepd-c2: error: execve(): /home/Ada/state/bin/berth-node-1: Permission denied slurmstepd-c2: error: *** STEP 136.0 ON c2 FAILED")
	if !deniedTo("/home/Ada/state/bin/berth-node-1", said) || deniedTo("/home/Ada/state/bin/berth-node-2", said) {
		t.Error(said)
	}
}
