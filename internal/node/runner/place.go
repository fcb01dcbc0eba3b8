package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/node/supervise"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// place is what the container needs on this node.
type place struct {
	work    string // the work tree
	scratch *container.Scratch
	layer   *overlay.Layer
	opening *jobs.Opening
}

// close gives it back.
func (p *place) close() error {
	if p == nil {
		return nil
	}
	var err error
	if p.layer != nil {
		if err = p.layer.Close(); err != nil {
			err = fmt.Errorf("the overlay could not be given back: %w", err)
		}
	}
	if p.opening != nil && p.opening.Close != nil {
		err = errors.Join(err, p.opening.Close())
	}
	return err
}

// work is where the task's work tree stands: on the node's own disk, unless other
// nodes must see it.
func (r *attempt) work() string {
	if r.spec.SharesWork() {
		return r.keptWork()
	}
	return filepath.Join(r.scratch.Dir, workspace.WorkDir)
}

// keptWork is where it is kept beyond the attempt.
func (r *attempt) keptWork() string { return filepath.Join(r.dir, workspace.WorkDir) }

// prepare makes the place. What it made is undone by cleanup, whatever happens
// in between.
func (r *attempt) prepare(ctx context.Context) (*place, error) {
	tail := r.info.Name[strings.LastIndexByte(r.info.Name, '-')+1:]
	if r.rank != nil {
		tail += "-" + r.rank.id // several may be on one node
	}
	var err error
	r.scratch, r.node, err = supervise.Disk{Who: "runner", Tail: tail, For: r.dir, Profile: r.spec.Profile.Scratch, Log: r.log, Note: r.note}.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{scratch: r.scratch, work: r.work()}
	if p.opening, err = r.openPlace(ctx, p); err != nil {
		r.layer.Store(nil)
		return nil, errors.Join(err, p.close())
	}
	r.opening = p.opening
	if err := r.openNetwork(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if f := r.opening.Far; f != nil {
		r.far = &far{Far: f}
	}
	r.askVersions()
	return p, nil
}

// watchMemory is the limit where no cgroup holds it: it looks once a second
// and ends the tree when its resident memory is over. A process that grows
// faster than that can pass it, so it is noted as advisory.
func (r *attempt) watchMemory(ctx context.Context) {
	asked := r.spec.Resources.Memory
	if asked == 0 || r.opening.HoldsLimits || r.far != nil { // it is held, or was refused; what runs far away is not seen
		return
	}
	if r.held() {
		return
	}
	r.note(fmt.Sprintf("memory %s is watched by the runner, advisory: no cgroup of this job holds it", asked))
	go container.WatchMemory(ctx, asked, func(used int64) bool {
		r.stop.set(why{state: jobs.StateOutOfMemory,
			reason: fmt.Sprintf("it used %d MiB of memory, more than the %s it asked for", used>>20, asked),
			hint:   "raise [resources] memory"})
		return false
	})
}

// held tells whether a cgroup holds the memory that the task asked for.
func (r *attempt) held() bool {
	asked, got := r.spec.Resources.Memory, r.cgroup.Limit()
	return got != 0 && got <= asked+asked/10
}

func (r *attempt) setSession(s *session.Session) {
	r.sessionMu.Lock()
	defer r.sessionMu.Unlock()
	r.session = s
}

// ping tells the guest that its owner stands, and ends the attempt when the
// guest does not answer any more: a task can stop its guest, and would hold
// the job until its time limit.
func (r *attempt) ping() {
	r.sessionMu.Lock()
	s, rs := r.session, r.ranks
	r.sessionMu.Unlock()
	switch {
	case rs != nil:
		rs.ping()
		return
	case s == nil:
		return
	case s.Unanswered() > r.times.Unanswered:
		r.stop.set(why{state: jobs.StateError, reason: "the guest in the container does not answer",
			hint: "did the task stop it? see " + filepath.Join(r.dir, store.FileRuntime)})
	}
	if err := s.Ping(); err != nil { // it has left, of which who waits for its command hears
		r.log.Warn("the guest could not be pinged", "err", err)
	}
}
