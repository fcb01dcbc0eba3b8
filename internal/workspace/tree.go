package workspace

import (
	"bytes"
	"context"
	"fmt"
	"path"
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
}

// tree is all paths of a commit, and the directories that they lie in.
type tree struct {
	entries map[string]treeEntry
	dirs    map[string]bool
}

// readTree lists the tree of a commit.
func (g *Git) readTree(ctx context.Context, gitDir, commit string) (tree, error) {
	out, err := g.output(ctx, call{gitDir: gitDir, args: []string{"ls-tree", "-r", "-z", "--full-tree", commit}})
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
		if !ok || len(f) != 3 {
			return tree{}, fmt.Errorf("list the files of %s: unexpected line %q", commit, rec)
		}
		t.entries[name] = treeEntry{mode: f[0], id: f[2]}
		for d := path.Dir(name); d != "." && !t.dirs[d]; d = path.Dir(d) {
			t.dirs[d] = true
		}
	}
	return t, nil
}
