package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// RemoveFiles removes what containers have written: where the user is root inside also as
// other ids of the user's own, whose files only they, or a user namespace that
// has them, can remove.
func RemoveFiles(ctx context.Context, on jobs.Starter, dir string) error {
	err := disk.RemoveTree(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) || !filepath.IsAbs(dir) {
		return err
	}
	_, uerr := Output(ctx, on, jobs.Cmd{Argv: []string{"rm", "-rf", "--one-file-system", "--", dir}, OwnFiles: true})
	if uerr == nil {
		return nil
	}
	if _, _, why := OwnFiles(ctx); why != "" {
		uerr = errors.New(why)
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove " + dir, Err: errors.Join(err, uerr),
		Hint: "some files belong to ids of fakeroot: berth exec --env clean --fakeroot --bind " +
			filepath.Dir(dir) + ":/mnt:rw -- rm -rf /mnt/" + filepath.Base(dir)}
}
