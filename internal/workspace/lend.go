package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// lendDir, in the attempt's directory, has the objects of a commit that is being lent.
const lendDir = ChildPrefix + "objects"

// Lend makes a commit of the task's work tree as it is, while the task works on it, in
// the bare git directory dir, from which other jobs start; dir is made when it is
// missing, and borrows the objects of src. It returns the commit, which is the base
// where nothing has changed, and what was left out of it. The options are those of a
// checkpoint, without the file; a task that writes meanwhile is [ErrChanging].
func (g *Git) Lend(ctx context.Context, attemptDir, dir string, src Source, opts CollectOptions) (commit string, omitted []jobs.Omission, err error) {
	if err := g.lender(ctx, dir, src); err != nil {
		return "", nil, err
	}
	opts.lend, opts.Bundle = dir, lendDir
	res, err := g.Collect(ctx, attemptDir, src, opts)
	if err = errors.Join(err, disk.RemoveTree(filepath.Join(attemptDir, lendDir))); err != nil {
		if away := g.checkSource(ctx, src); away != nil && ctx.Err() == nil && !errors.Is(err, ErrChanging) {
			err = away
		}
		return "", nil, err
	}
	if !res.Changed {
		res.Commit = src.Base
	}
	return res.Commit, res.Omitted, nil
}

// setApart has git put the objects of a commit that is lent into a directory of their own, and
// leave out those that the base has and those that were lent before. It does not find what else
// the user's repository holds: that was never checked, and a commit that needs it is.
func (c *collector) setApart() error {
	dir := filepath.Join(c.attempt, lendDir)
	before := filepath.Join(dir, "before")
	if err := disk.FreshDir(dir); err != nil {
		return err
	}
	if err := os.Mkdir(before, 0o700); err != nil {
		return err
	}
	c.env = objectsIn(dir, filepath.Join(c.gitDir, baseDir), before)
	return os.Symlink(filepath.Join(c.opts.lend, "objects", "pack"), filepath.Join(before, "pack"))
}

// lend gives the objects of a commit to the directory that lends it, where git checks them as it takes them: it takes
// all of them or nothing, and keeps them. One is lent at a time. A quarantine before that would cost half as much
// again, and what is kept there goes nowhere but into work trees of tasks.
func (c *collector) lend(ctx context.Context) error {
	packs, err := filepath.Glob(filepath.Join(globLiteral(filepath.Join(c.attempt, lendDir)), "pack", "*.pack"))
	if err != nil || len(packs) == 0 { // all was lent before
		return err
	}
	pack, err := os.Open(packs[0])
	if err != nil {
		return err
	}
	defer pack.Close()
	strict, err := strictBut(c.base, c.gitDir)
	if err != nil {
		return err
	}
	err = c.g.run(ctx, call{gitDir: c.opts.lend, dir: c.gitDir, stdin: pack, args: []string{"index-pack", strict, "--keep", "--stdin"}})
	if err != nil { // git leaves what it had of a pack that it refuses
		left, _ := filepath.Glob(filepath.Join(globLiteral(c.opts.lend), "objects", "pack", "tmp_*"))
		for _, file := range left {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
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
