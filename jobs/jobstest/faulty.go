package jobstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"berth/jobs"
)

// Faulty is a scheduler that goes wrong at random, in the ways that real ones
// do. Of the same seed and the same calls in the same order it does the same.
type Faulty struct {
	jobs.Scheduler
	// Slow is called where a call takes long; may be nil.
	Slow func()

	mu    sync.Mutex
	rand  *rand.Rand
	rate  float64
	count map[string]int
}

// NewFaulty wraps a scheduler of which this part of all calls goes wrong.
func NewFaulty(sc jobs.Scheduler, seed uint64, rate float64) *Faulty {
	return &Faulty{Scheduler: sc, rand: rand.New(rand.NewPCG(seed, 1)), rate: rate, count: map[string]int{}}
}

// Faults returns how often what went wrong.
func (f *Faulty) Faults() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]int{}
	for name, n := range f.count {
		all[name] = n
	}
	return all
}

// Heal lets nothing go wrong any more.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate = 0
}

// fault draws one of the names, or "".
func (f *Faulty) fault(names ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rand.Float64() >= f.rate {
		return ""
	}
	name := names[f.rand.IntN(len(names))]
	f.count[name]++
	return name
}

// Submit may refuse, fail before anything was submitted, lose the request, lose
// the answer of one that was carried out, or answer nonsense.
func (f *Faulty) Submit(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	unclear := &jobs.Error{Kind: jobs.KindUnclear, Msg: "Socket timed out on send/recv operation"}
	switch f.fault("submit: refused", "submit: busy", "submit: no connection",
		"submit: request lost", "submit: answer lost", "submit: nonsense", "submit: slow") {
	case "submit: refused":
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindRejected, Msg: "Job violates accounting/QOS policy"}
	case "submit: busy":
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindAgain, Msg: "Slurm temporarily unable to accept job, sleeping and retrying"}
	case "submit: no connection":
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "Connection refused"}
	case "submit: request lost":
		return jobs.Handle{}, unclear
	case "submit: answer lost":
		_, _ = f.Scheduler.Submit(ctx, l, script)
		return jobs.Handle{}, unclear
	case "submit: nonsense":
		_, _ = f.Scheduler.Submit(ctx, l, script)
		return jobs.Handle{}, errors.New("have a nice day")
	case "submit: slow":
		f.slow()
	}
	return f.Scheduler.Submit(ctx, l, script)
}

func (f *Faulty) slow() {
	if f.Slow != nil {
		f.Slow()
	}
}

// Find may fail.
func (f *Faulty) Find(ctx context.Context, names []string) (map[string]jobs.Handle, error) {
	switch f.fault("find: failed", "find: slow") {
	case "find: failed":
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "Unable to contact slurm controller"}
	case "find: slow":
		f.slow()
	}
	return f.Scheduler.Find(ctx, names)
}

// Status may fail, answer for only some of the jobs, or return unknown states.
func (f *Faulty) Status(ctx context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	got, err := f.Scheduler.Status(ctx, handles)
	failed := &jobs.Error{Kind: jobs.KindInfra, Msg: "Unable to contact slurm controller"}
	switch f.fault("status: failed", "status: a part", "status: nonsense", "status: slow") {
	case "status: failed":
		return nil, failed
	case "status: a part":
		for i, h := range handles {
			if i%2 == 0 {
				delete(got, h.Name)
			}
		}
		return got, failed
	case "status: nonsense":
		for name := range got {
			got[name] = jobs.Status{NativeState: "GREMLINS"}
		}
	case "status: slow":
		f.slow()
	}
	return got, err
}

// Cancel may fail, before or after it was carried out.
func (f *Faulty) Cancel(ctx context.Context, handles []jobs.Handle) error {
	failed := &jobs.Error{Kind: jobs.KindInfra, Msg: "Unable to contact slurm controller"}
	switch f.fault("cancel: failed", "cancel: answer lost") {
	case "cancel: failed":
		return failed
	case "cancel: answer lost":
		_ = f.Scheduler.Cancel(ctx, handles)
		return failed
	}
	return f.Scheduler.Cancel(ctx, handles)
}
