package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"berth/internal/sys/disk"
)

// maxIgnoreFileBytes bounds a .gitignore; a larger one counts as absent.
const maxIgnoreFileBytes = 4 << 20

// maxIgnoreBytes bounds all of them, which are copied; further ones count as
// absent.
const maxIgnoreBytes = 64 << 20

// ignorer asks git which paths are ignored, by git's own rules, without letting
// it see the task's tree: it works in a shadow directory that holds copies of
// the .gitignore files and nothing else.
type ignorer struct {
	g      *Git
	gitDir string // its info/exclude holds too
	dir    string
	shadow *os.Root
	copied int64 // bytes in it
}

// newIgnorer makes the shadow inside berth's git directory.
func (g *Git) newIgnorer(gitDir string) (*ignorer, error) {
	dir, err := os.MkdirTemp(gitDir, "ignore-")
	if err != nil {
		return nil, err
	}
	shadow, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, disk.RemoveTree(dir))
	}
	return &ignorer{g: g, gitDir: gitDir, dir: dir, shadow: shadow}, nil
}

func (ig *ignorer) close() error {
	return errors.Join(ig.shadow.Close(), disk.RemoveTree(ig.dir))
}

// add copies the .gitignore of a directory of the work tree, which is open.
func (ig *ignorer) add(here *os.Root, dir string) error {
	name := path.Join(dir, ".gitignore")
	f, fi, err := openRegular(here, ".gitignore")
	if err != nil {
		return nil // git ignores one that it cannot read, or that is no file
	}
	defer f.Close()
	limit := min(maxIgnoreFileBytes, maxIgnoreBytes-ig.copied)
	if fi.Size() > limit {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	ig.copied += int64(len(data))
	if err := ig.shadow.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o700); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	if err := ig.shadow.WriteFile(name, data, 0o600); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	return nil
}

// match gives those of the paths that are ignored. A directory ends in a
// slash. The .gitignore files of all their parents must have been added.
func (ig *ignorer) match(ctx context.Context, paths []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if len(paths) == 0 {
		return ignored, nil
	}
	var in bytes.Buffer
	for _, p := range paths {
		// With ./ no path is taken for pathspec magic.
		in.WriteString("./" + p)
		in.WriteByte(0)
	}
	out, err := ig.g.output(ctx, call{gitDir: ig.gitDir, dir: ig.dir, stdin: &in, args: []string{
		"--work-tree=" + ig.dir, "-c", "core.bare=false", "-c", "core.ignoreCase=false",
		"check-ignore", "--no-index", "-z", "--stdin"}})
	if err != nil && exitCode(err) != 1 { // 1: none is ignored
		return nil, fmt.Errorf("find out what is ignored: %w", err)
	}
	for p := range bytes.SplitSeq(out, []byte{0}) {
		ignored[string(bytes.TrimPrefix(p, []byte("./")))] = true
	}
	return ignored, nil
}
