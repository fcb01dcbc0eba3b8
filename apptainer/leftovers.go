package apptainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"berth/internal/disk"
	"berth/internal/run"
	"berth/jobs"
)

// Remove destroys nothing: all that Open makes for an environment lies in its
// own directory and in its keeper's scratch. Images are for all environments.
func (*Backend) Remove(context.Context, *jobs.EnvSpec, jobs.Starter) error { return nil }

// List is empty: a container is a child of its keeper and ends with it, and
// what a killed keeper has left on scratch is removed by the next one there.
func (*Backend) List(context.Context, jobs.Starter) ([]jobs.Found, error) { return nil, nil }

// Reap has nothing to remove, as [Backend.List] finds nothing.
func (*Backend) Reap(_ context.Context, _ jobs.Starter, f jobs.Found) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "nothing is known of " + f.Ref}
}

// RemoveFiles removes the directory of an environment, which containers have
// written: with --fakeroot also as other ids of the user's own, whose files only
// they, or a user namespace that has them, can remove.
func RemoveFiles(ctx context.Context, on jobs.Starter, dir string) error {
	err := disk.RemoveTree(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) || !filepath.IsAbs(dir) {
		return err
	}
	// unshare(1) of util-linux 2.38 and newer.
	_, uerr := run.Output(ctx, on, jobs.Cmd{Argv: []string{"unshare", "--map-root-user", "--map-auto", "--", "rm", "-rf", "--one-file-system", "--", dir}})
	if uerr == nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove " + dir, Err: errors.Join(err, uerr),
		Hint: "some files belong to ids of fakeroot: apptainer exec --fakeroot --bind " + filepath.Dir(dir) + ":/mnt IMAGE rm -rf /mnt/" + filepath.Base(dir)}
}
