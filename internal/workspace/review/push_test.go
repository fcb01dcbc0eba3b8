package review

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/workspace"
)

// One commit is pushed to one branch of a remote that has a name, and nothing else; no hook
// of the repository runs.
func TestPush(t *testing.T) {
	f := newFixture(t)
	remote, ran := filepath.Join(t.TempDir(), "remote.git"), filepath.Join(t.TempDir(), "ran")
	f.git("init", "-q", "--bare", remote)
	relative, err := filepath.Rel(f.dir, remote)
	must(t, err)
	f.Src.Top = f.dir
	f.git("remote", "add", "hub", relative)
	f.git("config", "push.followTags", "true")
	f.git("tag", "-a", "-m", "t", "tagged", f.New)
	for _, hook := range []string{"pre-push", "reference-transaction"} {
		must(t, os.WriteFile(filepath.Join(f.dir, ".git", "hooks", hook), []byte("#!/bin/sh\necho $0 >>"+ran+"\n"), 0o700))
	}
	_ = os.Remove(ran)
	must(t, f.Push(t.Context(), "hub", f.New, "refs/heads/main"))
	must(t, f.Push(t.Context(), "hub", f.New, "refs/heads/main")) // again
	if got := f.git("ls-remote", remote); got != f.New+"\trefs/heads/main" && got != f.New+"\tHEAD\n"+f.New+"\trefs/heads/main" {
		t.Errorf("%q", got)
	}
	if said, err := os.ReadFile(ran); err == nil {
		t.Errorf("these were run: %s", said)
	}
	if err := f.Push(t.Context(), "hub", f.Old, "refs/heads/main"); workspace.ExitCode(err) <= 0 {
		t.Errorf("a branch was moved back: %v", err)
	}
	if err := f.Push(t.Context(), "nohub", f.New, "refs/heads/main"); !errors.Is(err, ErrNoRemote) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "--mirror", "-f", remote, "../x", "ext::sh -c id", "a b", "https://example.org/x"} {
		if err := f.Push(t.Context(), bad, f.New, "refs/heads/main"); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A remote that does not answer ends with the context.
func TestPushEnds(t *testing.T) {
	f := newFixture(t)
	f.git("remote", "add", "hub", "ssh://nowhere.invalid/x")
	f.git("config", "core.sshCommand", "sleep 300; true")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	if err := f.Push(ctx, "hub", f.New, "refs/heads/main"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 100*time.Second {
		t.Errorf("it took %s", took)
	}
}
