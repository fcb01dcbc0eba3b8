package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deepTree makes a directory below so many others, step by step, with n empty files in it.
func deepTree(t *testing.T, top string, levels, n int) {
	t.Helper()
	root, err := os.OpenRoot(top)
	must(t, err)
	for range levels {
		must(t, root.Mkdir("d", 0o700))
		next, err := root.OpenRoot("d")
		must(t, err)
		must(t, root.Close())
		root = next
	}
	for i := range n {
		must(t, root.WriteFile("f"+strings.Repeat("x", i), nil, 0o600))
	}
	must(t, root.Close())
}

// What is too deep is told and not looked at, and what is above comes.
func TestTooDeep(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n", "out/b": "b"})
	deepTree(t, filepath.Join(f.work(), "out"), 1200, 100)
	began := time.Now()
	res := f.collect(CollectOptions{})
	same(t, "kinds", res.SkippedKinds, map[Kind]int{TooDeep: 1})
	same(t, "changes", len(res.Files), 2)
	arts, err := CollectArtifacts(testContext(t), f.work(), t.TempDir(), []string{"out/"}, ArtifactLimits{})
	must(t, err)
	if len(arts.Omitted) != 1 || arts.Omitted[0].Kind != string(TooDeep) || arts.Omitted[0].Told || len(arts.Copied) != 1 {
		t.Errorf("%+v", arts)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
}

// A checkpoint comes whatever its size, and its holes take no space.
func TestLargeArtifact(t *testing.T) {
	for name, c := range map[string]struct {
		link, several bool
	}{"link": {link: true}, "copy": {}, "a file with two names": {link: true, several: true}} {
		t.Run(name, func(t *testing.T) {
			work, dest := t.TempDir(), t.TempDir()
			from := filepath.Join(work, "model.ckpt")
			must(t, os.WriteFile(from, []byte("begin"), 0o644))
			must(t, os.Truncate(from, 6<<30))
			if c.several {
				must(t, os.Link(from, filepath.Join(work, "other")))
			}
			arts, err := CollectArtifacts(testContext(t), work, dest, []string{"*.ckpt"}, ArtifactLimits{Link: c.link})
			must(t, err)
			same(t, "copied", arts.Copied, []Artifact{{"model.ckpt", 6 << 30}})
			same(t, "left out", len(arts.Omitted), 0)
			to, err := os.Lstat(filepath.Join(dest, "model.ckpt"))
			must(t, err)
			seen, err := os.Lstat(from)
			must(t, err)
			same(t, "size", to.Size(), int64(6<<30))
			same(t, "mode", to.Mode(), os.FileMode(0o600))
			same(t, "the same file", os.SameFile(seen, to), c.link && !c.several)
		})
	}
}

// Directories that no pattern reaches are not entered, nor missed.
func TestArtifactsReach(t *testing.T) {
	work := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(work, "private"), 0o700))
	must(t, os.MkdirAll(filepath.Join(work, "out", "private"), 0o700))
	must(t, os.WriteFile(filepath.Join(work, "out", "a.txt"), nil, 0o600))
	for _, dir := range []string{"private", "out/private"} {
		must(t, os.Chmod(filepath.Join(work, dir), 0))
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(work, dir), 0o700) })
	}
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; see TestWithoutRoot")
	}
	for pattern, want := range map[string]int{"out/a.txt": 0, "out/*.txt": 0, "out/": 1, "*.txt": 2, "out/**/x": 1} {
		arts, err := CollectArtifacts(testContext(t), work, t.TempDir(), []string{pattern}, ArtifactLimits{})
		must(t, err)
		if len(arts.Skipped) != want {
			t.Errorf("%s: %+v", pattern, arts.Skipped)
		}
	}
}
