package allocations

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

const id = "01890000-0000-7000-8000-0123456789ab"

// steps is a fake scheduler whose steps are never started.
type steps struct{ *jobstest.FakeScheduler }

func (steps) Step(h jobs.Handle, node string, argv []string) jobs.Cmd {
	return jobs.Cmd{Argv: append([]string{"step", h.NativeID, node}, argv...)}
}

// fixture is a place whose clock is the bubble's.
type fixture struct {
	*Place
	fake   *jobstest.FakeScheduler
	ground Ground
	mu     sync.Mutex
	told   []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	fake := jobstest.NewFake()
	dir := t.TempDir()
	f := &fixture{fake: fake, ground: Ground{Dir: dir, Node: "/bin/node", Identity: jobs.Identity{User: "alice", Home: "/home/alice"}}}
	f.Place = &Place{
		Spec:   &jobs.EnvSpec{Version: jobs.EnvVersion, ID: id, Name: "train", Lifetime: time.Minute, Place: jobs.Place{Scheduler: "fake", Backend: jobs.BackendSingularity, Image: "/x.sif"}},
		Record: dir, Ground: func(context.Context) (Ground, error) { return f.ground, nil }, Holder: func() (string, error) { return "/bin/hold", nil }, Scheduler: steps{fake}, Now: time.Now,
		Sleep: func(ctx context.Context, d time.Duration) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
				return nil
			}
		},
	}
	f.Submit = fake.Submit
	if _, _, err := store.CreateEnv(dir, *f.Spec); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) options() keeper.OpenOptions {
	return keeper.OpenOptions{Progress: func(s string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, s)
	}}
}

func (f *fixture) heard() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.told, "\n")
}

type answer struct {
	a    *Allocation
	node string
	err  error
}

func (f *fixture) ask(ctx context.Context, o keeper.OpenOptions) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		a, node, err := f.request(ctx, o)
		c <- answer{a, node, err}
	}()
	return c
}

// name is that of the last allocation in its scheduler.
func (f *fixture) name(t *testing.T) string {
	t.Helper()
	a, err := last(f.Record)
	if err != nil || a == nil {
		t.Fatal(a, err)
	}
	return a.Name
}

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(10 * time.Second)
		f.fake.Start(f.name(t))
		got := <-c
		if got.err != nil || got.node != "fake1" || got.a.Native() != "1" {
			t.Fatalf("%+v", got)
		}
		l := f.fake.Launches()[0]
		want := "/bin/node keep --env " + f.ground.Dir + " --reports " + filepath.Join(got.a.dir, "reports") + " --id " + id
		if strings.Join(l.Argv, " ") != want || l.Dir != got.a.dir || !strings.HasPrefix(l.Name, "berth-env-train-") {
			t.Errorf("launched %+v", l)
		}
		if b, err := os.ReadFile(filepath.Join(got.a.dir, fileScript)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("script %s, %v", b, err)
		}
		if !strings.Contains(f.heard(), "asked fake for an allocation: job 1") || !strings.Contains(f.heard(), "allocation 1 waits in the queue") {
			t.Error(f.heard())
		}
		// The next one finds it.
		if again := <-f.ask(t.Context(), f.options()); again.err != nil || again.a.Number != 1 || f.fake.Calls().Submit != 1 {
			t.Errorf("%+v %+v", again, f.fake.Calls())
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var all []<-chan answer
		for range 8 {
			all = append(all, f.ask(t.Context(), f.options()))
		}
		time.Sleep(5 * time.Second)
		f.fake.Start(f.name(t))
		for _, c := range all {
			if got := <-c; got.err != nil || got.a.Native() != "1" {
				t.Errorf("%+v", got)
			}
		}
		if n := f.fake.Calls().Submit; n != 1 {
			t.Errorf("submitted %d times", n)
		}
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.fake.Submits = func(jobs.Launch) error { return &jobs.Error{Kind: jobs.KindRejected, Msg: "no such partition"} }
		if got := <-f.ask(t.Context(), f.options()); jobs.KindOf(got.err) != jobs.KindRejected {
			t.Fatal(got.err)
		}
		if Wanted(f.Record) {
			t.Error("an allocation that was refused is still wanted")
		}
		f.fake.Submits = nil
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// A key that is not there is told before an allocation is asked for.
func TestNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		o := f.options()
		o.Input = func(context.Context) ([]byte, error) { return nil, errors.New("it is not set") }
		if got := <-f.ask(t.Context(), o); got.err == nil || got.err.Error() != "it is not set" {
			t.Fatal(got.err)
		}
		if n := f.fake.Calls().Submit; n != 0 || Wanted(f.Record) {
			t.Errorf("submitted %d times", n)
		}
	})
}

// Who waits for an allocation of an environment that is removed meanwhile asks
// for no other one: it would be no one's.
func TestRemovedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			c := f.ask(t.Context(), f.options())
			time.Sleep(time.Second)
			other := f.ask(t.Context(), f.options())
			time.Sleep(time.Second)
			f.fake.Set(f.name(t), jobs.Status{State: jobs.StateCancelled, NativeState: "CANCELLED"})
			if err := os.RemoveAll(f.Record); err != nil {
				t.Fatal(err)
			}
			if again {
				spec := *f.Spec
				spec.ID = strings.ReplaceAll(id, "a", "b")
				if _, _, err := store.CreateEnv(f.Record, spec); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []<-chan answer{c, other} {
				if got := <-c; jobs.KindOf(got.err) != jobs.KindAgain || !strings.Contains(got.err.Error(), "was removed while this command waited") {
					t.Errorf("%+v", got)
				}
			}
			if n := f.fake.Calls().Submit; n != 1 {
				t.Errorf("submitted %d times", n)
			}
			if _, err := os.Stat(filepath.Join(f.Record, dirAllocations)); err == nil {
				t.Error("a record in a removed environment")
			}
		})
	}
}

// A way into a suspended allocation begins when that is resumed: this is told.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		<-c
		ctx, cancel := context.WithCancel(t.Context())
		var asking atomic.Bool
		over := make(chan struct{})
		go func() {
			defer close(over)
			f.suspended(ctx, &asking, f.options().Progress)
		}()
		said := func() int { return strings.Count(f.heard(), "allocation 1 is SUSPENDED") }
		time.Sleep(2 * tellAgain)
		asking.Store(true)
		f.fake.Set(f.name(t), jobs.Status{State: jobs.StateRunning, NativeState: "SUSPENDED", Paused: true})
		time.Sleep(2 * tellAgain)
		if said() != 0 {
			t.Error(f.heard())
		}
		asking.Store(false)
		time.Sleep(3 * tellAgain)
		if said() != 3 {
			t.Error(f.heard())
		}
		cancel()
		<-over
	})
}

// Whoever asked was killed: with the job in the scheduler, or before.
func TestKilledInBetween(t *testing.T) {
	for _, there := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			a, won, err := create(f.Record, 1, "train", time.Now())
			if err != nil || !won {
				t.Fatal(won, err)
			}
			if there {
				if _, err := f.fake.Submit(t.Context(), f.launch(a, f.ground), ""); err != nil {
					t.Fatal(err)
				}
				f.fake.Start(a.Name)
			}
			c := f.ask(t.Context(), f.options())
			if time.Sleep(findFirst + askMost); there {
				if got := <-c; got.err != nil || got.a.Number != 1 {
					t.Errorf("%+v", got)
				}
				c = f.ask(t.Context(), f.options())
			} else if n := len(f.fake.Launches()); n != 0 || !strings.Contains(f.heard(), "has not said yet what came of it") {
				t.Errorf("%d jobs, %s", n, f.heard())
			}
			time.Sleep(submitting + time.Minute)
			want := 1
			if !there {
				want = 2
				f.fake.Start(f.name(t))
			}
			if got := <-c; got.err != nil || got.a.Number != want {
				t.Errorf("there %v: %+v", there, got)
			}
			if n := len(f.fake.Launches()); n != 1 {
				t.Errorf("there %v: %d jobs", there, n)
			}
		})
	}
}

// The word of a clock that is wrong neither ends a submission that is under way
// nor keeps one waiting that is none.
func TestOtherClock(t *testing.T) {
	for _, off := range []time.Duration{-skew + time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			a, won, err := create(f.Record, 1, "train", time.Now().Add(off))
			if err != nil || !won {
				t.Fatal(won, err)
			}
			o := f.options()
			o.NoStart = true
			if got := <-f.ask(t.Context(), o); !errors.Is(got.err, keeper.ErrNotRunning) {
				t.Error(got.err)
			}
			f.Immediate = 3 * time.Second
			if got := <-f.ask(t.Context(), f.options()); jobs.KindOf(got.err) != jobs.KindAgain {
				t.Error(got.err)
			}
			f.Immediate = 0
			c := f.ask(t.Context(), f.options())
			time.Sleep(submitting - time.Second)
			if now, err := load(f.Record, 1); err != nil || now.ended != nil {
				t.Errorf("%v: ended %+v, %v", off, now.ended, err)
			}
			time.Sleep(time.Minute)
			f.fake.Start(f.name(t))
			if got := <-c; got.err != nil || got.a.Number != 2 || got.a.ID == a.ID {
				t.Errorf("%v: %+v", off, got)
			}
		})
	}
}

// The directory was made, and not even the record in it.
func TestKilledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		old := dirOf(f.Record, 1)
		if err := os.MkdirAll(old, 0o700); err != nil {
			t.Fatal(err)
		}
		// Files have the machine's clock, and the bubble one of its own.
		if err := os.Chtimes(old, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		c := f.ask(t.Context(), f.options())
		time.Sleep(unknownGrace + 10*time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.fake.LoseReplies = 1
		if got := <-f.ask(t.Context(), f.options()); jobs.KindOf(got.err) != jobs.KindUnclear {
			t.Fatal(got.err)
		}
		if !Wanted(f.Record) {
			t.Error("an allocation that may be there is not wanted")
		}
		c := f.ask(t.Context(), f.options())
		time.Sleep(submitting)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 1 || f.fake.Calls().Submit != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Immediate = 5 * time.Second
		began := time.Now()
		got := <-f.ask(t.Context(), f.options())
		if jobs.KindOf(got.err) != jobs.KindAgain || !strings.Contains(got.err.Error(), "no allocation within 5s") {
			t.Fatal(got.err)
		}
		if d := time.Since(began); d > 7*time.Second {
			t.Errorf("after %v", d)
		}
		if st, _ := f.fake.Status(t.Context(), []jobs.Handle{{NativeID: "1", Name: f.name(t)}}); st[f.name(t)].State != jobs.StateCancelled {
			t.Errorf("left in the queue: %+v", st)
		}
		// Someone else's wait is not ended.
		f.Immediate = 0
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		g := *f.Place
		g.Immediate = time.Second
		if _, _, err := g.request(t.Context(), f.options()); jobs.KindOf(err) != jobs.KindAgain {
			t.Error(err)
		}
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		first := f.name(t)
		f.fake.Start(first)
		<-c
		time.Sleep(time.Hour)
		f.fake.Set(first, jobs.Status{State: jobs.StateTimeout, NativeState: "TIMEOUT"})
		c = f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 || f.name(t) == first {
			t.Errorf("%+v", got)
		}
		if !strings.Contains(f.heard(), "allocation 1 ended (TIMEOUT); another one goes on with the same files") {
			t.Error(f.heard())
		}
		// One that the scheduler has forgotten is over, too.
		f.fake.Forget(f.name(t))
		time.Sleep(time.Hour)
		c = f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 3 {
			t.Errorf("%+v", got)
		}
	})
}

func TestNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		o := f.options()
		o.NoStart = true
		if got := <-f.ask(t.Context(), o); !errors.Is(got.err, keeper.ErrNotRunning) {
			t.Error(got.err)
		}
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		if got := <-f.ask(t.Context(), o); !errors.Is(got.err, keeper.ErrNotRunning) {
			t.Error(got.err)
		}
		if st, err := f.State(t.Context()); err != nil || st == nil || st.State != "PENDING" || st.ID != "1" {
			t.Errorf("%+v %v", st, err)
		}
		f.fake.Start(f.name(t))
		<-c
		if got := <-f.ask(t.Context(), o); got.err != nil || got.node != "fake1" {
			t.Errorf("%+v", got)
		}
		if n := f.fake.Calls().Submit; n != 1 {
			t.Errorf("submitted %d times", n)
		}
	})
}

func TestSchedulerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Fault(func(s *jobstest.FakeScheduler) { s.Queries = errors.New("it is down") })
		time.Sleep(time.Hour)
		if n := strings.Count(f.heard(), "it is down"); n != 1 {
			t.Errorf("said %d times:\n%s", n, f.heard())
		}
		if n := f.fake.Calls().Status; n > 150 || n < 60 {
			t.Errorf("asked %d times in an hour", n)
		}
		f.fake.Fault(func(s *jobstest.FakeScheduler) { s.Queries = nil })
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := f.ask(ctx, f.options())
		time.Sleep(time.Second)
		cancel()
		if got := <-c; !errors.Is(got.err, context.Canceled) {
			t.Error(got.err)
		}
		if !strings.Contains(f.heard(), "stays in the queue for the next command; berth env stop train gives it up") || !Wanted(f.Record) {
			t.Error(f.heard())
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		if err := f.Stop(t.Context(), false); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c := f.ask(ctx, f.options())
		time.Sleep(time.Second)
		cancel()
		<-c
		if left := Left(f.Record); left != "allocation 1" {
			t.Errorf("left %q", left)
		}
		if err := f.Stop(t.Context(), false); err != nil || Wanted(f.Record) || Left(f.Record) != "" {
			t.Error(err)
		}
		if n := f.fake.Calls().Cancel; n != 1 {
			t.Errorf("cancelled %d times", n)
		}
		// One that does not end is told, with a way to look at it.
		c = f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		<-c
		f.Scheduler = deaf{f.fake}
		if err := f.Stop(t.Context(), false); err == nil || !strings.Contains(jobs.HintOf(err), "show job 2") {
			t.Error(err)
		}
	})
}

// deaf ends nothing.
type deaf struct{ *jobstest.FakeScheduler }

func (deaf) Cancel(context.Context, []jobs.Handle) error { return nil }
func (deaf) Step(jobs.Handle, string, []string) jobs.Cmd { return jobs.Cmd{} }

// An allocation that ends before its keeper has opened is not asked for again
// and again.
func TestNeverUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.fake.Submits = func(l jobs.Launch) error {
			go func() {
				time.Sleep(100 * time.Millisecond)
				f.fake.Set(l.Name, jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Reason: "NonZeroExitCode"})
			}()
			return os.WriteFile(filepath.Join(l.Dir, jobs.SchedulerLog), []byte("module: command not found\nberth: this \x1b[31mmodule does not load\n"), 0o600)
		}
		got := <-f.ask(t.Context(), f.options())
		if got.err == nil || !strings.Contains(got.err.Error(), "the allocation 1 ended before the environment was open: FAILED, NonZeroExitCode: berth: this  [31mmodule does not load") {
			t.Error(got.err)
		}
		if n := f.fake.Calls().Submit; n != 1 {
			t.Errorf("submitted %d times", n)
		}
		a, _ := last(f.Record)
		ended := *a.ended
		a.ended.Code = jobs.CodeNotRunnable
		if err := f.over(t.Context(), a); jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) != store.HintNoExec {
			t.Error(err, jobs.HintOf(err))
		}
		a.ended = &ended
		// Its keeper's own word is better.
		said, err := json.Marshal(keeper.Report{Error: "there is no image", Kind: jobs.KindNotFound, Hint: "pull it"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(a.dir, fileReports), append([]byte("junk\n{\"version\":3,\"progress\":\"x\"}\n"), said...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.over(t.Context(), a); err.Error() != "there is no image" || jobs.HintOf(err) != "pull it" {
			t.Error(err)
		}
	})
}

func TestDamaged(t *testing.T) {
	f := newFixture(t)
	a, _, err := create(f.Record, 1, "train", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, fileSubmitted), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.request(t.Context(), f.options())
	if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), fileSubmitted) || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	if !Wanted(f.Record) {
		t.Error("what cannot be read counts as not wanted")
	}
}

// cluster is a site whose file system is another one.
type cluster struct {
	dir   string // where its files are here
	fails error
}

func (c cluster) PutFiles(_ context.Context, dir string, files map[string][]byte) error {
	if c.fails != nil {
		return c.fails
	}
	for name, data := range files {
		at := filepath.Join(c.dir, dir)
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c cluster) ReadFile(_ context.Context, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(c.dir, path))
}

func (c cluster) Local(_ context.Context, cmd jobs.Cmd) (jobs.Cmd, error) {
	return jobs.Cmd{Argv: append([]string{"ssh"}, cmd.Argv...)}, nil
}

func (c cluster) RemoveEnv(context.Context, string, string) error { return nil }

func (c cluster) RemoveFile(context.Context, string, string, string) error { return nil }

// Behind a login host the record and the script go there, in the paths of there,
// and nothing of this machine's.
func TestFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		at := cluster{dir: t.TempDir()}
		f.Far = at
		f.ground = Ground{Dir: "/proj/far/" + id, Node: "/proj/bin/node", Identity: jobs.Identity{User: "ada", Home: "/home/ada"}}
		f.Spec.Login, f.Spec.Target = &jobs.SSHSpec{Host: "login"}, "hpc"
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		got := <-c
		if got.err != nil {
			t.Fatal(got.err)
		}
		l := f.fake.Launches()[0]
		if want := "/proj/bin/node keep --env /proj/far/" + id + " --reports /proj/far/" + id + "/allocations/0001/reports --id " + id; strings.Join(l.Argv, " ") != want || l.Dir != "/proj/far/"+id+"/allocations/0001" || l.Identity.User != "ada" {
			t.Errorf("%+v", l)
		}
		b, err := at.ReadFile(t.Context(), "/proj/far/"+id+"/env.json")
		if err != nil || strings.Contains(string(b), "login") || strings.Contains(string(b), "hpc") || !strings.Contains(string(b), id) {
			t.Errorf("its record there: %v %s", err, b)
		}
		if b, err := at.ReadFile(t.Context(), "/proj/far/"+id+"/allocations/0001/script.sh"); err != nil || strings.Contains(string(b), f.Record) {
			t.Errorf("the script there: %v %s", err, b)
		}
		// What its keeper says there is read there.
		if err := at.PutFiles(t.Context(), "/proj/far/"+id+"/allocations/0001", map[string][]byte{fileReports: []byte("{\"ready\":true,\"notes\":[\"n\"]}\n")}); err != nil {
			t.Fatal(err)
		}
		if r := f.Place.said(t.Context(), got.a); r == nil || !r.Ready || len(r.Notes) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// A link that breaks before sbatch leaves nothing that is waited for.
func TestFarCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		broke := &jobs.Error{Kind: jobs.KindInfra, Msg: "the link broke"}
		f.Far = cluster{dir: t.TempDir(), fails: broke}
		if got := <-f.ask(t.Context(), f.options()); !errors.Is(got.err, broke) {
			t.Error(got.err)
		}
		if Wanted(f.Record) || f.fake.Calls().Submit != 0 {
			t.Error("it is wanted")
		}
		f.Far = cluster{dir: t.TempDir()}
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// What a keeper has written of its end counts at once: the scheduler may take
// some time to clean up behind it, and the next command does not wait for that.
// What is known of the queue may be older than what the keeper has written.
func TestStateCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		if st, err := f.State(t.Context()); err != nil || st.Running || st.Open {
			t.Errorf("in the queue: %+v, %v", st, err)
		}
		f.fake.Start(f.name(t))
		got := <-c
		f.Scheduler = late{f.fake, jobs.StatePending}
		b, err := json.Marshal(keeper.Info{Version: 1, ID: id, Phase: "ready", Allocation: got.a.Native(), Opened: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Record, "keeper.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		for what, sc := range map[string]jobs.Cluster{"alone": f.Scheduler, "with others": AskOnce(t.Context(), f.Scheduler, []jobs.Handle{*Handle(f.Record)})} {
			f.Scheduler = sc
			if st, err := f.State(t.Context()); err != nil || !st.Running || !st.Open {
				t.Errorf("%s: %+v, %v", what, st, err)
			}
		}
	})
}

// late answers with what was, but for who has seen a change.
type late struct {
	*jobstest.FakeScheduler
	was jobs.State
}

func (l late) Status(ctx context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	all, err := l.FakeScheduler.Status(ctx, handles)
	for name, st := range all {
		if _, _, urgent := jobs.Patience(ctx); !urgent {
			st.State = l.was
			all[name] = st
		}
	}
	return all, err
}

func (late) Step(jobs.Handle, string, []string) jobs.Cmd { return jobs.Cmd{} }

func TestKeeperEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		c := f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		got := <-c
		info := keeper.Info{Version: 1, ID: id, Allocation: got.a.Native(), Ended: time.Now(), Why: "it had been idle"}
		b, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Record, "keeper.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if st, err := f.State(t.Context()); st != nil || err != nil {
			t.Errorf("%+v %v", st, err)
		}
		// A job that its site has begun again is given back all the same.
		if err := f.Stop(t.Context(), false); err != nil || f.fake.Calls().Cancel != 1 {
			t.Errorf("%v, cancelled %d times", err, f.fake.Calls().Cancel)
		}
		c = f.ask(t.Context(), f.options())
		time.Sleep(time.Second)
		f.fake.Start(f.name(t))
		if got := <-c; got.err != nil || got.a.Number != 2 {
			t.Errorf("%+v", got)
		}
	})
}
