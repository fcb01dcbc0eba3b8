package replica_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/remote/replica"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm"
	"berth/test/fakes/mirrortest"
)

func cluster(t *testing.T) (*replica.Site, *mirrortest.Host) {
	t.Helper()
	h := mirrortest.New(t)
	return replica.New(replica.Config{Host: h, Scheduler: func(on jobs.Starter, where string) jobs.Scheduler {
		return slurm.New(on, slurm.Config{Login: where})
	}}), h
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestFilesOfAnEnvironment(t *testing.T) {
	s, h := cluster(t)
	dir := filepath.Join(h.Home, "it's a \"dir\" $(touch pwned)", "far", "id")
	data := bytes.Repeat([]byte("a line\n\x00'$x\n"), 10000)
	for range 2 {
		if err := s.PutFiles(soon(t), dir, map[string][]byte{"env.json": data, "b": nil}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]byte{"env.json": data, "b": {}} {
		got, err := s.ReadFile(soon(t), filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi, err)
	}
	// What stands there stays.
	if err := s.PutFiles(soon(t), dir, map[string][]byte{"b": []byte("other")}); err != nil {
		t.Error(err)
	}
	if got, err := s.ReadFile(soon(t), filepath.Join(dir, "b")); err != nil || len(got) != 0 {
		t.Errorf("%q %v", got, err)
	}
	if _, err := s.ReadFile(soon(t), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func TestPutFilesFails(t *testing.T) {
	s, h := cluster(t)
	if err := os.WriteFile(filepath.Join(h.Home, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := s.PutFiles(soon(t), filepath.Join(h.Home, "file", "dir"), map[string][]byte{"a": []byte("x")})
	if err == nil || !strings.Contains(err.Error(), "ada@login") || jobs.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	h.Set(mirrortest.Fault{Down: true})
	if err := s.PutFiles(soon(t), filepath.Join(h.Home, "dir"), map[string][]byte{"a": []byte("x")}); !errors.Is(err, mirrortest.ErrLink) {
		t.Error(err)
	}
}

func TestRemoveEnv(t *testing.T) {
	s, h := cluster(t)
	dir := filepath.Join(h.Home, "far", "id")
	const id, other = "01890000-0000-7000-8000-0123456789ab", "01890000-0000-7000-8000-0123456789ac"
	if err := s.RemoveEnv(soon(t), dir, id); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
	if err := s.PutFiles(soon(t), dir, map[string][]byte{"env.json": []byte(`{"id": "` + id + `"}`)}); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveEnv(soon(t), dir, other); err == nil || !strings.Contains(err.Error(), "does not hold this environment's record") {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("another one's directory was removed")
	}
	usage := filepath.Join(dir, "usage.json")
	if err := os.WriteFile(usage, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveFile(soon(t), dir, other, "usage.json"); err == nil || !strings.Contains(err.Error(), "does not hold this environment's record") {
		t.Error(err)
	}
	for range 2 { // the second time there is none
		if err := s.RemoveFile(soon(t), dir, id, "usage.json"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(usage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
	// What tasks leave behind.
	locked := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(locked), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveEnv(soon(t), dir, id); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

// The command that a holder starts has the environment of a login there, and
// its streams are joined.
func TestLocal(t *testing.T) {
	s, _ := cluster(t)
	if _, err := s.Local(t.Context(), jobs.Cmd{Argv: []string{"true"}, Env: []string{"SECRET=1"}}); err == nil {
		t.Error("an environment went there")
	}
	c, err := s.Local(t.Context(), jobs.Cmd{Argv: []string{"/bin/sh", "-c", "cat; echo $HOME >&2"}})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in"), &out, &errs
	p, err := run.Local{}.Start(soon(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || !exit.OK() || out.String() != "in" || !strings.HasPrefix(errs.String(), "/") {
		t.Errorf("%v %v %q %q", exit, err, out.String(), errs.String())
	}
}
