package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/run"
)

// The same over the starter that berth uses.
func TestOverStarter(t *testing.T) {
	f := newFixture(t)
	f.g = New(run.Local{})
	f.commit(map[string]string{"a": "1\n", "b": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"big": strings.Repeat("0123456789", 1<<20), "a": "2\n"})
	f.roundTrip()
	if _, err := f.g.Resolve(testContext(t), t.TempDir(), ""); !errors.Is(err, ErrNotRepository) {
		t.Errorf("got %v", err)
	}
}

// The checks see the result and nothing else.
func TestRecheckout(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", ".gitignore": "cache\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n", "new": "1\n", "cache": "stale\n", ".git/hooks/post-checkout": "+x#!/bin/sh\nexec " + quoteSh(f.canary) + "\n"})
	res := f.collect(CollectOptions{})
	for i, commit := range []string{res.Commit, "", res.Commit} {
		to := filepath.Join(t.TempDir(), "checked", strconv.Itoa(i))
		must(t, os.MkdirAll(filepath.Dir(to), 0o700))
		must(t, f.g.Recheckout(testContext(t), f.attempt, f.src, commit, to))
		same(t, "status", f.git(to, "status", "--porcelain", "--ignored"), "")
		if commit == "" {
			commit = f.src.Base
		}
		same(t, "commit", f.git(to, "rev-parse", "HEAD"), commit)
	}
	cached, err := os.ReadFile(filepath.Join(f.work(), "cache"))
	must(t, err)
	same(t, "the task's own", string(cached), "stale\n")
	must(t, os.Mkdir(filepath.Join(f.attempt, recheckDir), 0o700))
	must(t, Cleanup(f.attempt))
	left, err := filepath.Glob(filepath.Join(f.attempt, recheckDir))
	must(t, err)
	same(t, "left", len(left), 0)
}

// Git may die before it has read everything, and time may be up: neither hangs,
// and the next try is not disturbed.
func TestCollectInterrupted(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"big": strings.Repeat("0123456789", 1<<20), "z": "1\n"})
	for name, g := range map[string]*Git{"exec": {Run: execRun}, "starter": New(run.Local{})} {
		real := g.Run
		for what, broken := range map[string]func(context.Context, Cmd) error{
			"git dies": func(ctx context.Context, c Cmd) error {
				if slices.Contains(c.Args, "fast-import") {
					c.Args = []string{"sh", "-c", "echo no space left >&2; exit 128"}
				}
				return real(ctx, c)
			},
			"time is up": func(ctx context.Context, c Cmd) error {
				if !slices.Contains(c.Args, "fast-import") {
					return real(ctx, c)
				}
				c.Args = []string{"sleep", "1000"}
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				return real(ctx, c)
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				start := time.Now()
				g := &Git{Run: broken}
				_, err := g.Collect(testContext(t), f.attempt, f.src, CollectOptions{Branch: testBranch})
				if err == nil || time.Since(start) > 5*time.Minute {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				t.Log(err)
				if _, err := os.Stat(filepath.Join(f.attempt, ManifestFile)); err == nil {
					t.Error("a manifest was written")
				}
			})
		}
	}
	res := f.collect(CollectOptions{})
	same(t, "changes", f.statuses(res), map[Path]Status{"big": Added, "z": Added})
}

// A file that shrinks while it is read is left out; the rest is collected.
func TestCollectTornFile(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"shrinks": strings.Repeat("x", 1<<20), "z": "1\n"})
	real := f.g.Run
	f.g.Run = func(ctx context.Context, c Cmd) error {
		if slices.Contains(c.Args, "fast-import") {
			// The stream waits for its reader, with the file opened and its
			// size told.
			c.Stdin = &firstRead{f: func() { must(t, os.Truncate(filepath.Join(f.work(), "shrinks"), 1<<16)) }, r: c.Stdin}
		}
		return real(ctx, c)
	}
	res := f.collect(CollectOptions{})
	got := f.statuses(res)
	delete(got, "shrinks") // read again, or left out
	same(t, "changes", got, map[Path]Status{"z": Added})
	if why := skippedPaths(res); why["shrinks"] == "" {
		t.Errorf("left out: %v", why)
	}
}

type firstRead struct {
	f func()
	r interface{ Read([]byte) (int, error) }
}

func (r *firstRead) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.f != nil {
		r.f()
		r.f = nil
	}
	return n, err
}
