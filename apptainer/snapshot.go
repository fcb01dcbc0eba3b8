package apptainer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

var _ jobs.Snapshotter = (*Backend)(nil)

// layers are the overlays in an environment's directory: its own, which must not
// be in use.
func layers(dir, home string, at jobs.SnapshotPlace) *overlay.Set {
	return &overlay.Set{Dir: dir, Templates: store.TemplatesIn(home), On: at.On, Say: func(string, ...any) {}}
}

// alone calls do on the layer of an environment that is not open.
func alone(s *jobs.EnvSpec, what string, at jobs.SnapshotPlace, do func(*overlay.Set) error) error {
	if !s.Persistent {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the environment " + s.Name + " throws its files away, and has no snapshots",
			Hint: "make one without --discard"}
	}
	release, err := at.Hold()
	if err != nil {
		return err
	}
	defer release()
	if err := do(layers(at.Dir, s.Home, at)); err != nil {
		if errors.Is(err, context.Canceled) {
			return err // nothing went wrong, and there is no hint
		}
		hint := "see the files of the environment: berth env show " + s.Name
		switch jobs.KindOf(err) {
		case jobs.KindNotFound:
			hint = "berth env snapshots " + s.Name + "; an environment that was never opened has no files"
		case jobs.KindUsage:
			hint = "choose another name; or remove it: berth env snapshots --rm NAME " + s.Name
		case jobs.KindAgain:
			hint = "berth env stop " + s.Name
		}
		return &jobs.Error{Kind: jobs.KindOf(err), Msg: what + " the environment " + s.Name,
			Err: errors.New(strings.ReplaceAll(err.Error(), "overlay "+dirOverlay, "its layer")), Hint: hint}
	}
	return nil
}

// Snapshot copies the layer beside itself.
func (*Backend) Snapshot(ctx context.Context, s *jobs.EnvSpec, name string, at jobs.SnapshotPlace) (*jobs.Snapshot, error) {
	var out *jobs.Snapshot
	err := alone(s, "snapshot", at, func(set *overlay.Set) error {
		made, err := set.Snapshot(ctx, dirOverlay, name, false)
		if err == nil {
			out = snapshotOf(s, *made)
		}
		return err
	})
	return out, err
}

func snapshotOf(s *jobs.EnvSpec, made overlay.Snapshot) *jobs.Snapshot {
	return &jobs.Snapshot{Name: made.Label, Backend: s.Backend, Environment: s.Name, EnvID: s.ID, Created: made.Made}
}

// Restore puts a snapshot's layer in the place of the environment's.
func (*Backend) Restore(ctx context.Context, s *jobs.EnvSpec, name string, at jobs.SnapshotPlace) error {
	return alone(s, "restore", at, func(set *overlay.Set) error { return set.Restore(ctx, dirOverlay, name, false) })
}

// Snapshots are those of one environment: they are in its directory.
func (*Backend) Snapshots(home string, s *jobs.EnvSpec) ([]jobs.Snapshot, error) {
	if s == nil || !s.Persistent {
		return nil, nil
	}
	dir := filepath.Join(home, "envs", s.Name, dirOverlay)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it was never opened
	}
	i := overlay.Look(s.Name, dir)
	var out []jobs.Snapshot
	for _, made := range i.Snapshots {
		out = append(out, *snapshotOf(s, made))
	}
	return out, i.Err
}

// RemoveSnapshot removes a copy.
func (*Backend) RemoveSnapshot(ctx context.Context, home string, s jobs.Snapshot, on jobs.Starter) error {
	return (&overlay.Set{Dir: filepath.Join(home, "envs", s.Environment), On: on}).RemoveSnapshot(ctx, dirOverlay, s.Name)
}

// Outlive is false: they are in the environment's directory.
func (*Backend) Outlive() bool { return false }
