package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// Lend makes a commit of the task's work tree as it is, while the task works on it, in
// the bare git directory dir, from which other jobs start; dir is made when it is
// missing, and borrows the objects of src. It returns the commit, which is the base
// where nothing has changed, and what was left out of it. The options are those of a
// checkpoint; a task that writes meanwhile is [ErrChanging].
func (g *Git) Lend(ctx context.Context, attemptDir, dir string, src Source, opts CollectOptions) (commit string, omitted []jobs.Omission, err error) {
	res, err := g.Collect(ctx, attemptDir, src, opts)
	if err != nil {
		return "", nil, err
	}
	bundle := filepath.Join(attemptDir, opts.Bundle)
	defer func() { _ = os.Remove(bundle) }()
	if err := g.lender(ctx, dir, src); err != nil {
		return "", nil, err
	}
	if !res.Changed {
		return src.Base, res.Omitted, nil
	}
	if err := g.thin(ctx, filepath.Join(attemptDir, GitDir), dir, src.Base, opts.Branch, bundle); err != nil {
		return "", nil, err
	}
	if err := g.run(ctx, call{gitDir: dir, args: []string{"bundle", "unbundle", bundle}, stdout: &strings.Builder{}}); err != nil {
		return "", nil, err
	}
	return res.Commit, res.Omitted, g.run(ctx, call{gitDir: dir, args: []string{"update-ref", "--no-deref", basePrefix + res.Commit, res.Commit}})
}

// lender makes the bare git directory dir when it is missing, in one step: without its
// alternates it would have no base. It borrows the objects of src. Several may do so at once.
func (g *Git) lender(ctx context.Context, dir string, src Source) (err error) {
	there := func() bool {
		_, err := os.Stat(filepath.Join(dir, "HEAD"))
		return err == nil
	}
	if there() {
		return nil
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+partSuffix+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, disk.RemoveTree(made))
		}
	}()
	if err := g.initBare(ctx, made, src, src.Repo); err != nil {
		return err
	}
	if err = os.Rename(made, dir); err != nil && there() { // another process was faster
		err = disk.RemoveTree(made)
	}
	return err
}

// thin takes out of a bundle, which was judged whole, what is in the newest commit that
// dir was given, where the git directory of this attempt has that, too: what has changed
// since the base is lent once, and not with each commit after it.
func (g *Git) thin(ctx context.Context, gitDir, dir, base, branch, bundle string) error {
	tips, err := g.Tips(ctx, dir)
	if err != nil || len(tips) == 0 {
		return err
	}
	have := tips[0] + "^{tree}" // of a commit that is no ancestor git leaves nothing out
	if g.run(ctx, call{gitDir: gitDir, args: []string{"cat-file", "-e", have}}) != nil {
		return nil // it is another attempt's
	}
	return writeWhole(bundle, func(f *os.File) error {
		return g.run(ctx, call{gitDir: gitDir, stdout: f, args: []string{"bundle", "create", "-", "refs/heads/" + branch, "^" + base, "^" + have}})
	})
}
