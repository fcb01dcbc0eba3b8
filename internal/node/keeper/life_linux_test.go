package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/jobs/store"
)

// An idle environment ends, but not under a command, a background process or a
// client that was just let in.
func TestIdle(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(s *jobs.EnvSpec) { s.Lifetime = 2 * time.Second })
	p := quick
	p.Accept = slow
	e.periods = &p
	c := e.open()
	first := e.info()
	var out syncBuffer
	until := func(what string) string {
		return "until [ -e " + filepath.Join(e.tmp, what) + " ]; do sleep 0.02; done; echo done"
	}
	cmd := c.start("", until("cmd"), &out)
	time.Sleep(p.Accept + 2*e.spec.Lifetime)
	b := c.startBG(until("bg")) // so that something always runs
	write := func(name string) {
		if err := writeFile(e.tmp, name, ""); err != nil {
			t.Fatal(err)
		}
	}
	write("cmd")
	if res, err := cmd.Wait(); err != nil || !res.Exit.OK() || out.String() != "done\n" {
		t.Errorf("%+v, %v, %q", res, err, out.String())
	}
	time.Sleep(2 * e.spec.Lifetime)
	waited := make(chan wire.KeepAnswer, 1)
	go func() {
		a, err := c.keep(wire.KeepRequest{Op: wire.KeepBGWait, ID: b.ID}, nil, nil)
		if err != nil {
			t.Error(err)
		}
		waited <- a
	}()
	time.Sleep(100 * time.Millisecond) // it waits
	write("bg")
	if a := <-waited; len(a.BG) != 1 || a.BG[0].Exit == nil || a.BG[0].Exit.Code != 0 {
		t.Errorf("%+v", a)
	}
	<-c.Gone()
	if i := e.info(); i.PID != first.PID || i.Running || !strings.Contains(i.Why, "idle for 2s") {
		t.Errorf("%+v", i)
	}
	d := e.open()
	if !strings.Contains(d.rep.Rebuilt, "it had been idle for 2s") || !strings.Contains(d.rep.Rebuilt, "sessions are new") {
		t.Errorf("%+v", d.rep)
	}
}

// Whoever asks for the state, again and again, does not keep an environment.
func TestIdleAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := newLife(4*time.Second, 5*time.Second)
		l.open()
		go l.run(t.Context())
		for asked := 0; l.Why() == nil; asked++ {
			if asked > 10 {
				t.Fatal("it goes on for as long as it is asked")
			}
			c := &client{}
			if l.accept(c) {
				time.Sleep(100 * time.Millisecond)
				l.answered(c)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// A client that was accepted and has said nothing yet is waited for, for a while.
func TestIdleAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(time.Second, 5*time.Second)
		go l.run(t.Context())
		time.Sleep(900 * time.Millisecond)
		c := &client{}
		if !l.accept(c) {
			t.Fatal("refused")
		}
		time.Sleep(4 * time.Second)
		if l.Why() != nil || !l.begin() {
			t.Fatal("it has ended under its client")
		}
		l.answered(c)
		time.Sleep(time.Minute)
		l.end()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if l.Why() == nil {
			t.Error("it goes on")
		}
	})
}

// Clients that come while the environment ends again and again lose nothing:
// a command runs once, or is refused before it ran.
func TestIdleRace(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(s *jobs.EnvSpec) { s.Lifetime = 10 * time.Millisecond })
	p := quick
	p.Accept = 50 * time.Millisecond
	e.periods = &p
	var all sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i := range 4 {
		all.Go(func() {
			for j := range 12 {
				file := filepath.Join(e.tmp, fmt.Sprintf("%d-%d", i, j))
				for done := false; !done; {
					rw, _, err := Open(t.Context(), e.dir, e.options())
					if jobs.KindOf(err) == jobs.KindAgain {
						continue // it ended each time before this one, on a busy machine, had connected
					}
					if err != nil {
						t.Error(err)
						return
					}
					s, err := session.Open(t.Context(), rw, rw, session.Options{PingTimeout: -1})
					if err != nil {
						continue
					}
					p, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: "echo x >>" + file}}, nil, nil)
					if err == nil {
						var res session.Result
						res, err = p.Wait()
						done = err == nil && res.Exit.OK()
					}
					if errors.Is(err, session.ErrAgain) {
						mu.Lock()
						refused++
						mu.Unlock()
						if _, err := os.Stat(file); err == nil {
							t.Error("refused, and it has run")
						}
					}
					_ = s.Close()
				}
				if b, err := os.ReadFile(file); err != nil || string(b) != "x\n" {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d were refused", refused)
}

// A stop ends what runs, and everybody is told how; nothing is left when the
// streams close.
func TestStop(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	periods := quick
	periods.Grace = slow // for the one that says bye
	e.periods = &periods
	c, d := e.open(), e.open()
	var out syncBuffer
	p := c.start("", `trap "echo bye; exit 9" TERM; echo ready; while :; do sleep 0.02; done`, &out)
	b := c.startBG(`trap "" TERM; echo ready; sleep 1000`)
	eventually(t, "they run", func() bool {
		return strings.Contains(out.String(), "ready") && c.logOf(wire.KeepRequest{ID: b.ID}) != ""
	})
	if _, err := d.keep(wire.KeepRequest{Op: wire.KeepStop}, nil, nil); err == nil {
		t.Error("an answer to a stop")
	}
	<-d.Gone()
	if len(e.processes()) > 1 { // the keeper itself may be on its last line
		t.Errorf("%v", e.processes())
	}
	if Alive(e.dir) {
		t.Error("the lease is not given back")
	}
	if res, err := p.Wait(); err != nil || res.Exit.Code != 9 || !strings.Contains(out.String(), "\nbye\n") {
		t.Errorf("%+v, %v, %q", res, err, out.String())
	}
	if _, end, err := loadBG(filepath.Join(e.dir, dirBG, b.ID)); err != nil || end == nil || end.Exit == nil || end.Exit.Signal != 9 {
		t.Errorf("%+v, %v", end, err)
	}
	if _, err := e.tryOpen(OpenOptions{NoStart: true}); !errors.Is(err, ErrNotRunning) {
		t.Error(err)
	}
	if rep := e.open().rep; !strings.Contains(rep.Rebuilt, "(it was stopped)") {
		t.Errorf("%+v", rep)
	}
}

// Whatever is killed, the next one opens, says so, and nothing is left.
func TestKilled(t *testing.T) {
	for name, c := range map[string]struct {
		who     func(*env) int
		sig     syscall.Signal
		lost    string // what a client with a running command is told
		rebuilt string
	}{
		"keeper":        {func(e *env) int { return e.info().PID }, syscall.SIGKILL, "guest is gone", "its keeper was killed"},
		"guest":         {func(e *env) int { return e.info().Inside[0].PID }, syscall.SIGKILL, "the guest in it is gone", "the guest in it is gone"},
		"guest stopped": {func(e *env) int { return e.info().Inside[0].PID }, syscall.SIGSTOP, "did not answer", "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, nil)
			k := e.open()
			var out syncBuffer
			p := k.start("", `echo ready; (setsid sleep 1000 &); sleep 1000`, &out)
			k.startBG("sleep 1000")
			eventually(t, "it runs", func() bool { return strings.Contains(out.String(), "ready") })
			if err := syscall.Kill(c.who(e), c.sig); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) || !strings.Contains(err.Error(), c.lost) {
				t.Error(err)
			}
			next := e.open()
			if !strings.Contains(next.rep.Rebuilt, c.rebuilt) {
				t.Errorf("%+v", next.rep)
			}
			for _, line := range e.processes() {
				if strings.Contains(line, "sleep 1000") {
					t.Errorf("left: %s", line)
				}
			}
			if out, _ := next.sh("", "echo x"); out != "x\n" {
				t.Errorf("%q", out)
			}
			if dirs, _ := filepath.Glob(filepath.Join(e.tmp, "berth-*")); len(dirs) != 1 {
				t.Errorf("%q", dirs)
			}
		})
	}
}

// What comes between the guest's death and the end of the keeper has not begun,
// and may be asked again.
func TestJustGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	hit := c.start("", "sleep 1000", nil)
	<-hit.Begun()
	if err := syscall.Kill(e.info().Inside[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		p, err := d.Session.Start(session.StartRequest{Command: jobs.Command{Shell: "true"}}, nil, nil)
		if err == nil {
			_, err = p.Wait()
		}
		if err == nil {
			continue // it was not yet dead
		}
		if !errors.Is(err, session.ErrAgain) && !strings.Contains(err.Error(), "guest in it is gone") {
			t.Error(err)
		}
		break
	}
	if _, err := hit.Wait(); !errors.Is(err, session.ErrGuestGone) || errors.Is(err, session.ErrAgain) {
		t.Error(err)
	}
	f := e.open()
	if err := syscall.Kill(e.info().Inside[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := f.keep(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "true"}}, nil, nil)
	if err != nil && !errors.Is(err, session.ErrAgain) {
		t.Error(err)
	}
}

// Keeper and guest killed at once, with the guest stopped before: what cannot
// leave is killed by the next keeper.
func TestStuckGuest(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	p := quick
	p.GuestWait, p.Silent = slow, slow+time.Second
	e.periods = &p
	e.open()
	i := e.info()
	for _, s := range []struct {
		pid int
		sig syscall.Signal
	}{{i.Inside[0].PID, syscall.SIGSTOP}, {i.PID, syscall.SIGKILL}} {
		if err := syscall.Kill(s.pid, s.sig); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := e.open().sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	if i.Inside[0].alive() {
		t.Error("the stopped guest is still there")
	}
}

// A part of the container's file system that ends makes an end.
func TestLostFuse(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(e.tmp, "fuse-overlayfs")
	if err := os.Symlink(self, helper); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(e.dir, "argv", "sh\n-c\n\"$0\" sleep & until [ \"$(cat /proc/$!/comm)\" = fuse-overlayfs ]; do sleep 0.01; done; exec \"$@\"\n"+helper); err != nil {
		t.Fatal(err)
	}
	c := e.open()
	p := c.start("", "sleep 1000", nil)
	found := false
	for pid, line := range e.processes() {
		if strings.HasSuffix(line, "fuse-overlayfs sleep ") {
			found = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	if !found {
		t.Fatal("no helper")
	}
	if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) || !strings.Contains(err.Error(), "file system died (fuse-overlayfs ended)") {
		t.Error(err)
	}
	if rep := e.open().rep; !strings.Contains(rep.Rebuilt, "file system died") {
		t.Errorf("%+v", rep)
	}
}

// Many at once get one keeper.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	opened := map[time.Time]int{}
	for range 8 {
		all.Go(func() {
			c, err := e.tryOpen(e.options())
			if err != nil {
				t.Error(err)
				return
			}
			st := c.state()
			mu.Lock()
			opened[st.Opened]++
			opened[c.rep.Opened]++
			mu.Unlock()
		})
	}
	all.Wait()
	if len(opened) != 1 {
		t.Errorf("%v", opened)
	}
}

// What a crash may leave on the disk stops no one.
func TestStale(t *testing.T) {
	for name, leave := range map[string]func(e *env, sock string) error{
		"socket": func(e *env, sock string) error { return os.WriteFile(sock, nil, 0o600) },
		"keeper.json": func(e *env, sock string) error {
			return writeFile(e.dir, fileInfo, `{"version": 1, "phase": "ready", "socket": "`+sock+`", "host": "elsewhere", "pid": 1}`)
		},
		"used pid": func(e *env, sock string) error {
			i := Info{Version: 1, Phase: phaseReady, Process: lease.Self(), Socket: sock, Inside: []Inside{{PID: os.Getpid(), Start: "1"}}}
			i.Start = "1"
			return i.save(e.dir)
		},
		"log of another": func(e *env, _ string) error { return writeFile(e.dir, fileLog, strings.Repeat("x\n", 1<<20)) },
		"beat":           func(e *env, _ string) error { return store.Beat(e.dir, 7, time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, nil)
			dir, err := socket.Dir()
			if err != nil {
				t.Fatal(err)
			}
			if err := leave(e, filepath.Join(dir, socket.Name("keep", e.spec.ID, e.dir))); err != nil {
				t.Fatal(err)
			}
			if out, _ := e.open().sh("", "echo x"); out != "x\n" {
				t.Errorf("%q", out)
			}
			if fi, err := os.Stat(filepath.Join(e.dir, fileLog)); err != nil || fi.Size() > container.MaxLog {
				t.Errorf("%v, %v", fi, err)
			}
		})
	}
}

// An environment that is held on another machine stays there, until its holder
// is silent.
func TestHeldElsewhere(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	p := quick
	p.Silent = slow
	e.periods = &p
	o := lease.Owner{Version: 1, Environment: "test", Dir: e.dir, Host: "elsewhere", BootID: "other/1", PID: 7, Time: time.Now()}
	if _, err := lease.Acquire(e.dir, o, nil); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		for n := 1; ; n++ {
			_ = store.Beat(e.dir, n, time.Now())
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	if !Alive(e.dir) {
		t.Error("nobody is there")
	}
	_, err := e.tryOpen(e.options())
	if jobs.KindOf(err) != jobs.KindAgain || !strings.Contains(err.Error(), "open on elsewhere (process 7)") || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	close(stop)
	beating.Wait()
	if out, _ := e.open().sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// A keeper whose lease is another's lets everything go and touches nothing.
func TestFenced(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	p := c.start("", "sleep 1000", nil)
	other := lease.Owner{Version: 1, Environment: "test", Dir: e.dir, Host: "elsewhere", BootID: "other/1", PID: 7, Time: time.Now()}
	l, err := lease.Acquire(e.dir, other, func(lease.Owner) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	before := e.info()
	if res, err := p.Wait(); err == nil && res.Exit.OK() {
		t.Errorf("%+v", res)
	}
	<-c.Gone()
	if now := e.info(); now.Phase != before.Phase || !l.Stands() {
		t.Errorf("%+v", now)
	}
	eventually(t, "it is gone", func() bool { return len(e.processes()) == 0 })
	_ = os.Remove(before.Socket) // the other's, by then
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

// Who removes an environment has it for themselves.
func TestHold(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	if _, err := Hold(e.dir, e.spec.ID); jobs.KindOf(err) != jobs.KindAgain || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	o := e.options()
	o.ID = "other"
	if _, err := e.tryOpen(o); jobs.KindOf(err) != jobs.KindAgain || !strings.Contains(err.Error(), "another one") {
		t.Error(err)
	}
	if _, err := c.keep(wire.KeepRequest{Op: wire.KeepStop}, nil, nil); err == nil {
		t.Error("an answer to a stop")
	}
	<-c.Gone()
	for _, noStart := range []bool{false, true} {
		o.NoStart = noStart
		if _, err := e.tryOpen(o); err == nil || noStart != errors.Is(err, ErrNotRunning) {
			t.Error(err)
		}
	}
	if _, err := Hold(e.dir, "other"); jobs.KindOf(err) != jobs.KindAgain {
		t.Error(err)
	}
	release, err := Hold(e.dir, e.spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	// A keeper that is started meanwhile waits.
	o = e.options()
	o.ID, o.Progress = e.spec.ID, func(string) { release() }
	d, err := e.tryOpen(o)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := d.sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// What hinders the opening is told, with its kind and hint, and nothing stays.
func TestCannotOpen(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	if err := writeFile(e.dir, "fail", "no image"); err != nil {
		t.Fatal(err)
	}
	_, err := e.tryOpen(e.options())
	if jobs.KindOf(err) != jobs.KindConfig || err.Error() != "no image" || jobs.HintOf(err) != "fix it" {
		t.Error(err)
	}
	if i := e.info(); i != nil || Alive(e.dir) {
		t.Errorf("%+v", i)
	}
	_ = os.Remove(filepath.Join(e.dir, "fail"))
	if err := writeFile(e.dir, "argv", "sh\n-c\necho why not >&2; exit 3"); err != nil {
		t.Fatal(err)
	}
	if _, err = e.tryOpen(e.options()); err == nil || !strings.Contains(err.Error(), "why not") || !strings.Contains(jobs.HintOf(err), fileLog) {
		t.Error(err)
	}
	_ = os.Remove(filepath.Join(e.dir, "argv"))
	if rep := e.open().rep; rep.Rebuilt != "" {
		t.Errorf("%+v", rep)
	}
	f := newEnv(t, func(s *jobs.EnvSpec) { s.Backend = "other" })
	if _, err = f.tryOpen(f.options()); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "other") {
		t.Error(err)
	}
	if _, _, err = Open(t.Context(), filepath.Join(e.tmp, "none"), e.options()); err == nil {
		t.Error("there is no such environment")
	}
	o := e.options()
	o.Node = "/bin/true"
	g := newEnv(t, nil)
	if _, _, err = Open(t.Context(), g.dir, o); err == nil || !strings.Contains(err.Error(), "ended before") {
		t.Error(err)
	}
}

// Memory over its limit ends what holds most of it, and says so.
func TestMemory(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(s *jobs.EnvSpec) { s.Resources.Memory = 300 * jobs.MiB })
	c := e.open()
	small := c.start("", "sleep 1000", nil)
	var out syncBuffer
	res, err := c.start("", `x=$(head -c 500000000 /dev/zero | tr '\0' x); echo ${#x}; sleep 1000`, &out).Wait()
	if err != nil || !res.Exit.OOM || res.Exit.Code != 137 || !strings.Contains(res.Exit.Error, "300MiB") {
		t.Errorf("%+v, %v, %q", res, err, out.String())
	}
	if st := c.state(); st.Running != 1 || !strings.Contains(strings.Join(st.Notes, "\n"), "was ended") {
		t.Errorf("%+v", st)
	}
	_ = small.Terminate(0)
}

func TestReports(t *testing.T) {
	for _, err := range []error{nil, ErrNotRunning, &jobs.Error{Kind: jobs.KindConfig, Msg: "x", Hint: "y"}} {
		r := Report{Version: wire.Version, Ready: true}
		if err != nil {
			r = Failed(err)
		}
		b, jerr := json.Marshal(r)
		if jerr != nil {
			t.Fatal(jerr)
		}
		var back Report
		if jerr := json.Unmarshal(b, &back); jerr != nil {
			t.Fatal(jerr)
		}
		got := back.Err()
		if (got == nil) != (err == nil) || errors.Is(err, ErrNotRunning) != errors.Is(got, ErrNotRunning) || jobs.KindOf(got) != jobs.KindOf(err) || jobs.HintOf(got) != jobs.HintOf(err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
