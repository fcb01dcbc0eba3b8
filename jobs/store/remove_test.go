package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

func TestRemove(t *testing.T) {
	s := open(t)
	r := create(t, s)
	must(t, s.Remove(r))
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(r.Dir), "*")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	entries, err := os.ReadDir(filepath.Dir(r.Dir))
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
	if _, err := s.Load(r.Spec.ID); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
	if err := s.Remove(r); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second time: %v", err)
	}
	// A removal that was interrupted goes on.
	r = create(t, s)
	must(t, os.Rename(r.Dir, filepath.Join(filepath.Dir(r.Dir), prefixGone+r.Spec.ID)))
	must(t, s.Remove(r))
}

// TestRemoveClosed removes a record in which a task has left directories that
// its owner may not enter or change, and links out of it.
func TestRemoveClosed(t *testing.T) {
	if !asNobody(t) {
		return
	}
	s := open(t)
	r := create(t, s)
	work := filepath.Join(r.Current().Dir, "work")
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.MkdirAll(filepath.Join(outside, "dir"), 0o700))
	canary := filepath.Join(outside, "dir", "canary")
	must(t, os.WriteFile(canary, []byte("alive"), 0o600))
	must(t, os.Chmod(filepath.Join(outside, "dir"), 0o500))
	t.Cleanup(func() { must(t, os.Chmod(filepath.Join(outside, "dir"), 0o700)) })

	must(t, os.MkdirAll(filepath.Join(work, "readonly", "deep", "none", "inner"), 0o700))
	for _, p := range []string{"readonly/f", "readonly/deep/f", "readonly/deep/none/f", "readonly/deep/none/inner/f"} {
		must(t, os.WriteFile(filepath.Join(work, p), nil, 0o400))
	}
	must(t, os.Symlink(filepath.Join(outside, "dir"), filepath.Join(work, "readonly", "absolute")))
	must(t, os.Symlink("../../../../../../../../"+filepath.Join(outside, "dir"), filepath.Join(work, "readonly", "relative")))
	must(t, os.Symlink(outside, filepath.Join(work, "readonly", "deep", "none", "link")))
	must(t, os.Symlink(".", filepath.Join(work, "readonly", "loop")))
	for _, d := range []string{"readonly/deep/none/inner", "readonly/deep/none", "readonly/deep", "readonly"} {
		mode := fs.FileMode(0o500)
		if strings.HasSuffix(d, "none") || strings.HasSuffix(d, "inner") {
			mode = 0
		}
		must(t, os.Chmod(filepath.Join(work, d), mode))
	}
	if err := os.RemoveAll(work); err == nil {
		t.Fatal("this needs no test")
	}
	must(t, s.Remove(r))
	entries, err := os.ReadDir(filepath.Dir(r.Dir))
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
	if b, err := os.ReadFile(canary); err != nil || string(b) != "alive" {
		t.Errorf("the canary: %q, %v", b, err)
	}
	if fi, err := os.Stat(filepath.Dir(canary)); err != nil || fi.Mode().Perm() != 0o500 {
		t.Errorf("the mode of a directory outside has changed: %v, %v", fi.Mode(), err)
	}
}
