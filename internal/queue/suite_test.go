//go:build linux

package queue_test

import (
	"os"
	"path/filepath"
	"testing"

	"berth/internal/queue"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/templates"
)

// The test program is its own berth-node.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "queue-wait" {
		os.Exit(queue.WaitMain(os.Args[2:], heldByFile))
	}
	os.Exit(m.Run())
}

// heldByFile waits for what stands in the file "waits" of an attempt's directory;
// "never" is what its name says.
func heldByFile(attemptDir, _ string) queue.Held {
	return func() (string, bool) {
		b, err := os.ReadFile(filepath.Join(attemptDir, "waits"))
		if string(b) == "never" || err != nil {
			return "", string(b) == "never"
		}
		return string(b), false
	}
}

func newQueue(t *testing.T, dir string, cpus int) *queue.Queue {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return queue.New(queue.Config{Dir: dir, Script: templates.WithRemark, Node: self, CPUs: cpus, Memory: jobs.GiB})
}

func TestQueue(t *testing.T) {
	jobstest.TestScheduler(t, func(t *testing.T) jobstest.Env {
		dir := filepath.Join(t.TempDir(), "it's a queue")
		q := newQueue(t, dir, 4)
		env := jobstest.Env{
			Scheduler: q,
			Dir:       t.TempDir(),
			Identity:  jobs.Identity{User: "alice", Home: t.TempDir()},
			Bad:       func(l *jobs.Launch) { l.Resources.CPUs = 5 },
			Break: func(t *testing.T) {
				entries, err := filepath.Glob(filepath.Join(dir, "*"))
				if err != nil || len(entries) != 1 {
					t.Fatal(entries, err)
				}
				moved := entries[0] + "-moved"
				if err := os.Rename(entries[0], moved); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(entries[0], nil, 0o600); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := os.Remove(entries[0]); err != nil {
						t.Error(err)
					}
					if err := os.Rename(moved, entries[0]); err != nil {
						t.Error(err)
					}
				})
			},
		}
		held := false
		env.Hold = func(t *testing.T, l *jobs.Launch) {
			if !held {
				held = true
				jobstest.Occupy(t, env, func(l *jobs.Launch) { l.Resources.CPUs = 4 })
			}
		}
		return env
	})
}
