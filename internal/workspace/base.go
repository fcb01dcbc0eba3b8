package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// baseDir, in berth's own git directory, is an object directory with what the
// result needs of its base: the commit, its tree and the files, without the
// history. So the result can be made when the user's repository is away.
const baseDir = "base"

// keepBase fills it. Deltas and compressed data are taken over as they are, so
// that this costs about as much as reading the objects.
func (g *Git) keepBase(ctx context.Context, gitDir, base string) error {
	pack := filepath.Join(gitDir, baseDir, "pack")
	if err := os.MkdirAll(pack, 0o700); err != nil {
		return err
	}
	return g.run(ctx, call{gitDir: gitDir, stdin: strings.NewReader("--shallow " + base + "\n" + base + "\n"),
		args: []string{"-c", "core.commitGraph=false", "pack-objects", "--revs",
			"--window=0", "--delta-base-offset", "-q", filepath.Join(pack, "pack")}})
}

// connect has berth's git directory borrow from the user's repository, or do
// without it when that is away: then the history ends with the base. A directory
// without a base of its own stays as it is.
func connect(gitDir string, src Source, away bool) error {
	own := filepath.Join(gitDir, baseDir)
	if packs, err := filepath.Glob(filepath.Join(own, "pack", "*.idx")); err != nil || len(packs) == 0 {
		return err
	}
	shallow, lend := []byte(src.Base+"\n"), alternates(own)
	if !away {
		var err error
		if shallow, err = optional(filepath.Join(src.Repo, "shallow")); err != nil {
			return err
		}
		lend = alternates(own, filepath.Join(src.Repo, "objects"))
	}
	if err := replaceFile(filepath.Join(gitDir, "objects", "info", "alternates"), []byte(lend)); err != nil {
		return err
	}
	return replaceFile(filepath.Join(gitDir, "shallow"), shallow)
}

// settleBase makes sure that berth's own git directory can read the base: from
// the user's repository, or without it while that is away or has lost the commit.
func (g *Git) settleBase(ctx context.Context, gitDir string, src Source) error {
	if _, err := os.Stat(gitDir); err != nil {
		return nil // whoever uses it says so
	}
	away := g.checkSource(ctx, src)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := connect(gitDir, src, away != nil); err != nil {
		return errors.Join(away, fmt.Errorf("settle where commit %s is read from: %w", src.Base, err))
	}
	return nil
}

// checkSource says in words what is wrong when the repository is not as it was
// resolved: the job may start, or end, much later and on another machine.
func (g *Git) checkSource(ctx context.Context, src Source) error {
	const back = "bring it back to that path, on a file system that this machine mounts"
	if _, err := os.Stat(src.Repo); err != nil {
		msg := fmt.Sprintf("the repository at %q cannot be seen on this machine: %v", src.Repo, err)
		if errors.Is(err, fs.ErrNotExist) {
			msg = fmt.Sprintf("the repository at %q is gone, or cannot be seen on this machine", src.Repo)
		}
		return &Error{Kind: ErrNotRepository, Err: err, Msg: msg, Tip: back}
	}
	if !isObjectID(src.Base) {
		return fmt.Errorf("base %q is not a full commit id: %w", src.Base, ErrInvalid)
	}
	_, err := g.output(ctx, call{gitDir: src.Repo, args: []string{"cat-file", "-e", src.Base + "^{commit}"}})
	if err == nil {
		return nil
	}
	var ge *GitError
	switch {
	case exitCode(err) <= 0:
		return fmt.Errorf("look up %s in %q: %w", src.Base, src.Repo, err)
	case errors.As(err, &ge) && strings.Contains(ge.Stderr, "not a git repository"):
		return &Error{Kind: ErrNotRepository, Err: err, Tip: back,
			Msg: fmt.Sprintf("the directory %q is no git repository any more", src.Repo)}
	}
	return &Error{Kind: ErrUnknownBase, Err: err,
		Msg: fmt.Sprintf("the repository at %q lacks commit %s, from which the task starts", src.Repo, src.Base),
		Tip: "fetch that commit there, or bring back a branch that holds it; a new task starts from what a branch holds"}
}
