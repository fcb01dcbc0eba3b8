package slurm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm"
)

// site is a login of another machine: programs of its own, and variables that
// would change what they print.
func site(t *testing.T, programs map[string]string) (env []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + dir, "SQUEUE_FORMAT2=JobID", "SBATCH_ACCOUNT=theirs", "SLURM_CONF=/etc/theirs", "LANG=xx", "MULTI=a\nSLURM_JOB_ID=1"}, dir
}

// there starts commands in such a login.
type there struct {
	env   []string
	fails func() error // called when the command has been started; its error is the start's
}

func (s there) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if c.Env != nil {
		return nil, errors.New("an environment of this machine went there")
	}
	c.Env = s.env
	p, err := run.Local{}.Start(ctx, c)
	if err == nil && s.fails != nil {
		if err := s.fails(); err != nil {
			return nil, err
		}
	}
	return p, err
}

func TestLogin(t *testing.T) {
	env, dir := site(t, map[string]string{"sbatch": `env >"$HOME/env"; echo "$@" >"$HOME/args"; echo 42`})
	s := slurm.New(there{env: env}, slurm.Config{Login: "ada@hpc", Environ: []string{"SECRET=canary"}})
	h, err := s.Submit(t.Context(), jobs.Launch{Name: "berth-x-1"}, "/far/script.sh")
	if err != nil || h.NativeID != "42" {
		t.Fatalf("%+v, %v", h, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	got := "\n" + string(b)
	for _, want := range []string{"\nSLURM_CONF=/etc/theirs\n", "\nLC_ALL=C\n", "\nSLURM_EXIT_ERROR=94\n", "\nHOME="} {
		if !strings.Contains(got, want) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}
	for _, no := range []string{"SQUEUE_FORMAT2", "SBATCH_ACCOUNT", "canary", "\nLANG="} {
		if strings.Contains(got, no) {
			t.Errorf("with %q:\n%s", no, got)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "args")); string(b) != "--parsable /far/script.sh\n" {
		t.Errorf("%q", b)
	}
}

// A start that fails after all, as when the link broke in that moment, has run
// nothing: the record of the job may be taken away.
func TestLoginWaitsForTheWord(t *testing.T) {
	env, dir := site(t, map[string]string{"sbatch": `touch "$HOME/ran"; echo 42`})
	broke := &jobs.Error{Kind: jobs.KindAuth, Msg: "it does not let us in", Hint: "ssh-add"}
	s := slurm.New(there{env: env, fails: func() error { return broke }}, slurm.Config{Login: "ada@hpc"})
	_, err := s.Submit(t.Context(), jobs.Launch{Name: "berth-x-1"}, "/far/script.sh")
	if jobs.KindOf(err) != jobs.KindAuth || jobs.HintOf(err) != "ssh-add" {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it has run")
	}
}

func TestLoginWithoutSlurm(t *testing.T) {
	env, _ := site(t, nil)
	s := slurm.New(there{env: env}, slurm.Config{Login: "ada@hpc"})
	if got := s.Check(t.Context()); got.Health != jobs.Undetected || !strings.Contains(got.Reason, "on ada@hpc") {
		t.Errorf("%+v", got)
	}
	if _, err := s.Status(t.Context(), []jobs.Handle{{NativeID: "1", Name: "n"}}); err == nil || !strings.Contains(err.Error(), "squeue is not installed on ada@hpc") {
		t.Errorf("%v", err)
	}
}
