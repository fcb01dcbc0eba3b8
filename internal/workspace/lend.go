package workspace

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// Lend makes a commit of the task's work tree as it is, while the task works on it, in
// the bare git directory dir, from which other jobs start; dir is made when it is
// missing, and borrows the objects of src. It returns the commit, which is the base
// where nothing has changed, and what was left out of it. The options are those of a
// checkpoint; a task that writes meanwhile is [ErrChanging].
func (g *Git) Lend(ctx context.Context, attemptDir, dir string, src Source, opts CollectOptions) (commit string, omitted []jobs.Omission, err error) {
	if err := g.lender(ctx, dir, src); err != nil {
		return "", nil, err
	}
	opts.lend = dir
	res, err := g.Collect(ctx, attemptDir, src, opts)
	switch {
	case err != nil:
		return "", nil, err
	case !res.Changed:
		return src.Base, res.Omitted, nil
	}
	return res.Commit, res.Omitted, g.run(ctx, call{gitDir: dir, args: []string{"update-ref", "--no-deref", basePrefix + res.Commit, res.Commit}})
}

// lend copies the commit of a result, which git checks as it takes it: it takes all of it
// or nothing. One is lent at a time. A quarantine before that would cost half as much again, and what is kept here
// goes nowhere but into work trees of tasks.
func (c *collector) lend(ctx context.Context, res Result) (err error) {
	pack, err := os.Create(c.bundleFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pack.Close(), os.Remove(pack.Name())) }()
	revs := []string{res.Commit, "^" + c.src.Base}
	if c.opts.After != "" && c.opts.After != c.src.Base {
		revs = append(revs, "^"+c.opts.After+"^{tree}") // of a commit that is no ancestor git leaves nothing out
	}
	if err := c.g.packed(ctx, c.gitDir, pack, revs...); err != nil {
		return err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	strict, err := strictBut(c.base, c.gitDir)
	if err != nil {
		return err
	}
	err = c.g.run(ctx, call{gitDir: c.opts.lend, dir: c.gitDir, stdin: pack, args: []string{"index-pack", strict, "--fix-thin", "--stdin"}})
	if err != nil { // git leaves what it had of a pack that it refuses
		left, _ := filepath.Glob(filepath.Join(c.opts.lend, "objects", "pack", "tmp_*"))
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
