package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/allocations"
	"berth/internal/node/keeper"
	sweeps "berth/internal/sweep"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// stopWait bounds the time until an environment that was told to stop has
// stopped: its commands get TERM first, and a container program unmounts.
const stopWait = 3 * time.Minute

// sandboxWait is the same where a service ends it, which may have to copy its
// files.
const sandboxWait = 12 * time.Minute

// outputs is where the whole of long outputs is kept.
func (e *Engine) outputs() string { return filepath.Join(e.Store.Home(), "outputs") }

// Stop ends the environment's processes and keeps its files. One that does not
// run is left alone.
func (v *Environment) Stop(ctx context.Context) error {
	if err := v.stopKept(ctx); err != nil {
		return err
	}
	return v.endSandbox(ctx)
}

// stopKept is Stop for what has a keeper.
func (v *Environment) stopKept(ctx context.Context) error {
	if v.oneShot() {
		return nil
	}
	wait := stopWait
	if v.Spec.External != nil {
		wait = sandboxWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the environment %s did not stop within %v", v.Spec.Name, wait))
	defer cancel()
	defer v.Close()
	err := v.stop(ctx)
	if v.Spec.Scheduler != "" {
		if serr := v.stopHeld(ctx, err); serr != nil || err == nil {
			return serr
		}
		return v.recountHeld(ctx)
	}
	if b, berr := v.e.backend(v.Spec.Backend); berr == nil {
		if _, far := b.(dialer); far {
			v.Close()
			_ = v.heldBy().End(ctx) // without this, it ends when it sees that the keeper has
		}
	}
	if errors.Is(err, ErrNotRunning) {
		return v.recount()
	}
	return err
}

// recount begins to count requests to models again, where no keeper does that.
func (v *Environment) recount() error {
	if len(v.Spec.Credentials) == 0 {
		return nil
	}
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	if err != nil {
		return err // it has just been started again
	}
	defer release()
	return keeper.ForgetUsage(v.dir)
}

// recountHeld is recount where the allocation has ended, and its keeper with it: the lease
// of one that was killed on its node may still be there.
func (v *Environment) recountHeld(ctx context.Context) error {
	if len(v.Spec.Credentials) == 0 {
		return nil
	}
	p, err := v.place()
	if err != nil {
		return err
	}
	if p.Far == nil {
		return keeper.ForgetUsage(v.dir)
	}
	g, err := p.Ground(ctx)
	if err != nil {
		return err
	}
	return p.Far.RemoveFile(ctx, g.Dir, v.Spec.ID, store.FileUsage)
}

// stop tells the keeper to end, and waits for that. Without one the error is
// [ErrNotRunning].
func (v *Environment) stop(ctx context.Context) error {
	s, err := v.open(ctx, true)
	if err != nil {
		return err
	}
	if _, err := v.keep(ctx, true, wire.KeepRequest{Op: wire.KeepStop}, nil, nil); err != nil {
		// That it is gone is the answer: what waits for one is told before
		// the session says so.
		if !errors.Is(err, session.ErrGuestGone) {
			return err
		}
	}
	// The keeper closes its streams last, when nothing of it is left.
	select {
	case <-s.Gone():
		return nil
	case <-ctx.Done():
		return &jobs.Error{Kind: jobs.KindInfra, Msg: context.Cause(ctx).Error(), Hint: "berth env show " + v.Spec.Name}
	}
}

// Remove stops the environment and destroys it with its files. Unless it is
// forced, one that is in use is refused.
func (v *Environment) Remove(ctx context.Context, force bool) error {
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		return err
	}
	if !force {
		st, err := v.State(ctx)
		if err == nil && (st.Running > 0 || st.BG > 0) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the environment " + v.Spec.Name + " is in use: " + inUse(st),
				Hint: "berth env rm --force " + v.Spec.Name + " ends them"}
		}
		// One that ends just now is not in use.
		if err != nil && !errors.Is(err, ErrNotRunning) && !errors.Is(err, session.ErrGuestGone) {
			return err
		}
	}
	if err := v.stopKept(ctx); err != nil {
		if !force {
			return err
		}
		if left := allocations.Left(v.dir); v.Spec.Scheduler != "" && left != "" && v.Progress != nil {
			why, _, _ := strings.Cut(err.Error(), "\n")
			v.Progress(fmt.Sprintf("the %s was not given back, and ends by itself when it runs and finds the environment gone: %s", left, why))
		}
	}
	// Another client may be about to open it.
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	switch {
	case err == nil:
		defer release()
	case !force:
		return err
	}
	if v.Spec.Scheduler != "" {
		if err := v.removeHeld(ctx); err != nil && !force {
			return err
		}
	} else if op, ok := b.(jobs.Opener); ok {
		switch err := op.Remove(ctx, &v.Spec, run.Local{}); {
		case err == nil:
		case !force:
			return err
		case v.Spec.External != nil && v.Progress != nil:
			v.Progress("its sandbox may be left, until berth env gc finds it or its time is up: " + err.Error())
		}
	}
	if err == nil { // it is held
		keeper.RemoveSocket(v.dir)
	}
	return v.e.Store.RemoveEnv(&v.Spec, disk.RemoveTree)
}

// forget takes the record of an environment away that this client has made and
// that could not be opened: with other values, the next command is to have a
// new try under the same name. One that has been open has files, and stays.
func (v *Environment) forget() {
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		return
	}
	if i, err := keeper.Peek(v.dir); err != nil || i != nil && !i.Opened.IsZero() {
		return
	}
	if v.Spec.Scheduler != "" && allocations.Wanted(v.dir) {
		return // it waits in the queue
	}
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	if err != nil {
		return // another client is at it
	}
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), forgetWait)
	defer cancel()
	if op, ok := b.(jobs.Opener); ok {
		if _, far := b.(dialer); !far && op.Remove(ctx, &v.Spec, run.Local{}) != nil {
			return
		}
	}
	_ = v.e.Store.RemoveEnv(&v.Spec, disk.RemoveTree)
}

// forgetWait bounds that: an error waits to be told.
const forgetWait = 10 * time.Second

// inUse says what runs in an environment.
func inUse(st *EnvState) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what [2]string
	}{{st.Running, [2]string{"command", "commands"}}, {st.BG, [2]string{"background process", "background processes"}}} {
		switch c.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+c.what[0])
		default:
			parts = append(parts, fmt.Sprint(c.n, " ", c.what[1]))
		}
	}
	return strings.Join(parts, ", ")
}

// Shown is an environment and what is known of it without starting it.
type Shown struct {
	Spec  jobs.EnvSpec
	State *EnvState // nil when it does not run
	Last  *KeeperEnd
	// Allocation is that of a held environment; nil when it has none.
	Allocation *jobs.Allocation
	// Usage is what its commands have asked models for since it was stopped last; nil is
	// nothing.
	Usage  *jobs.Usage
	Err    error // it could not be asked
	Silent bool  // its machine did not answer in time; Err says so, too
}

// KeeperEnd is how the last keeper of an environment on this machine ended; nil is that
// there was none.
type KeeperEnd struct {
	Why       string
	Destroyed *jobs.Destroyed // what was found of its files, where they end with it; nil is that it was not looked for
}

func lastKeeper(dir string) *KeeperEnd {
	if i, _ := keeper.Peek(dir); i != nil {
		return &KeeperEnd{i.Why, i.Destroyed}
	}
	return nil
}

// Show asks a running environment for its state; it starts nothing. Of one on
// another machine, only its record is shown unless ask is set.
func (v *Environment) Show(ctx context.Context, ask bool) Shown {
	out := Shown{Spec: v.Spec}
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		out.Err = err
		return out
	}
	_, remote := b.(dialer)
	if v.Spec.Scheduler != "" {
		remote = true
		if v.Spec.Login != nil && !ask {
			return out
		}
		if p, err := v.place(); err != nil {
			out.Err = err
		} else if out.Allocation, out.Err = p.State(ctx); out.Allocation == nil || out.Err != nil {
			ask = false
		}
		out.Last = lastKeeper(v.dir)
	} else if !remote {
		out.Last = lastKeeper(v.dir)
	}
	err = ErrNotRunning
	if !remote || ask {
		if out.State, err = v.State(ctx); err == nil {
			out.Usage = out.State.Usage
		}
	}
	recorded := len(v.Spec.Credentials) > 0 && (!remote || v.Spec.Scheduler != "" && v.Spec.Login == nil)
	switch {
	case err != nil && !errors.Is(err, ErrNotRunning):
		out.Err = err
	case err != nil && recorded && out.Err == nil:
		out.Usage, out.Err = keeper.Usage(v.dir)
	}
	return out
}

// Orphan is something of an environment that nothing uses any more.
type Orphan struct {
	jobs.Found
	Why string
	// Stopped says that it was ended, or is to be: its files belong to a recorded
	// environment, and stay.
	Stopped bool
	Err     error // it could not be removed
}

// Collect finds what environments of this state directory have left behind on
// this machine, and at services, by label, name or owner's mark, and removes it unless dry is
// set. What belongs to a recorded environment that is not running stays, and so
// does the container of one whose files outlive its keeper: these are its files.
func (e *Engine) Collect(ctx context.Context, dry bool) (found []Orphan, err error) {
	var errs []error
	if found, err = e.collectFates(ctx, dry); err != nil {
		return found, err
	}
	byJobs, err := e.leftByJobs()
	if err != nil {
		errs = append(errs, err)
	}
	boxes, err := e.sweepBoxes()
	if err != nil {
		return found, errors.Join(append(errs, err)...)
	}
	for _, x := range boxes {
		p := e.program(x.spec.External, x.spec.Backend)
		if p != nil && p.LeftOf(x.dir, e.Now()) && !slices.Contains(byJobs, x.spec.Backend) {
			byJobs = append(byJobs, x.spec.Backend)
		}
	}
	for _, b := range e.openers(byJobs...) {
		list, err := b.List(ctx, run.Local{})
		// Read before the environments: what a job keeps is recorded as one before the job has ended.
		over := make([]string, len(list))
		for i, f := range list {
			if f.Job != "" && (f.Home == "" || f.Home == e.Store.Home()) {
				var oerr error
				over[i], oerr = e.jobOver(f.Job, f.ID)
				errs = append(errs, oerr)
			}
		}
		// Read after that: what is found of an environment that was made in
		// between is no orphan.
		specs, lerr := e.Store.ListEnvs()
		if lerr != nil {
			return found, errors.Join(append(errs, lerr)...) // an unreadable record must not make its things orphans
		}
		known, used := map[string]*jobs.EnvSpec{}, map[string]bool{}
		for _, s := range specs {
			known[s.ID], used[s.Backend] = s, true
		}
		for _, name := range byJobs {
			used[name] = true
		}
		if boxes, lerr = e.sweepBoxes(); lerr != nil {
			return found, errors.Join(append(errs, lerr)...)
		}
		// A docker that is installed without a daemon has nothing of ours.
		if err != nil && (used[b.Name()] || b.Check(ctx).Health == jobs.Healthy) {
			errs = append(errs, fmt.Errorf("what the backend %s has left behind is not known: %w", b.Name(), err))
		}
		for i, f := range list {
			if f.Home != "" && f.Home != e.Store.Home() {
				continue
			}
			o := Orphan{Found: f, Why: "no environment is recorded for it"}
			if f.What == jobs.WhatSnapshot {
				o.Why = "there is no whole record of it"
			}
			if f.Job != "" {
				if o.Why = over[i]; o.Why == "" {
					continue
				}
			}
			box, ofSweep := boxes[f.ID]
			if ofSweep && f.What != jobs.WhatSnapshot {
				if keeper.Alive(box.dir) {
					continue
				}
				o.Why = "the worker of its sweep is gone"
			}
			switch s := known[f.ID]; {
			case s == nil || f.What == jobs.WhatSnapshot:
			case f.What == jobs.WhatImage:
				continue // it begins with it
			case f.Job != "":
				o.Why = "it was kept as environment " + s.Name
			default:
				release := e.abandoned(s, f)
				if release == nil {
					continue
				}
				defer release()
				o.Why, o.Stopped = "it runs, and its keeper is gone", s.External != nil && s.Persistent
			}
			p, is := b.(Program)
			switch {
			case dry:
			case is && o.Stopped:
				o.Err = p.End(ctx, known[f.ID])
			default:
				o.Err = b.Reap(ctx, run.Local{}, f)
			}
			if ofSweep && !dry && o.Err == nil {
				box.forget(ctx)
			}
			found = append(found, o)
		}
	}
	return found, errors.Join(errs...)
}

// sweepBox is a container of a sweep's worker, or of one of its tasks.
type sweepBox struct {
	dir  string
	spec *jobs.EnvSpec
}

// forget removes what a keeper that was killed has left of it here, but for what its tasks have
// asked models for.
func (b sweepBox) forget(ctx context.Context) {
	if last, err := keeper.Peek(b.dir); err == nil && last != nil && last.Scratch != "" {
		sweepKilled(ctx, last)
	}
	keeper.RemoveSocket(b.dir)
	_ = sweeps.EndBox(b.dir) // what is left of it here goes with the sweep's remains
}

// sweepBoxes are those that are recorded, by their ids.
func (e *Engine) sweepBoxes() (map[string]sweepBox, error) {
	all := map[string]sweepBox{}
	for _, dir := range sweeps.Boxes(filepath.Join(e.Store.Home(), "sweeps")) {
		s, err := store.LoadEnv(dir)
		switch {
		case err == nil:
			all[s.ID] = sweepBox{dir, s}
		case jobs.KindOf(err) != jobs.KindNotFound: // which goes or comes just now
			return nil, err
		}
	}
	return all, nil
}

// abandoned tells whether something of a recorded environment runs without a
// keeper and holds none of its files, or can be ended without them; then it keeps
// keepers away until the function that it returns is called.
func (e *Engine) abandoned(s *jobs.EnvSpec, f jobs.Found) (release func()) {
	switch {
	case !f.Running:
		return nil
	case s.External != nil && s.External.OneShot:
		return nil // it has none
	case s.External == nil && f.What != "directory" && s.Persistent:
		return nil
	}
	release, err := keeper.Hold(e.Store.EnvDir(s.Name), s.ID)
	if err != nil {
		return nil // it is in use, or is just going
	}
	return release
}
