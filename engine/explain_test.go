package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// forecasting is a scheduler that can be asked what would start a job sooner.
type forecasting struct {
	*scheduler
	asked []string
}

func (s *forecasting) Forecast(_ context.Context, st jobs.Status, script string, r jobs.Resources, _ jobs.SlurmOptions) ([]jobs.Forecast, error) {
	s.asked = append(s.asked, st.NativeState+" "+script+" "+r.Memory.String())
	return []jobs.Forecast{{What: "as it is", Start: time.Unix(1000, 0)}}, nil
}

func (f *fixture) explain(r *jobs.Record) Explanation {
	f.t.Helper()
	v := f.see(r)
	return f.Explain(f.t.Context(), &v)
}

func who(x Explanation) (out []string) {
	for _, a := range x.Next {
		out = append(out, a.Who)
	}
	return out
}

// Who acts next is told at every stage of a job.
func TestExplainWhoActsNext(t *testing.T) {
	f := newFixture(t)
	s := &forecasting{scheduler: f.slurm}
	f.Schedulers[0] = s
	r := f.submit(task(again, gib), Choice{})
	x := f.explain(r)
	if len(s.asked) != 1 || !strings.HasSuffix(s.asked[0], "script.sh 1GiB") || x.Forecasts == nil || !x.Expected.Equal(time.Unix(1000, 0)) || who(x)[0] != ActorScheduler {
		t.Errorf("waiting: %+v %q", x, s.asked)
	}
	f.claim(r)
	if x := f.explain(r); who(x)[0] != ActorRunner || !strings.Contains(x.Next[0].Does, "decides what follows") || len(s.asked) != 1 {
		t.Errorf("running: %+v", x)
	}
	f.slurm.Queries = &jobs.Error{Kind: jobs.KindInfra, Msg: "squeue: connection refused"}
	f.pass(time.Minute)
	if x := f.explain(r); !slices.Equal(who(x)[:2], []string{ActorRunner, ActorAnybody}) || x.Next[1].When.IsZero() || x.Trouble == nil {
		t.Errorf("silent: %+v", x)
	}
	f.slurm.Queries = nil
	// Whoever looks decides and submits; what cannot be submitted is left to the next.
	e := oom
	e.Version, e.Ended = 1, f.now()
	if _, err := store.SetExit(r.Current().Dir, e); err != nil {
		t.Fatal(err)
	}
	f.slurm.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindInfra, Msg: "sbatch: down"} }
	if x := f.explain(r); who(x)[0] != ActorAnybody || !strings.Contains(x.Next[0].Does, "submits attempt 2: with 1536MiB of memory") {
		t.Errorf("ended: %+v", x)
	}
	f.slurm.Submits = nil
	if x := f.explain(r); who(x)[0] != ActorScheduler || !strings.HasSuffix(s.asked[len(s.asked)-1], "1536MiB") {
		t.Errorf("tried again: %+v, %q", x, s.asked)
	}
	v := f.see(r)
	if err := f.Cancel(t.Context(), []View{v}, "alice"); err != nil {
		t.Fatal(err)
	}
	if x := f.explain(r); who(x)[0] != ActorNone && who(x)[0] != ActorScheduler {
		t.Errorf("cancelled: %+v", x)
	}
	f.pass(time.Hour)
	if x := f.explain(r); who(x)[0] != ActorNone {
		t.Errorf("over: %+v", x)
	}
}

// Our own record counts, and what the scheduler says otherwise is told.
func TestExplainWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		ours    jobs.State
		theirs  jobs.State
		differs bool
	}{
		{jobs.StateCompleted, jobs.StateCompleted, false},
		{jobs.StateCompleted, jobs.StateOutOfMemory, true},
		{jobs.StateCompleted, jobs.StateFailed, true},
		{jobs.StateTimeout, jobs.StateFailed, false},
		{jobs.StateTimeout, jobs.StateCancelled, true},
		{jobs.StateFailed, jobs.StateRunning, false},
		{jobs.StateFailed, "", false},
	} {
		if got := saysOtherwise(c.ours, jobs.Status{State: c.theirs}); got != c.differs {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A cancel between two attempts is their end at once, without another look.
func TestCancelBetweenAttempts(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	f.slurm.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindInfra, Msg: "sbatch: down"} }
	f.end(r, oom)
	v := f.see(r)
	if v.State != jobs.StatePending || v.Unfollowed == nil {
		t.Fatalf("%+v", v)
	}
	for range 2 { // twice is no error
		if err := f.Cancel(t.Context(), []View{v}, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := store.LoadDir(r.Dir)
	if err != nil || jobs.StateOf(rec) != jobs.StateCancelled || len(f.launches()) != 1 {
		t.Errorf("%s, %v, %d launches", jobs.StateOf(rec), err, len(f.launches()))
	}
}
