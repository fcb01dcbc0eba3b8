package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// keptTree makes a work tree as a hostile task may leave it.
func keptTree(t *testing.T) string {
	t.Helper()
	work := filepath.Join(t.TempDir(), "work")
	for name, content := range map[string]string{
		"a.txt": "a", "bin/run": "#!/bin/sh\n", ".git/config": "[core]\n", ".git/HEAD": "ref: x\n", "sub/.git/config": "[core]\n", "sub/b": "b",
		"bare/HEAD": "ref: x\n", "bare/objects/x": "", "bare/refs/x": "", "locked/deep/c": "c", "git-of-the-task": "mine",
	} {
		p := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(work, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	_, werr := sparse.WriteAt([]byte("end"), 1<<40-3)
	for _, err := range []error{
		werr, sparse.Close(),
		os.Chmod(filepath.Join(work, "bin/run"), 0o6755),
		os.Symlink("/etc/passwd", filepath.Join(work, "link")),
		os.Link(filepath.Join(work, "a.txt"), filepath.Join(work, "z-again")),
		unix.Mkfifo(filepath.Join(work, "fifo"), 0o600),
		os.Chmod(filepath.Join(work, "a.txt"), 0),
		os.Chmod(filepath.Join(work, "locked"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(work, "locked"), 0o700) })
	return work
}

// elsewhere is a directory on another file system than dir.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	for _, base := range []string{"/dev/shm", "/var/tmp", "."} {
		to, err := os.MkdirTemp(base, "berth-keep-*") //nolint:usetesting // another file system than that of t.TempDir
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(to) })
		if !sameDevice(dir, to) {
			return to
		}
	}
	t.Skip("no second file system is writable here")
	return ""
}

// obeyed are the paths that git would take for a repository.
func obeyed(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), GitOfTask) && p != dir {
			if fi, ferr := os.Lstat(p); ferr == nil && d.Name() != "git-of-the-task" && fi.Mode().Perm() != 0 {
				t.Errorf("%s has mode %v", p, fi.Mode())
			}
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if err != nil {
			return err
		}
		if d.Name() == ".git" || d.Name() == "HEAD" {
			out = append(out, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestKeepCopies(t *testing.T) {
	work := keptTree(t)
	to := filepath.Join(elsewhere(t, work), "work")
	if err := os.MkdirAll(filepath.Join(to, "of an earlier try"), 0o700); err != nil {
		t.Fatal(err)
	}
	k, err := Keep(testContext(t), work, to)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.txt": "a", "z-again": "a", "sub/b": "b", "locked/deep/c": "c", "git-of-the-task": "mine"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if got := obeyed(t, to); got != nil {
		t.Errorf("git would obey %q", got)
	}
	if target, err := os.Readlink(filepath.Join(to, "link")); err != nil || target != "/etc/passwd" {
		t.Errorf("link: %q, %v", target, err)
	}
	if fi, err := os.Lstat(filepath.Join(to, "bin/run")); err != nil || fi.Mode() != 0o700 {
		t.Errorf("bin/run: %v, %v", fi.Mode(), err)
	}
	fi, err := os.Stat(filepath.Join(to, "sparse"))
	if err != nil || fi.Size() != 1<<40 || fi.Sys().(*syscall.Stat_t).Blocks > 1<<11 {
		t.Errorf("the sparse file: %+v, %v", fi, err)
	}
	if a, err := os.Stat(filepath.Join(to, "a.txt")); err == nil {
		if z, err := os.Stat(filepath.Join(to, "z-again")); err != nil || !os.SameFile(a, z) {
			t.Errorf("a file with two names became two: %v", err)
		}
	}
	if _, err := os.Lstat(filepath.Join(to, "of an earlier try")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what an earlier try left is there: %v", err)
	}
	if len(k.Skipped) != 1 || k.Skipped[0].Path != "fifo" || k.Lost != 0 || k.Moved || k.Files < 8 {
		t.Errorf("%+v", k)
	}
	if _, err := os.Lstat(filepath.Join(work, ".git")); err != nil {
		t.Errorf("the source was changed: %v", err)
	}
}

// A copy of a tree that was disarmed before, for a rename that the kernel refused or
// by a runner that was killed, is as one of a tree that was not.
func TestKeepCopiesDisarmed(t *testing.T) {
	work := keptTree(t)
	to := filepath.Join(elsewhere(t, work), "work")
	for _, to := range []string{work, to} {
		if _, err := Keep(testContext(t), work, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"git-of-the-task-2", "sub/git-of-the-task", "bare/git-of-the-task"} {
		if fi, err := os.Lstat(filepath.Join(work, name)); err != nil || fi.Mode().Perm() != 0 {
			t.Errorf("%s was not put away: %v, %v", name, fi, err)
		}
		if _, err := os.Lstat(filepath.Join(to, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was copied: %v", name, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(to, "git-of-the-task")); err != nil || string(b) != "mine" {
		t.Errorf("the task's own file: %q, %v", b, err)
	}
}

func TestKeepRenames(t *testing.T) {
	work := keptTree(t)
	to := filepath.Join(t.TempDir(), "kept")
	if !sameDevice(work, filepath.Dir(to)) {
		t.Fatal("two temporary directories are on two file systems")
	}
	k, err := Keep(testContext(t), work, to)
	if err != nil || !k.Moved || len(k.Skipped) > 0 {
		t.Fatalf("%+v, %v", k, err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "git-of-the-task-2"), 0o700) })
	if got := obeyed(t, to); got != nil {
		t.Errorf("git would obey %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(to, "git-of-the-task")); err != nil || string(b) != "mine" {
		t.Errorf("the task's own file: %q, %v", b, err)
	}
	if _, err := os.Lstat(work); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still in the old place: %v", err)
	}
}

// A tree in its place is only disarmed.
func TestKeepInPlace(t *testing.T) {
	work := keptTree(t)
	k, err := Keep(testContext(t), work, work)
	if err != nil || !k.Moved {
		t.Fatalf("%+v, %v", k, err)
	}
	if got := obeyed(t, work); got != nil {
		t.Errorf("git would obey %q", got)
	}
}

// A tree that was put away stays so when that is done once more.
func TestKeepInPlaceTwice(t *testing.T) {
	work := keptTree(t)
	for range 2 {
		if k, err := Keep(testContext(t), work, work); err != nil || k.Closed || len(k.Skipped) > 0 {
			t.Fatalf("%+v, %v", k, err)
		}
	}
	for _, name := range []string{"git-of-the-task-2", "sub/git-of-the-task", "bare/git-of-the-task"} {
		if fi, err := os.Lstat(filepath.Join(work, name)); err != nil || fi.Mode().Perm() != 0 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
}

// One that cannot be gone through in time is moved all the same, and closed.
func TestKeepRenamesClosed(t *testing.T) {
	work := keptTree(t)
	to := filepath.Join(t.TempDir(), "kept")
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	k, err := Keep(ctx, work, to)
	if err != nil || !k.Closed || !k.Moved {
		t.Errorf("%+v, %v", k, err)
	}
	if fi, err := os.Lstat(to); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi, err)
	}
	_ = os.Chmod(to, 0o700)
	if _, err := os.Lstat(filepath.Join(to, "a.txt")); err != nil {
		t.Error(err)
	}
}

// What does not fit is told with its size, and the rest is there.
func TestKeepWhatFits(t *testing.T) {
	work := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"a": 10, "b": 17 << 20, "c": 20} {
		if err := os.WriteFile(filepath.Join(work, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It holds for the whole process: more than what go test itself writes.
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(elsewhere(t, work), "work")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 16 << 20, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	k, err := Keep(testContext(t), work, to)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(k.Skipped) != 1 || k.Skipped[0].Path != "b" || k.Lost != 1 || k.SkippedBytes != 17<<20 || k.Files != 2 {
		t.Errorf("%+v", k)
	}
	if names, err := os.ReadDir(to); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// A tree in its place that cannot be gone through is closed: something of it may be
// obeyed.
func TestKeepClosed(t *testing.T) {
	work := keptTree(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	k, err := Keep(ctx, work, work)
	if err != nil || !k.Closed {
		t.Errorf("%+v, %v", k, err)
	}
	if fi, err := os.Lstat(work); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi, err)
	}
	if k, err = Keep(testContext(t), work, work); err != nil || k.Closed {
		t.Errorf("again: %+v, %v", k, err)
	}
	if got := obeyed(t, work); got != nil {
		t.Errorf("git would obey %q", got)
	}
}

func TestKeepEnds(t *testing.T) {
	work := keptTree(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := Keep(ctx, work, filepath.Join(elsewhere(t, work), "work")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := Keep(testContext(t), filepath.Join(work, "gone"), work+"-to"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Deeper than is looked: not copied, and in a tree that is renamed locked.
func TestKeepDeep(t *testing.T) {
	work := filepath.Join(t.TempDir(), "work")
	at := work
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	for range maxKeptDepth + 10 {
		at = filepath.Join(at, "d")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Keep(testContext(t), work, filepath.Join(elsewhere(t, work), "work"))
	if err != nil || !slices.ContainsFunc(k.Skipped, func(s Skipped) bool { return strings.Contains(s.Reason, "deeper") }) {
		t.Errorf("%+v, %v", k, err)
	}
	k, err = Keep(testContext(t), work, work)
	if err != nil || len(k.Skipped) != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	locked := filepath.Join(work, string(k.Skipped[0].Path))
	if fi, err := os.Lstat(locked); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi, err)
	}
	_ = os.Chmod(locked, 0o700)
}
