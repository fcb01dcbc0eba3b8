package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// giant makes a file that costs its maker nothing and its readers hours.
func giant(t *testing.T, name string) {
	t.Helper()
	must(t, os.Truncate(name, 1<<40))
}

func TestSparseTrackedFile(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", "d/g": "1\n", "big": strings.Repeat("x", 200), "bigger": strings.Repeat("x", 300)})
	f.prepare()
	giant(t, filepath.Join(f.work(), "d/g"))
	f.write(f.work(), map[string]string{"a": "2\n", "bigger": strings.Repeat("y", 300)})
	start := time.Now()
	res := f.collect(CollectOptions{Limits: Limits{FileBytes: 100}})
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("took %v", took)
	}
	same(t, "changes", f.statuses(res), map[Path]Status{"a": Modified})
	// What was large before and did not change is no news.
	same(t, "left out", skippedPaths(res), map[Path]string{
		"bigger": "300 bytes are more than a result may have in one file (100)",
		"d/g":    "1099511627776 bytes are more than a result may have in one file (100)",
	})
	must(t, f.intake(res))
	same(t, "the base's version", f.git(f.repo, "show", testBranch+":d/g"), "1")

	// Many that are each small enough.
	f = newFixture(t)
	f.commit(map[string]string{"a": "1\n", "b": "1\n", "c": "1\n", "d": "1\n"})
	f.prepare()
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, os.Truncate(filepath.Join(f.work(), name), 1<<20))
	}
	res = f.collect(CollectOptions{Limits: Limits{TotalBytes: 2 << 20}})
	same(t, "changes", f.statuses(res), map[Path]Status{"a": Modified, "b": Modified})
}

// interrupted cancels while do is at work, and says how long do went on.
func interrupted(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("ended before it was cancelled: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	start := time.Now()
	cancel()
	err := <-done
	// It is milliseconds; machines that run tests are slow, and it would be hours.
	if took := time.Since(start); took > time.Minute {
		t.Errorf("went on for %v", took)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestInterruptReading(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	huge := Limits{FileBytes: 1 << 41, TotalBytes: 1 << 42}
	work, err := openTree(f.work())
	must(t, err)
	defer work.Close()
	giant(t, filepath.Join(f.work(), "a"))
	big := found{path: "a", mode: modeFile, sizeBytes: 1 << 40}

	t.Run("hash", func(t *testing.T) {
		interrupted(t, func(ctx context.Context) error { return hashAll(ctx, work, []found{big}, 40)[0].err })
	})
	t.Run("compare", func(t *testing.T) {
		base := tree{entries: map[string]treeEntry{"a": {mode: modeFile, size: 1 << 40}}}
		interrupted(t, func(ctx context.Context) error {
			s := &survey{tracked: map[string]found{"a": big}}
			s.delta(ctx, work, base, 40, huge)
			return ctx.Err()
		})
	})
	t.Run("artifacts", func(t *testing.T) {
		dest := t.TempDir()
		// A hole takes no time: many parts that are none, of a few bytes each.
		must(t, os.Truncate(filepath.Join(f.work(), "a"), 0))
		parts, err := os.OpenFile(filepath.Join(f.work(), "a"), os.O_WRONLY, 0)
		must(t, err)
		for i := range int64(300) {
			_, err := parts.WriteAt([]byte("x"), i<<20)
			must(t, err)
		}
		must(t, parts.Close())
		interrupted(t, func(ctx context.Context) error {
			_, err := CollectArtifacts(slowly(ctx), f.work(), dest, []string{"a"}, ArtifactLimits{FileBytes: 1 << 41, TotalBytes: 1 << 41})
			return err
		})
		if entries, err := os.ReadDir(dest); err != nil || len(entries) > 0 {
			t.Errorf("a part of a file is left: %v %v", entries, err)
		}
	})
	t.Run("commit", func(t *testing.T) {
		interrupted(t, func(ctx context.Context) error {
			_, err := f.g.Collect(slowly(ctx), f.attempt, f.src, CollectOptions{Branch: testBranch, Limits: huge})
			return err
		})
	})
}

// slow makes every look at the context take a moment, and the later ones wait, so
// that what reads and writes is not over, and has not filled the disk, before it
// is cancelled.
type slow struct {
	context.Context
	looks *atomic.Int32
}

func slowly(ctx context.Context) context.Context { return slow{ctx, &atomic.Int32{}} }

func (s slow) Err() error {
	time.Sleep(time.Millisecond)
	if s.looks.Add(1) > 100 {
		<-s.Done()
	}
	return s.Context.Err()
}

func TestInterruptWalk(t *testing.T) {
	f := newFixture(t)
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("d/f%d", i)] = ""
	}
	f.commit(files)
	f.prepare()
	work, err := openTree(f.work())
	must(t, err)
	defer work.Close()
	interrupted(t, func(ctx context.Context) error {
		_, err := f.g.walk(slowly(ctx), work, filepath.Join(f.attempt, GitDir), tree{}, "", Scope{})
		return err
	})
	interrupted(t, func(ctx context.Context) error {
		_, err := CollectArtifacts(slowly(ctx), f.work(), t.TempDir(), []string{"*none"}, ArtifactLimits{})
		return err
	})
}

// A file that is longer than it was when the limits were applied.
func TestGrown(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("123"), 0o600))
	root, err := openTree(dir)
	must(t, err)
	defer root.Close()
	if _, _, err := contentOf(t.Context(), root, found{path: "a", mode: modeFile, sizeBytes: 2}); err == nil {
		t.Error("was read")
	}
}

func TestTopUnreadable(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", "out": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n"})
	must(t, os.Chmod(f.work(), 0))
	arts, err := CollectArtifacts(testContext(t), f.work(), t.TempDir(), []string{"out"}, ArtifactLimits{})
	must(t, err)
	same(t, "artifacts", arts.Copied, []Artifact{{"out", 2}})
	must(t, os.Chmod(f.work(), 0o300))
	same(t, "changes", f.statuses(f.collect(CollectOptions{})), map[Path]Status{"a": Modified})
	fi, err := os.Lstat(f.work())
	must(t, err)
	same(t, "mode", fi.Mode().Perm(), os.FileMode(0o700))

	// What a link leads to keeps its permissions.
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.Mkdir(secret, 0o300))
	must(t, os.RemoveAll(f.work()))
	must(t, os.Symlink(secret, f.work()))
	if _, err := openTree(f.work()); err == nil {
		t.Error("a link was opened")
	}
	fi, err = os.Lstat(secret)
	must(t, err)
	same(t, "mode", fi.Mode().Perm(), os.FileMode(0o300))
}
