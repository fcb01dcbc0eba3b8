package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/run"
	"berth/jobs"
)

// placeless is a worker each of whose tasks would have a container of its own, of which none opens.
func placeless(t *testing.T) *worker {
	s := made(t, 1, 1, "true")
	w := &worker{Config: config(t, s), live: map[*keeper]bool{}, failed: make(chan error, 1), room: newRoom(&sweep.Spec{}, nil)}
	var err error
	w.me, w.dir, err = s.NewWorker()
	must(t, err)
	w.command, err = s.Command()
	must(t, err)
	w.journal, err = journal.Create(w.dir)
	must(t, err)
	w.place = &place{spec: jobs.Place{Backend: jobs.BackendDocker}, home: filepath.Join(w.dir, "none"), dir: filepath.Join(w.dir, "file"),
		own: sweep.Own{Own: command.OwnContainer}}
	must(t, os.WriteFile(w.place.dir, nil, 0o600))
	return w
}

// A task whose place could not be made has no end, and no death: it runs again. Its worker ends.
func TestNoPlace(t *testing.T) {
	w := placeless(t)
	w.Sweep.Spec.Worker = &w.place.spec
	b := &batch{round: 1, number: 1}
	b.share.hi = 1
	q, err := run.NewQuick()
	must(t, err)
	defer q.Close()
	again, err := w.run(t.Context(), q, &metrics{w: w}, &task{Task: command.Task{Number: 1}, batch: b, place: 1})
	must(t, err)
	var kinds []journal.Kind
	_, err = journal.Read(filepath.Join(w.dir, journal.ResultsFile), 0, func(r journal.Record) { kinds = append(kinds, r.Kind) })
	must(t, err)
	if again || len(kinds) != 2 || kinds[1] != journal.Tried || !b.dropped.Load() || !w.paused.Load() || len(w.failed) != 1 {
		t.Errorf("%v, given back: %v, ends: %v", kinds, b.dropped.Load(), w.paused.Load())
	}
	// One that was stopped meanwhile is told from that.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if end, err := w.place.run(ctx, run.QuickCmd{Argv: []string{"true"}}, taken{}, t.Logf); !end.Stopped || !errors.Is(err, errNoPlace) {
		t.Errorf("%+v %v", end, err)
	}
}

// What a worker has done of a batch that it gave back is known to it when it takes that again; what
// it does now is nothing of before.
func TestFormerIsOwn(t *testing.T) {
	w := placeless(t)
	for task, generation := range map[uint32]uint16{1: 1, 2: 3} {
		must(t, w.journal.Add(journal.Record{Kind: journal.End, State: journal.OK, Round: 1, Generation: generation, Task: task, Worker: w.me}))
	}
	past, err := w.former(&claims.Held{Batch: claims.Batch{Lo: 1, Hi: 2}, Generation: 3, Former: []uint32{w.me}}, 1, sweep.Numbers{{1, 2}})
	must(t, err)
	if len(past) != 1 || past[1] == nil || past[1].result == nil {
		t.Errorf("%v", past)
	}
}

// A sandbox is as large as its task asks for; one that ended under a task is counted, whoever has
// the task next.
func TestSandboxOfTask(t *testing.T) {
	p := &place{spec: jobs.Place{Backend: "modal", External: &jobs.ExternalSpec{}, Resources: jobs.Resources{CPUs: 2, Memory: jobs.GiB, Disk: jobs.GiB}}}
	if got := p.sized(command.Share{CPUs: 8}).Resources; got != (jobs.Resources{CPUs: 8, Memory: jobs.GiB, Disk: jobs.GiB}) {
		t.Errorf("%+v", got)
	}
	p.spec.Backend, p.spec.External = jobs.BackendDocker, nil
	if got := p.sized(command.Share{CPUs: 8}).Resources; got != p.spec.Resources {
		t.Errorf("%+v", got)
	}
	w := placeless(t)
	for _, r := range []journal.Record{{Kind: journal.Start}, {Kind: journal.Tried, Deaths: 1}, {Kind: journal.Start, Deaths: 1}} {
		r.Round, r.Generation, r.Task, r.Worker = 1, 1, 1, w.me
		must(t, w.journal.Add(r))
	}
	held := &claims.Held{Batch: claims.Batch{Lo: 1, Hi: 1}, Generation: 2, Former: []uint32{w.me}}
	past, err := w.former(held, 1, sweep.Numbers{{1, 1}})
	must(t, err)
	if past[1] == nil || past[1].deaths != 2 { // one of a sandbox, and one of the worker
		t.Errorf("%+v", past[1])
	}
	must(t, w.journal.Add(journal.Record{Kind: journal.Tried, Deaths: 2, Round: 1, Generation: 1, Task: 1, Worker: w.me}))
	if past, err = w.former(held, 1, sweep.Numbers{{1, 1}}); err != nil || past[1].deaths != 2 {
		t.Errorf("%+v %v", past[1], err)
	}
}

// A task that ends its own container is killed; where all of the job ends, it runs again.
func TestOwnEnd(t *testing.T) {
	said := ""
	c := run.QuickCmd{Output: func(_ int, data []byte) error {
		said += string(data)
		return nil
	}}
	if end, err := ownEnd(t.Context(), c); err != nil || end.Stopped || end.Exit.Signal != int(syscall.SIGKILL) || said == "" {
		t.Errorf("%+v %v %q", end, err, said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if end, err := ownEnd(ctx, c); err != nil || !end.Stopped {
		t.Errorf("%+v %v", end, err)
	}
}

// One that may run nothing at the time is not idle: nothing is split for it.
func TestThrottledIsBusy(t *testing.T) {
	s := made(t, 1, 1, "true")
	w := &worker{Config: config(t, s), me: 1}
	w.idle(true)
	w.allowed.Store(-1)
	w.Slots = 1
	if !w.hungry(t.Context()) || !w.isIdle {
		t.Error("it is idle no more")
	}
	w.allowed.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if idle, err := s.Idle(); w.hungry(ctx) || err != nil || len(idle) != 1 && w.isIdle {
		t.Errorf("%v, %v", idle, err)
	}
	if idle, err := s.Idle(); err != nil || len(idle) != 0 {
		t.Errorf("idle: %v, %v", idle, err)
	}
}
