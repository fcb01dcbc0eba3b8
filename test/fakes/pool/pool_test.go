//go:build linux

package pool_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/backends/all"
	"berth/engine"
	"berth/internal/node"
	"berth/internal/node/batch"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/test/fakes/pool"
)

// TestMain makes this binary the programs of the pool, and berth-node on a site that
// has one. This is all that a further scheduler needs: an entry in each list.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	if pool.Is(args) {
		leave(pool.Main(args))
	}
	batch.Schedulers = append(batch.Schedulers, pool.Inside{})
	all.Clusters = append(all.Clusters, func(jobs.Starter, string, all.Asking) jobs.Cluster {
		return pool.New(os.Getenv("POOL_YARD"), os.Args[0])
	})
	if node.Is(args) || len(args) > 0 && (args[0] == jobs.VerbWatch || args[0] == jobs.VerbFollow) {
		leave(engine.NodeMain(args))
	}
	os.Exit(m.Run())
}

// leave ends this process without the second that the race detector makes os.Exit
// sleep; counters of coverage are written only by os.Exit.
func leave(code int) {
	if os.Getenv("GOCOVERDIR") != "" {
		os.Exit(code)
	}
	syscall.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// newPool is a pool of three nodes, which ends with the test.
func newPool(t *testing.T) (*pool.Pool, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's a yard")
	must(t, pool.Setup(dir, pool.Site{
		Nodes: []string{"n1.pool", "n2.pool", "n3.pool"}, CPUs: 4, Memory: 8 * jobs.GiB, Limit: 24 * time.Hour, Grace: 20 * time.Second,
		Env: []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")},
	}))
	self, err := os.Executable()
	must(t, err)
	p := pool.New(dir, self)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Clear(ctx); err != nil {
			t.Error(err)
		}
	})
	return p, dir
}

// unsure is a pool whose next answer to a submission is lost.
type unsure struct {
	*pool.Pool
	lose atomic.Bool
}

func (u *unsure) Submit(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	h, err := u.Pool.Submit(ctx, l, script)
	if err == nil && u.lose.CompareAndSwap(true, false) {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUnclear, Err: errors.New("the answer was lost")}
	}
	return h, err
}

// The pool is a scheduler as every other one.
func TestScheduler(t *testing.T) {
	jobstest.TestScheduler(t, func(t *testing.T) jobstest.Env {
		p, dir := newPool(t)
		u := &unsure{Pool: p}
		return jobstest.Env{
			Scheduler: u, Dir: t.TempDir(), Identity: jobs.Identity{User: "alice", Home: t.TempDir()},
			Hold:      func(_ *testing.T, l *jobs.Launch) { l.Wait = time.Hour },
			Bad:       func(l *jobs.Launch) { l.Resources.CPUs = 5 },
			LoseReply: func(*testing.T) { u.lose.Store(true) },
			Break: func(t *testing.T) {
				tickets := filepath.Join(dir, "tickets")
				must(t, os.Rename(tickets, tickets+"-moved"))
				must(t, os.WriteFile(tickets, nil, 0o600))
				t.Cleanup(func() {
					must(t, os.Remove(tickets))
					must(t, os.Rename(tickets+"-moved", tickets))
				})
			},
			Remembers: true,
		}
	})
}

// shell submits a shell text, with what else is asked for.
func shell(t *testing.T, p *pool.Pool, name, text string, change func(*jobs.Launch)) jobs.Handle {
	t.Helper()
	dir := t.TempDir()
	l := jobs.Launch{Attempt: name, Name: name, Dir: dir, Identity: jobs.Identity{User: "alice", Home: dir}, Argv: []string{"/bin/sh", "-c", text}}
	if change != nil {
		change(&l)
	}
	script, err := p.Render(l)
	must(t, err)
	path := filepath.Join(dir, "script")
	must(t, os.WriteFile(path, []byte(script), 0o600))
	h, err := p.Submit(t.Context(), l, path)
	must(t, err)
	return h
}

func status(t *testing.T, p *pool.Pool, h jobs.Handle) jobs.Status {
	t.Helper()
	got, err := p.Status(t.Context(), []jobs.Handle{h})
	must(t, err)
	return got[h.Name]
}

func await(t *testing.T, p *pool.Pool, h jobs.Handle, word string) jobs.Status {
	t.Helper()
	var st jobs.Status
	eventually(t, h.Name+" is "+word, func() bool { st = status(t, p, h); return st.NativeState == word })
	return st
}

// A job waits for the end of another, and for the hand that holds it; one that is put
// back begins again under its id, and one whose time is up is ended, whatever it does.
func TestQueue(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	first := shell(t, p, "first", `[ "$POOL_ROUND" = 1 ] || sleep 600`, func(l *jobs.Launch) { l.Requeue = true })
	second := shell(t, p, "second", `exit 3`, func(l *jobs.Launch) { l.Behind = []jobs.Handle{first} })
	await(t, p, first, "R")
	eventually(t, "the second one is behind the first", func() bool {
		st := status(t, p, second)
		return st.State == jobs.StatePending && st.Reason == "behind "+first.NativeID
	})
	must(t, p.Hold(second.NativeID))
	if st := await(t, p, second, "H"); !st.Held {
		t.Errorf("%+v", st)
	}
	must(t, p.Suspend(first.NativeID))
	if st := await(t, p, first, "S"); !st.Paused {
		t.Errorf("%+v", st)
	}
	must(t, p.Resume(first.NativeID))
	await(t, p, first, "R")
	must(t, p.Again(first.NativeID))
	if st := await(t, p, first, "F"); st.State != jobs.StateCompleted {
		t.Errorf("%+v", st)
	}
	if st := status(t, p, second); st.State != jobs.StatePending {
		t.Errorf("held, and yet: %+v", st)
	}
	must(t, p.Release(second.NativeID))
	if st := await(t, p, second, "F"); st.State != jobs.StateFailed || st.Code != 3 {
		t.Errorf("%+v", st)
	}
	late := shell(t, p, "late", `sleep 600`, func(l *jobs.Launch) {
		l.Resources.Time, l.Exclude = time.Second/2, []string{"n1.pool"}
	})
	if st := await(t, p, late, "X"); st.State != jobs.StateTimeout || st.Node != "n2.pool" {
		t.Errorf("%+v", st)
	}
	list, err := p.List(t.Context())
	must(t, err)
	if len(list) > 0 {
		t.Errorf("left: %+v", list)
	}
}
