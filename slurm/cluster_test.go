package slurm_test

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/slurm"
)

// TestCluster runs the suite against the Slurm of this machine. It needs bash
// and the Slurm commands only, so the compiled test can be copied to a login
// node: BERTH_TEST_CLUSTER=1 ./slurm.test -test.run TestCluster. Jobs ask for
// little memory unless BERTH_TEST_NOMEM is set; BERTH_TEST_DIR is a directory
// that the nodes see, else $HOME.
func TestCluster(t *testing.T) {
	if os.Getenv("BERTH_TEST_CLUSTER") == "" {
		t.Skip("BERTH_TEST_CLUSTER is not set: no cluster")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	base := os.Getenv("BERTH_TEST_DIR")
	if base == "" {
		base = me.HomeDir
	}
	jobstest.TestScheduler(t, func(t *testing.T) jobstest.Env {
		dir, err := os.MkdirTemp(base, "berth suite's %j ") //nolint:usetesting // the nodes must see it
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		on := &faulty{}
		s := slurm.New(on, slurm.Config{})
		config, err := s.KillWait(t.Context())
		if err != nil || config <= 0 {
			t.Fatalf("KillWait is %v, %v", config, err)
		}
		return jobstest.Env{
			Scheduler: s,
			Dir:       dir,
			Identity:  jobs.Identity{User: me.Username, Home: me.HomeDir, Shell: "/bin/bash"},
			Prepare: func(l *jobs.Launch) {
				l.Resources = jobs.Resources{CPUs: 1, Memory: 50 * jobs.MiB, Time: 5 * time.Minute}
				if os.Getenv("BERTH_TEST_NOMEM") != "" {
					l.Profile.Forbid = []string{"mem"}
				}
			},
			Hold:      func(_ *testing.T, l *jobs.Launch) { l.Slurm.Extra = append(l.Slurm.Extra, "--begin=now+1hour") },
			Bad:       func(l *jobs.Launch) { l.Slurm.Partition = "nope" },
			LoseReply: func(*testing.T) { on.lose.Store(true) },
			Break: func(t *testing.T) {
				on.broken.Store(true)
				t.Cleanup(func() { on.broken.Store(false) })
			},
			Remembers: true,
			Patience:  2*time.Minute + config,
		}
	})
}

// faulty is this machine, on which replies get lost and queries fail.
type faulty struct {
	run.Local
	lose   atomic.Bool
	broken atomic.Bool
}

func (f *faulty) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	query := filepath.Base(c.Argv[0]) == "squeue" || filepath.Base(c.Argv[0]) == "sacct"
	if query && f.broken.Load() {
		c.Argv = []string{"bash", "-c", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"}
	}
	if c.Argv[0] == "sbatch" && f.lose.CompareAndSwap(true, false) {
		c.Stdout, c.Stderr = nil, nil
		p, err := f.Local.Start(ctx, c)
		if err != nil {
			return nil, err
		}
		return lost{p}, nil
	}
	return f.Local.Start(ctx, c)
}

// lost is a process whose end no one hears of.
type lost struct{ jobs.Process }

func (l lost) Wait() (jobs.Exit, error) {
	exit, err := l.Process.Wait()
	return exit, errors.Join(err, errors.New("the reply was lost"))
}
