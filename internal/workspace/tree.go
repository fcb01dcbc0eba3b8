package workspace

import (
	"bytes"
	"context"
	"fmt"
	"path"
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
	args := append([]string{"ls-tree", "-r", "-z", "--full-tree"}, flags...)
	out, err := g.output(ctx, call{gitDir: gitDir, args: append(args, commit)})
	if err != nil {
		return tree{}, fmt.Errorf("list the files of %s: %w", commit, err)
	}
	t := tree{entries: map[string]treeEntry{}, dirs: map[string]bool{}}
	for rec := range bytes.SplitSeq(out, []byte{0}) {
		if len(rec) == 0 {
			continue
		}
		meta, name, ok := strings.Cut(string(rec), "\t")
		f := strings.Fields(meta)
		if !ok || len(f) != 3+len(flags) {
			return tree{}, fmt.Errorf("list the files of %s: unexpected line %q", commit, rec)
		}
		size := int64(-1)
		if len(flags) > 0 {
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
