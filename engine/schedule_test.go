package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/queue/schedule"
	"berth/jobs"
)

// schedule makes an hourly schedule.
func (f *fixture) schedule(overlap string) {
	f.t.Helper()
	must(f.t, schedule.At(f.Store.Home()).Create(jobs.Schedule{ID: "018f0000-0000-7000-8000-000000000001", Name: "hourly", Zone: "UTC", Cron: "0 * * * *",
		Overlap: overlap, Created: f.now(), Words: []string{"x.md"}, Dir: "/"}, nil))
}

// tick is [Engine.Tick] of tasks that all go to slurm.
func (f *fixture) tick() []Ticked {
	f.t.Helper()
	done, err := f.Tick(f.t.Context(), f.scheduled)
	must(f.t, err)
	return done
}

func (f *fixture) scheduled(ctx context.Context, s *jobs.Schedule, key string) (string, error) {
	t := task()
	rec, _, err := f.SubmitOnce(ctx, key, t, Choice{}, func(c Choice) (*jobs.Spec, error) { return f.Plan(ctx, t, c, false) })
	if rec == nil {
		return "", err
	}
	return rec.Spec.ID, err
}

func (f *fixture) jobOf(done []Ticked) *jobs.Record {
	f.t.Helper()
	if len(done) != 1 || done[0].Run.Outcome == nil || done[0].Run.Outcome.Job == "" {
		f.t.Fatalf("%+v", done)
	}
	r, err := f.Store.Load(done[0].Run.Outcome.Job)
	must(f.t, err)
	return r
}

// TestTickOnce: of many who look at a schedule when it is due one submits, and a run whose
// submitter was killed is submitted by the next, once.
func TestTickOnce(t *testing.T) {
	f := newFixture(t)
	f.schedule(jobs.OverlapAllow)
	if done := f.tick(); len(done) != 0 {
		t.Fatalf("%+v", done)
	}
	f.pass(time.Hour)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := f.Tick(t.Context(), f.scheduled); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := f.slurm.Calls().Submit; n != 1 {
		t.Fatalf("%d submissions", n)
	}
	// Killed between the submission and its record, and the task is another one since.
	f.pass(time.Hour)
	_, err := f.Tick(t.Context(), func(ctx context.Context, s *jobs.Schedule, key string) (string, error) {
		if _, err := f.scheduled(ctx, s, key); err != nil {
			t.Error(err)
		}
		return "", context.Canceled
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	done, err := f.Tick(t.Context(), func(context.Context, *jobs.Schedule, string) (string, error) {
		t.Error("it is submitted again")
		return "", nil
	})
	must(t, err)
	f.jobOf(done)
	if n := f.slurm.Calls().Submit; n != 2 || len(f.tick()) != 0 {
		t.Errorf("%d submissions", n)
	}
}

// TestTickOverlap: what happens where the last run goes on.
func TestTickOverlap(t *testing.T) {
	for overlap, check := range map[string]func(f *fixture, first *jobs.Record, done []Ticked){
		jobs.OverlapAllow: func(f *fixture, first *jobs.Record, done []Ticked) {
			if second := f.jobOf(done); second.Spec.ID == first.Spec.ID || f.load(first).Cancel != nil {
				f.t.Error("there is one job")
			}
		},
		jobs.OverlapForbid: func(f *fixture, first *jobs.Record, done []Ticked) {
			if len(done) != 1 || !strings.Contains(done[0].Run.Skip, "job "+jobs.Short(first.Spec.ID)+" of the last run is running") || f.slurm.Calls().Submit != 1 {
				f.t.Errorf("%+v", done)
			}
			f.exit(first, jobs.StateCompleted, 0)
			if done = f.tick(); len(done) != 0 {
				f.t.Errorf("it is made up for: %+v", done)
			}
			f.pass(time.Hour)
			f.jobOf(f.tick())
		},
		jobs.OverlapReplace: func(f *fixture, first *jobs.Record, done []Ticked) {
			if second := f.jobOf(done); f.load(second).Cancel != nil || f.load(first).Cancel == nil || f.load(first).Cancel.By != "the schedule hourly" {
				f.t.Errorf("%+v", f.load(first).Cancel)
			}
		},
	} {
		t.Run(overlap, func(t *testing.T) {
			f := newFixture(t)
			f.schedule(overlap)
			f.pass(time.Hour)
			first := f.jobOf(f.tick())
			f.claim(first)
			f.pass(time.Hour)
			f.beat(first)
			check(f, first, f.tick())
		})
	}
}

// TestTickFails: a scheduler that does not answer is asked again, and what passes meanwhile
// is no further run; what a person has to repair is told once.
func TestTickFails(t *testing.T) {
	f := newFixture(t)
	f.schedule(jobs.OverlapAllow)
	f.pass(time.Hour)
	down := &jobs.Error{Kind: jobs.KindInfra, Msg: "no answer"}
	for range 3 {
		done, err := f.Tick(t.Context(), func(context.Context, *jobs.Schedule, string) (string, error) { return "", down })
		if !errors.Is(err, down) || len(done) != 1 || done[0].Err == nil {
			t.Fatalf("%+v, %v", done, err)
		}
		f.pass(time.Hour)
	}
	if done := f.tick(); len(done) != 2 || done[0].Run.Outcome.Job == "" || done[1].Run.Skip != "the run before it was submitted only now" || f.slurm.Calls().Submit != 1 {
		t.Errorf("%+v", done)
	}
	f.pass(time.Hour)
	wrong := &jobs.Error{Kind: jobs.KindNotFound, Msg: "x.md does not exist", Hint: "write it"}
	done, err := f.Tick(t.Context(), func(context.Context, *jobs.Schedule, string) (string, error) { return "", wrong })
	if err != nil || len(done) != 1 || done[0].Run.Outcome.Error != wrong.Msg || done[0].Run.Outcome.Hint != "write it" || len(f.tick()) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	run, err := f.RunSchedule(t.Context(), "hourly", f.scheduled)
	if err != nil || run.Outcome.Job == "" || !run.Manual || len(f.tick()) != 0 {
		t.Errorf("%+v, %v", run, err)
	}
}
