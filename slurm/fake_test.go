package slurm_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/slurm"
)

// script is a strict place: it takes exactly these commands in this order,
// compares every word, and fails the test for any other.
type script struct {
	t  *testing.T
	mu sync.Mutex
	// steps are used up from the front.
	steps []step
	envs  [][]string
}

type step struct {
	argv           string // words joined by a blank
	stdout, stderr string
	code           int
	start          error // the command could not be started
	wait           error // its end is not known
	hang           bool  // until the context ends
}

func on(t *testing.T, steps ...step) *script {
	s := &script{t: t, steps: steps}
	t.Cleanup(func() {
		if len(s.steps) > 0 {
			t.Errorf("not called: %+v", s.steps)
		}
	})
	return s
}

func (s *script) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(c.Argv, " ")
	if len(s.steps) == 0 || s.steps[0].argv != got {
		s.t.Errorf("unexpected command: %s\nexpected steps: %+v", got, s.steps)
		return nil, errors.New("unexpected command")
	}
	st := s.steps[0]
	s.steps = s.steps[1:]
	s.envs = append(s.envs, c.Env)
	if st.start != nil {
		return nil, st.start
	}
	_, _ = fmt.Fprint(c.Stdout, st.stdout)
	_, _ = fmt.Fprint(c.Stderr, st.stderr)
	return ended{ctx, st}, nil
}

type ended struct {
	ctx context.Context
	st  step
}

func (ended) Signal(syscall.Signal) error { return nil }

func (e ended) Wait() (jobs.Exit, error) {
	if e.st.hang {
		<-e.ctx.Done()
		return jobs.Exit{Started: true, Code: 137, Signal: 9}, nil
	}
	return jobs.Exit{Started: true, Code: e.st.code}, e.st.wait
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// scheduler gives its commands a moment where one of them hangs, and otherwise so
// long that none is cut off: a test's own process may stand still, too.
func scheduler(s *script) *slurm.Scheduler {
	limit := time.Hour
	for _, st := range s.steps {
		if st.hang {
			limit = 50 * time.Millisecond
		}
	}
	return slurm.New(s, slurm.Config{Now: func() time.Time { return now }, SubmitTimeout: limit, QueryTimeout: limit,
		Environ: []string{"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_CONF=/etc/x", "SBATCH_PARTITION=evil", "SQUEUE_FORMAT=%i", "SACCT_FORMAT=x", "SLURM_TIME_FORMAT=relative", "LC_TIME=de_DE", "LANG=de_DE", "SLURM_CLUSTERS=two"}})
}

func launch() jobs.Launch {
	return jobs.Launch{
		Attempt: "01890000-0000-7000-8000-0123456789ab", Name: "berth-fix-0123456789ab", Dir: "/home/alice/b/0001",
		Identity:  jobs.Identity{User: "alice", Home: "/home/alice", Shell: "/bin/bash"},
		Argv:      []string{"/home/alice/b/berth-node", "runner", "--attempt", "/home/alice/b/0001", "--", "apptainer", "exec", "--overlay", "{overlay}", "{image}", "/.berth/node", "guest"},
		Resources: jobs.Resources{CPUs: 2, Memory: jobs.GiB},
	}
}

const (
	squeue = "squeue --me -h -t all -O JobID:|,State:|,exit_code:|,StartTime:|,NodeList:|,Name:|,Reason:|"
	config = "scontrol show config"
	dbd    = "AccountingStorageType   = accounting_storage/slurmdbd\nKillWait                = 30 sec\n"
	nodbd  = "AccountingStorageType   = (null)\n"
)

func missingProgram(name string) error {
	return fmt.Errorf("start %s: %w", name, &exec.Error{Name: name, Err: exec.ErrNotFound})
}
