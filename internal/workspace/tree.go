package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Modes of git tree entries.
const (
	modeFile    = "100644"
	modeExec    = "100755"
	modeLink    = "120000"
	modeGitlink = "160000"
)

// treeEntry is a path of a commit's tree.
type treeEntry struct {
	mode string
	id   string
	size int64 // of a blob; -1 when it was not asked for or is not known
}

// tree is all paths of a commit, and the directories that they lie in.
type tree struct {
	entries map[string]treeEntry
	dirs    map[string]bool
}

// readTree lists the tree of a commit. With the flag -l it finds out sizes.
func (g *Git) readTree(ctx context.Context, gitDir, commit string, flags ...string) (tree, error) {
	out, err := g.listTree(ctx, gitDir, commit, flags...)
	if err != nil {
		return tree{}, err
	}
	return parseTree(out, commit, len(flags))
}

// baseList, in berth's own git directory, begins the name of a list of the base's files.
const baseList = "files-"

// baseTree is readTree of the base with sizes for a work tree that is looked at again and again: git is asked once.
func (g *Git) baseTree(ctx context.Context, gitDir, base string) (tree, error) {
	name := filepath.Join(gitDir, baseList+base)
	out, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if out, err = g.listTree(ctx, gitDir, base, "-l"); err == nil {
			err = writeWhole(name, func(f *os.File) error {
				_, err := f.Write(out)
				return err
			})
		}
	}
	if err != nil {
		return tree{}, err
	}
	return parseTree(out, base, 1)
}

func (g *Git) listTree(ctx context.Context, gitDir, commit string, flags ...string) ([]byte, error) {
	args := append([]string{"ls-tree", "-r", "-z", "--full-tree"}, flags...)
	out, err := g.output(ctx, call{gitDir: gitDir, args: append(args, commit)})
	if err != nil {
		err = fmt.Errorf("list the files of %s: %w", commit, err)
	}
	return out, err
}

// parseTree reads what listTree gives with so many flags.
func parseTree(out []byte, commit string, flags int) (tree, error) {
	t := tree{entries: map[string]treeEntry{}, dirs: map[string]bool{}}
	for rec := range bytes.SplitSeq(out, []byte{0}) {
		if len(rec) == 0 {
			continue
		}
		meta, name, ok := strings.Cut(string(rec), "\t")
		f := strings.Fields(meta)
		if !ok || len(f) != 3+flags {
			return tree{}, fmt.Errorf("list the files of %s: unexpected line %q", commit, rec)
		}
		size := int64(-1)
		if flags > 0 {
			// A submodule has "-", a missing object "BAD".
			if n, err := strconv.ParseInt(f[3], 10, 64); err == nil {
				size = n
			}
		}
		t.entries[name] = treeEntry{mode: f[0], id: f[2], size: size}
		for d := path.Dir(name); d != "." && !t.dirs[d]; d = path.Dir(d) {
			t.dirs[d] = true
		}
	}
	return t, nil
}
