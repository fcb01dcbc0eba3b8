package runner

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/link/session"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/slurm/inside"
)

// parent is the runner of a task that may have jobs submitted, in its second attempt.
// There is no berth by which they are.
func parent(t *testing.T) *asks {
	t.Helper()
	j := newJobIn(t, filepath.Join(t.TempDir(), "home"), "true", func(n *store.New) {
		n.Spec.Submit = &jobs.Submit{MaxJobs: 10, MaxCPUTime: 10 * time.Hour, Time: time.Hour}
	})
	r := &attempt{dir: j.dir, jobDir: j.rec.Dir, spec: j.rec.Spec, info: jobs.AttemptInfo{Number: 2}, log: slog.New(slog.DiscardHandler), on: run.Local{}}
	return &asks{dir: r.dir, log: r.log, children: r.newChildren()}
}

func childID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// addChildren records what a task has asked for, as a runner that is killed then does.
func addChildren(t *testing.T, k *children, attempts ...int) {
	t.Helper()
	for _, a := range attempts {
		have, err := store.LoadChildren(k.r.jobDir, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := len(have) + 1
		if won, err := store.AddChild(k.r.jobDir, jobs.Child{Version: 1, Number: n, Job: childID(n), Attempt: a, Name: "x"}); err != nil || !won {
			t.Fatal(won, err)
		}
	}
}

// What a runner has counted and not submitted, as it was killed, has failed for the
// attempt after it: whoever waits for it goes on.
func TestChildOfKilledRunner(t *testing.T) {
	k := parent(t).children
	addChildren(t, k, 1, 2)
	for n, want := range map[int]jobs.State{1: jobs.StateError, 2: jobs.StatePending} {
		c, err := store.LoadChild(k.r.jobDir, n)
		if err != nil {
			t.Fatal(err)
		}
		if s := k.status(&c); s.State != want || (s.Reason != "") != (want == jobs.StateError) {
			t.Errorf("%d: %+v", n, s)
		}
	}
	if why := store.ChildRefused(k.r.jobDir, 1); !strings.Contains(why, "attempt 1 ended") {
		t.Errorf("recorded: %q", why)
	}
}

// Nothing is submitted once the container has ended, also what was asked for before and
// waits for another one.
func TestChildrenClosed(t *testing.T) {
	q := parent(t)
	k := q.children
	ask := func() error {
		_, _, err := k.submit(t.Context(), nil, jobs.Wish{Command: jobs.Command{Argv: []string{"true"}}}, "/")
		return err
	}
	k.bringTo(&session.Session{})
	if err := ask(); err == nil || store.ChildRefused(k.r.jobDir, 1) == "" {
		t.Fatalf("%v: there is no berth that submits", err)
	}
	k.making <- struct{}{}
	asked := make(chan error, 1)
	go func() { asked <- ask() }()
	q.end()
	<-k.making
	if err := <-asked; jobs.KindOf(err) != jobs.KindRejected {
		t.Errorf("asked before the end: %v", err)
	}
	if err := ask(); jobs.KindOf(err) != jobs.KindRejected {
		t.Errorf("asked after the end: %v", err)
	}
	if have, err := store.LoadChildren(k.r.jobDir, nil); err != nil || len(have) != 1 {
		t.Errorf("%d were counted, %v", len(have), err)
	}
}

// The end of the container waits for what is done for it, and the end of the attempt for
// a submission; neither for ever.
func TestChildrenEnd(t *testing.T) {
	q := parent(t)
	synctest.Test(t, func(t *testing.T) {
		k := q.children
		k.making, k.changed = make(chan struct{}, 1), make(chan struct{}) // of this bubble
		k.bringTo(&session.Session{})
		ctx, done := k.enter()
		go func() {
			<-ctx.Done()
			time.Sleep(time.Second)
			done()
		}()
		began := time.Now()
		if q.end(); time.Since(began) != time.Second {
			t.Errorf("the end came after %s", time.Since(began))
		}
		if ctx, _ := k.enter(); ctx != nil {
			t.Error("something was begun after the end")
		}
		k.making <- struct{}{}
		began = time.Now()
		if q.settle(); time.Since(began) != childSettle {
			t.Errorf("a submission under way was waited for %s", time.Since(began))
		}
	})
}

// The number in the name of an output is the job's own, however many ask at once.
func TestChildOutputs(t *testing.T) {
	k := parent(t).children
	k.bringTo(&session.Session{})
	defer k.leave()
	const n = 4
	var asked sync.WaitGroup
	for range n {
		asked.Go(func() {
			w := jobs.Wish{Command: jobs.Command{Argv: []string{"true"}}, Output: "%x-%j.out", Name: "a/b"}
			_, _, _ = k.submit(t.Context(), inside.Slurm{}.Stubs(), w, "/work") // it is counted, and there is no berth that submits it
		})
	}
	asked.Wait()
	have, err := store.LoadChildren(k.r.jobDir, nil)
	if err != nil || len(have) != n {
		t.Fatal(have, err)
	}
	for _, c := range have {
		if c.Output != fmt.Sprintf("a_b-%d.out", c.Number) || c.Dir != "/work" {
			t.Errorf("%d writes %s in %s", c.Number, c.Output, c.Dir)
		}
	}
	w := jobs.Wish{Command: jobs.Command{Argv: []string{"true"}}, Output: "%x/out", Name: ".."}
	if _, _, err := k.submit(t.Context(), inside.Slurm{}.Stubs(), w, "/work"); jobs.KindOf(err) != jobs.KindUsage {
		t.Errorf("an output beside the directory: %v", err)
	}
	if have, err := store.LoadChildren(k.r.jobDir, nil); err != nil || len(have) != n {
		t.Errorf("what was refused is counted: %d, %v", len(have), err)
	}
}

// What a look has read the next one does not read again.
func TestChildrenKnown(t *testing.T) {
	k := parent(t).children
	addChildren(t, k, 1, 1)
	if have, err := k.load(); err != nil || len(have) != 2 {
		t.Fatal(have, err)
	}
	if err := os.WriteFile(filepath.Join(k.r.jobDir, "children", "0001.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if won, err := store.AddChild(k.r.jobDir, jobs.Child{Version: 1, Number: 3, Job: childID(3)}); err != nil || !won {
		t.Fatal(won, err)
	}
	if have, err := k.load(); err != nil || len(have) != 3 || have[0].Job != childID(1) || have[2].Job != childID(3) {
		t.Errorf("%+v, %v", have, err)
	}
}

// An image that is gone is refused before anything is counted, as is one that is not allowed.
func TestChildImageGone(t *testing.T) {
	k := parent(t).children
	there := filepath.Join(t.TempDir(), "there.sif")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := there + ".gone"
	k.r.spec.Submit.Images = []jobs.ChildImage{{Name: there, Image: there}, {Name: "docker://debian:12", Image: gone}}
	for image, kind := range map[string]jobs.Kind{"docker://debian:12": jobs.KindNotFound, gone: jobs.KindUsage} {
		_, _, err := k.submit(t.Context(), nil, jobs.Wish{Command: jobs.Words([]string{"true"}), Image: image}, "/")
		if jobs.KindOf(err) != kind || !strings.Contains(err.Error(), image) || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", image, err)
		}
	}
	if err := imageThere(&k.r.spec, there); err != nil {
		t.Error(err)
	}
	if have, err := store.LoadChildren(k.r.jobDir, nil); err != nil || len(have) != 0 {
		t.Errorf("%+v, %v", have, err)
	}
}
