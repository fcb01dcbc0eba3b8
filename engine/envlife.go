package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/disk"
	"berth/internal/guest/wire"
	"berth/internal/keeper"
	"berth/internal/run"
	"berth/jobs"
)

// stopWait bounds the time until an environment that was told to stop has
// stopped: its commands get TERM first, and a container program unmounts.
const stopWait = 60 * time.Second

// outputs is where the whole of long outputs is kept.
func (e *Engine) outputs() string { return filepath.Join(e.Store.Home(), "outputs") }

// Stop ends the environment's processes and keeps its files. One that does not
// run is left alone.
func (v *Environment) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopWait, fmt.Errorf("the environment %s did not stop within %v", v.Spec.Name, stopWait))
	defer cancel()
	defer v.Close()
	s, err := v.open(ctx, true)
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := v.keep(ctx, true, wire.KeepRequest{Op: wire.KeepStop}, nil, nil); err != nil {
		select {
		case <-s.Gone(): // that is the answer
		default:
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
		if err != nil && !errors.Is(err, ErrNotRunning) && !force {
			return err
		}
	}
	if err := v.Stop(ctx); err != nil && !force {
		return err
	}
	// Another client may be about to open it.
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	switch {
	case err == nil:
		defer release()
	case !force:
		return err
	}
	op, ok := b.(jobs.Opener)
	if ok {
		if err := op.Remove(ctx, &v.Spec, run.Local{}); err != nil && !force {
			return err
		}
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
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	if err != nil {
		return // another client is at it
	}
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), forgetWait)
	defer cancel()
	if op, ok := b.(jobs.Opener); ok {
		if _, far := b.(Dialer); !far && op.Remove(ctx, &v.Spec, run.Local{}) != nil {
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
	State *EnvState    // nil when it does not run
	Last  *keeper.Info // of its last keeper on this machine; nil when there was none
	Err   error        // it could not be asked
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
	_, remote := b.(Dialer)
	if !remote {
		out.Last, _ = keeper.Peek(v.dir)
	}
	if remote && !ask {
		return out
	}
	if st, err := v.State(ctx); err == nil {
		out.State = st
	} else if !errors.Is(err, ErrNotRunning) {
		out.Err = err
	}
	return out
}

// Orphan is something of an environment that nothing uses any more.
type Orphan struct {
	jobs.Found
	Why string
	Err error // it could not be removed
}

// Collect finds what environments of this state directory have left behind on
// this machine, by label, name or owner's mark, and removes it unless dry is
// set. What belongs to a recorded environment that is not running stays, and so
// does the container of one whose files outlive its keeper: these are its files.
func (e *Engine) Collect(ctx context.Context, dry bool) (found []Orphan, err error) {
	var errs []error
	for _, b := range e.Backends {
		op, ok := b.(jobs.Opener)
		if !ok {
			continue
		}
		list, err := op.List(ctx, run.Local{})
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
		// A docker that is installed without a daemon has nothing of ours.
		if err != nil && (used[b.Name()] || b.Check(ctx).Health == jobs.Healthy) {
			errs = append(errs, fmt.Errorf("what the backend %s has left behind is not known: %w", b.Name(), err))
		}
		for _, f := range list {
			if f.Home != "" && f.Home != e.Store.Home() {
				continue
			}
			o := Orphan{Found: f, Why: "no environment is recorded for it"}
			if s := known[f.ID]; s != nil {
				release := e.abandoned(s, f)
				if release == nil {
					continue
				}
				defer release()
				o.Why = "it runs, and its keeper is gone"
			}
			if !dry {
				o.Err = op.Reap(ctx, run.Local{}, f)
			}
			found = append(found, o)
		}
	}
	return found, errors.Join(errs...)
}

// abandoned tells whether something of a recorded environment runs without a
// keeper and holds none of its files; then it keeps keepers away until the
// function that it returns is called.
func (e *Engine) abandoned(s *jobs.EnvSpec, f jobs.Found) (release func()) {
	if !f.Running || f.What == "container" && s.Persistent {
		return nil
	}
	release, err := keeper.Hold(e.Store.EnvDir(s.Name), s.ID)
	if err != nil {
		return nil // it is in use, or is just going
	}
	return release
}
