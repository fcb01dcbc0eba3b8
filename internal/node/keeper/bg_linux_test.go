package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/wire"
	"berth/jobs"
)

// bg asks for an operation on one background process, which must succeed.
func (c *conn) bg(req wire.KeepRequest) wire.BG {
	c.t.Helper()
	a, err := c.keep(req, nil, nil)
	if err != nil || len(a.BG) != 1 {
		c.t.Fatalf("%+v: %+v, %v", req, a, err)
	}
	return a.BG[0]
}

func (c *conn) startBG(shell string) wire.BG {
	c.t.Helper()
	return c.bg(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: wire.Text(shell)}})
}

func (c *conn) logOf(req wire.KeepRequest) string {
	c.t.Helper()
	req.Op = wire.KeepBGLog
	var out syncBuffer
	if _, err := c.keep(req, nil, &out); err != nil {
		c.t.Fatal(err)
	}
	return out.String()
}

// A background process is begun by one client and used by another.
func TestBackground(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	started := c.bg(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Argv: wire.Texts([]string{"sh", "-c", "echo begin; sleep 0.2; echo err >&2; while read l; do echo got $l $X $FROM_SPEC; done; echo end; exit 3"}), Env: wire.Texts([]string{"X=secret"}), Dir: "/usr"}})
	if started.ID != "bg-1" || !started.Running || started.Exit != nil || len(started.Command.Argv) != 3 {
		t.Errorf("%+v", started)
	}
	_ = c.Close()
	d := e.open()
	eventually(t, "the log", func() bool { return len(d.logOf(wire.KeepRequest{ID: "bg-1"})) == len("begin\nerr\n") })
	if a, err := d.keep(wire.KeepRequest{Op: wire.KeepBGWrite, ID: "bg-1"}, strings.NewReader("one\ntwo\n"), nil); err != nil || !a.BG[0].Running {
		t.Fatalf("%+v, %v", a, err)
	}
	eventually(t, "the answer", func() bool {
		return strings.HasSuffix(d.logOf(wire.KeepRequest{ID: "bg-1"}), "got one secret spec\ngot two secret spec\n")
	})
	if got := d.logOf(wire.KeepRequest{ID: "bg-1", Offset: -5}); got != "spec\n" {
		t.Errorf("%q", got)
	}
	if got := d.logOf(wire.KeepRequest{ID: "bg-1", Offset: 6}); !strings.HasPrefix(got, "err\ngot one") {
		t.Errorf("%q", got)
	}
	if st := d.state(); st.BG != 1 || st.Running != 0 || st.Idle != 0 {
		t.Errorf("%+v", st)
	}
	// Two follow it to its end, a third waits for it.
	follow := make(chan string, 2)
	for range 2 {
		f := e.open()
		go func() {
			var out syncBuffer
			a, err := f.keep(wire.KeepRequest{Op: wire.KeepBGLog, ID: "bg-1", Follow: true}, nil, &out)
			follow <- fmt.Sprint(out.String(), a.BG[0].Exit, err)
		}()
	}
	waited := make(chan string, 1)
	w := e.open()
	go func() {
		a, err := w.keep(wire.KeepRequest{Op: wire.KeepBGWait, ID: "bg-1"}, nil, nil)
		waited <- fmt.Sprint(a.BG[0].Exit, a.BG[0].Running, err)
	}()
	if a, err := d.keep(wire.KeepRequest{Op: wire.KeepBGWrite, ID: "bg-1", Close: true}, strings.NewReader("three\n"), nil); err != nil {
		t.Fatalf("%+v, %v", a, err)
	}
	for range 2 {
		if got := <-follow; !strings.HasSuffix(got, "got three secret spec\nend\nexit code 3 <nil>") {
			t.Errorf("%q", got)
		}
	}
	if got := <-waited; got != "exit code 3 false <nil>" {
		t.Errorf("%q", got)
	}
	// After its end.
	if v := d.bg(wire.KeepRequest{Op: wire.KeepBGWait, ID: "bg-1"}); v.Running || v.Exit.Code != 3 || v.Log == 0 || v.Ended.Before(v.Started) {
		t.Errorf("%+v", v)
	}
	if v := d.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: "bg-1"}); v.Running {
		t.Errorf("%+v", v)
	}
	if got := d.logOf(wire.KeepRequest{ID: "bg-1", Follow: true}); !strings.HasSuffix(got, "end\n") {
		t.Errorf("%q", got)
	}
	if _, err := d.keep(wire.KeepRequest{Op: wire.KeepBGWrite, ID: "bg-1"}, strings.NewReader("x"), nil); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
	all, err := d.keep(wire.KeepRequest{Op: wire.KeepBGList}, nil, nil)
	if err != nil || len(all.BG) != 1 || all.BG[0].Exit.Code != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	// Nothing that it was given is on the disk.
	for _, name := range []string{bgStartFile, bgEndFile} {
		b, err := os.ReadFile(filepath.Join(e.dir, dirBG, "bg-1", name))
		if err != nil || strings.Contains(string(b), "secret") {
			t.Errorf("%s, %v", b, err)
		}
	}
}

func TestBackgroundKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	deaf := c.startBG(`trap "" TERM; (trap "" TERM; setsid sleep 1000 &); echo ready; sleep 1000`)
	usr := c.startBG(`trap "echo usr; exit 7" USR1; echo ready; while :; do sleep 0.02; done`)
	for _, b := range []wire.BG{deaf, usr} {
		eventually(t, "it runs", func() bool { return c.logOf(wire.KeepRequest{ID: b.ID}) == "ready\n" })
	}
	if v := c.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: usr.ID, Signal: int(syscall.SIGUSR1)}); v.ID != usr.ID {
		t.Errorf("%+v", v)
	}
	if v := c.bg(wire.KeepRequest{Op: wire.KeepBGWait, ID: usr.ID}); v.Exit.Code != 7 {
		t.Errorf("%+v", v)
	}
	if v := c.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: deaf.ID, Grace: 200 * time.Millisecond}); v.Running || v.Exit.Signal != 9 {
		t.Errorf("%+v", v)
	}
	for _, line := range e.processes() {
		if strings.Contains(line, "sleep 1000") {
			t.Errorf("left: %s", line)
		}
	}
	for _, op := range []string{wire.KeepBGLog, wire.KeepBGWait, wire.KeepBGWrite, wire.KeepBGKill} {
		for _, id := range []string{"bg-99", "", "../x", "bg-1x", "bg-01", "bg-0"} {
			if _, err := c.keep(wire.KeepRequest{Op: op, ID: id}, nil, nil); jobs.KindOf(err) != jobs.KindNotFound || jobs.HintOf(err) != "berth bg list" {
				t.Errorf("%s %q: %v", op, id, err)
			}
		}
	}
	if _, err := c.keep(wire.KeepRequest{Op: "new"}, nil, nil); err == nil {
		t.Error("an unknown request")
	}
	if _, err := c.keep(wire.KeepRequest{Op: wire.KeepBGStart}, nil, nil); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
	if v := c.startBG("exec /no/such/program"); v.ID != "bg-3" {
		t.Errorf("%+v", v)
	} else if v := c.bg(wire.KeepRequest{Op: wire.KeepBGWait, ID: v.ID}); v.Exit.Code != 127 && v.Exit.Code != 126 {
		t.Errorf("%+v", v)
	}
}

// A process that does not read holds up whoever writes to it, and no one else;
// a writer that leaves is let go.
func TestBackgroundDeaf(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	b := c.startBG("sleep 1000")
	go func() {
		_, _ = c.keep(wire.KeepRequest{Op: wire.KeepBGWrite, ID: b.ID}, bytes.NewReader(make([]byte, 5<<20)), nil)
	}()
	if out, _ := d.sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
	time.Sleep(50 * time.Millisecond) // the pipes fill up
	_ = c.Close()
	if v := d.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: b.ID}); v.Running {
		t.Errorf("%+v", v)
	}
}

func TestBackgroundLimit(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	for range maxRunning {
		c.startBG("sleep 1000")
	}
	if _, err := c.keep(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "true"}}, nil, nil); jobs.KindOf(err) != jobs.KindAgain || !strings.Contains(jobs.HintOf(err), "berth bg kill") {
		t.Error(err)
	}
	c.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: "bg-7"})
	c.startBG("true")
}

// What ran when its keeper was killed is lost, and is said to be.
func TestBackgroundLost(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	c.startBG("echo some; sleep 1000")
	c.startBG("exit 4")
	c.bg(wire.KeepRequest{Op: wire.KeepBGWait, ID: "bg-2"})
	eventually(t, "it says something", func() bool { return c.logOf(wire.KeepRequest{ID: "bg-1"}) != "" })
	if err := syscall.Kill(e.info().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Gone()
	d := e.open()
	a, err := d.keep(wire.KeepRequest{Op: wire.KeepBGList}, nil, nil)
	if err != nil || len(a.BG) != 2 || a.BG[0].Lost != "the environment ended while it ran" || a.BG[0].Exit != nil || a.BG[0].Running || a.BG[0].Log != 5 || a.BG[1].Exit == nil || a.BG[1].Exit.Code != 4 {
		t.Errorf("%+v, %v", a, err)
	}
	if got := d.logOf(wire.KeepRequest{ID: "bg-1", Follow: true}); got != "some\n" {
		t.Errorf("%q", got)
	}
	if v := d.startBG("true"); v.ID != "bg-3" {
		t.Errorf("%+v", v)
	}
}

// The records of old ones go, those of what runs stay.
func TestPrune(t *testing.T) {
	k := &keeper{dir: t.TempDir()}
	b, err := newBackground(k)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= keptRecords+5; n++ {
		dir := b.path(bgID(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.live["bg-2"] = &process{}
	b.prune()
	ids, err := bgIDs(b.dir)
	if err != nil || len(ids) != keptRecords+1 || ids[0] != 2 || ids[1] != 6 {
		t.Errorf("%d: %v, %v", len(ids), ids[:3], err)
	}
}

func TestLogLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := newBGLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l.size = int64(maxLog) - 10
	for _, s := range []string{"12345", "67890abc", "more"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "1234567890\nberth: only the first 256MiB of the log are kept\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, cut := l.state(); !cut {
		t.Error("not cut")
	}
}
