package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// snapshotter is the backend of an environment, when it has snapshots.
func (e *Engine) snapshotter(s *jobs.EnvSpec) (jobs.Snapshotter, error) {
	b, err := e.backend(s.Backend)
	if err != nil {
		return nil, err
	}
	if s.Login != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the files of the environment " + s.Name + " are behind " + s.Login.Host + ", where berth makes no snapshots",
			Hint: "copy what is to be kept: berth cp " + s.Name + ":PATH ."}
	}
	if k, ok := b.(jobs.Snapshotter); ok {
		return k, nil
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + s.Backend + " of the environment " + s.Name + " has no snapshots",
		Hint: "copy what is to be kept: berth cp --env " + s.Name + " :PATH ."}
}

func (v *Environment) snapshotPlace() jobs.SnapshotPlace {
	say := v.Progress
	if say == nil {
		say = func(string) {}
	}
	return jobs.SnapshotPlace{
		Dir: v.dir, On: run.Local{}, Progress: say,
		Hold: func() (func(), error) { return keeper.Hold(v.dir, v.Spec.ID) },
		Open: func(ctx context.Context) error {
			if v.oneShot() {
				return v.openOneShot(ctx)
			}
			_, err := v.open(ctx, false)
			return err
		},
	}
}

// Snapshot keeps the files of the environment under a name. Commands that write
// meanwhile may be in it or not.
func (v *Environment) Snapshot(ctx context.Context, name string) (*jobs.Snapshot, error) {
	if err := jobs.CheckSnapshotName(name); err != nil {
		return nil, err
	}
	b, err := v.e.snapshotter(&v.Spec)
	if err != nil {
		return nil, err
	}
	return b.Snapshot(ctx, &v.Spec, name, v.snapshotPlace())
}

// Restore makes the environment's files those of a snapshot. It is stopped for
// that; one that is in use is refused.
func (v *Environment) Restore(ctx context.Context, name string) error {
	if err := jobs.CheckSnapshotName(name); err != nil {
		return err
	}
	b, err := v.e.snapshotter(&v.Spec)
	if err != nil {
		return err
	}
	list, err := v.e.Snapshots(&v.Spec)
	if b.Outlive() && err == nil {
		list, err = v.e.Snapshots(nil)
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(s jobs.Snapshot) bool { return s.Name == name && s.Backend == v.Spec.Backend }) {
		return noSnapshot(name)
	}
	st, err := v.State(ctx)
	switch {
	case err == nil && st.Running+st.BG > 0:
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment " + v.Spec.Name + " is in use: " + inUse(st),
			Hint: "end what runs there first: berth env stop " + v.Spec.Name}
	case err != nil && !errors.Is(err, ErrNotRunning) && !errors.Is(err, session.ErrGuestGone):
		return err
	}
	if err := v.Stop(ctx); err != nil {
		return err
	}
	return b.Restore(ctx, &v.Spec, name, v.snapshotPlace())
}

func noSnapshot(name string) error {
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no snapshot " + name, Hint: "berth env snapshots"}
}

// Snapshots returns those of one environment, or all; what could not be read is
// in the error.
func (e *Engine) Snapshots(s *jobs.EnvSpec) (out []jobs.Snapshot, err error) {
	home := e.Store.Home()
	if s != nil {
		b, err := e.snapshotter(s)
		if err != nil {
			return nil, nil // it can have none
		}
		return b.Snapshots(home, s)
	}
	add := func(list []jobs.Snapshot, lerr error) { out, err = append(out, list...), errors.Join(err, lerr) }
	for _, b := range e.openers() {
		if k, ok := b.(jobs.Snapshotter); ok && k.Outlive() {
			add(k.Snapshots(home, nil))
		}
	}
	specs, lerr := e.Store.ListEnvs()
	err = errors.Join(err, lerr)
	for _, s := range specs {
		if k, kerr := e.snapshotter(s); kerr == nil && !k.Outlive() {
			add(k.Snapshots(home, s))
		}
	}
	slices.SortStableFunc(out, func(a, b jobs.Snapshot) int { return a.Created.Compare(b.Created) })
	return out, err
}

// RemoveSnapshot destroys a snapshot.
func (e *Engine) RemoveSnapshot(ctx context.Context, s jobs.Snapshot) error {
	b, err := e.backend(s.Backend)
	if err != nil {
		return err
	}
	k, ok := b.(jobs.Snapshotter)
	if !ok {
		return noSnapshot(s.Name)
	}
	return k.RemoveSnapshot(ctx, e.Store.Home(), s, run.Local{})
}

// RemoveAll is [Environment.Remove], and with snapshots destroys those, too. Else
// they stay, and their names are returned; where they cannot, it is an error.
func (v *Environment) RemoveAll(ctx context.Context, force, snapshots bool) (kept []string, err error) {
	outlive := false
	if b, err := v.e.snapshotter(&v.Spec); err == nil {
		outlive = b.Outlive()
	}
	// What cannot be read is no reason to keep the environment.
	list, err := v.e.Snapshots(&v.Spec)
	if err != nil && snapshots && outlive && !force {
		return nil, err
	}
	for _, s := range list {
		kept = append(kept, s.Name)
	}
	if len(kept) > 0 && !outlive && !snapshots {
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  "the environment " + v.Spec.Name + " has snapshots, which are among its files: " + strings.Join(kept, ", "),
			Hint: "berth env rm --snapshots " + v.Spec.Name + " removes them, too"}
	}
	if err := v.Remove(ctx, force); err != nil || !snapshots {
		return kept, err
	}
	for _, s := range list {
		if outlive {
			err = errors.Join(err, v.e.RemoveSnapshot(ctx, s))
		}
	}
	return nil, err
}
