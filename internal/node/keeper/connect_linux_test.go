package keeper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
	"berth/jobs/store"
)

// far is `connect` as ssh would run it.
type far struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr *bufio.Reader
}

func (e *env) connect(args ...string) *far {
	e.t.Helper()
	o := e.options()
	f := &far{cmd: exec.Command(o.Node, append([]string{"connect", "--env", e.dir}, args...)...)}
	f.cmd.Env = o.Env
	var err error
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		e.t.Fatal(err)
	}
	if f.out, err = f.cmd.StdoutPipe(); err != nil {
		e.t.Fatal(err)
	}
	stderr, err := f.cmd.StderrPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	f.stderr = bufio.NewReader(stderr)
	if err := f.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = f.cmd.Process.Kill(); _ = f.cmd.Wait() })
	return f
}

// last reads reports up to the last.
func (f *far) last(t *testing.T) Report {
	t.Helper()
	for {
		line, err := f.stderr.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutPrefix(line, ConnectPrefix)
		if !ok {
			t.Fatalf("%q", line)
		}
		var r Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if r.Ready || r.Err() != nil {
			return r
		}
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	if err := os.RemoveAll(e.dir); err != nil {
		t.Fatal(err)
	}
	f := e.connect("--no-start")
	if r := f.last(t); !errors.Is(r.Err(), ErrNotRunning) {
		t.Errorf("%+v", r)
	}
	if err := f.cmd.Wait(); f.cmd.ProcessState.ExitCode() != jobs.CodeNotFound {
		t.Error(err)
	}
	f = e.connect()
	if r := f.last(t); jobs.KindOf(r.Err()) != jobs.KindNotFound {
		t.Errorf("%+v", r)
	}
	// The record comes first, and the conversation may be right behind it.
	f = e.connect("--make")
	if err := WriteSpec(f.in, &e.spec); err != nil {
		t.Fatal(err)
	}
	if r := f.last(t); !r.Ready || r.Rebuilt != "" || strings.Join(r.Notes, "") != "a note" {
		t.Errorf("%+v", r)
	}
	s, err := session.Open(t.Context(), f.out, f.in, session.Options{PingTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{Session: s, t: t}
	if out, _ := c.sh("", "echo x; cat"); out != "x\n" {
		t.Errorf("%q", out)
	}
	b := c.startBG("sleep 1000")
	// The link is cut: foreground ends, background does not.
	p := c.start("", "sleep 1000", nil)
	_ = f.cmd.Process.Kill()
	if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) {
		t.Error(err)
	}
	d := e.open()
	eventually(t, "the command is ended", func() bool { return d.state().Running == 0 })
	if v := d.bg(wire.KeepRequest{Op: wire.KeepBGKill, ID: b.ID}); v.Exit == nil {
		t.Errorf("%+v", v)
	}
	// The end of the conversation is the end of the program, on either side.
	f = e.connect("--make", "--no-start")
	if err := WriteSpec(f.in, &e.spec); err != nil {
		t.Fatal(err)
	}
	f.last(t)
	_ = f.in.Close()
	if err := f.cmd.Wait(); err != nil {
		t.Error(err)
	}
	f = e.connect()
	f.last(t)
	_, _ = d.keep(wire.KeepRequest{Op: wire.KeepStop}, nil, nil)
	if _, err := io.Copy(io.Discard, f.out); err != nil {
		t.Error(err)
	}
	if err := f.cmd.Wait(); err != nil {
		t.Error(err)
	}
	// Another environment in the same place is refused.
	other := e.spec
	other.ID = "another"
	f = e.connect("--make")
	if err := WriteSpec(f.in, &other); err != nil {
		t.Fatal(err)
	}
	if r := f.last(t); jobs.KindOf(r.Err()) != jobs.KindConfig {
		t.Errorf("%+v", r)
	}
	for _, said := range []string{"\n", "{}\n", "x", `{"version":1,"id":"x","name":"../x"}` + "\n", strings.Repeat(" ", maxSpec+10)} {
		f = e.connect("--make")
		_, _ = io.WriteString(f.in, said)
		_ = f.in.Close()
		if r := f.last(t); jobs.KindOf(r.Err()) != jobs.KindUsage {
			t.Errorf("%+v", r)
		}
	}
	if got, err := store.LoadEnv(e.dir); err != nil || got.ID != e.spec.ID {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"--env", "x", "y"}, {"--what"}} {
		var said bytes.Buffer
		if code := ConnectMain(args, nil, nil, &said); code != jobs.CodeUsage || !strings.Contains(said.String(), "-env") {
			t.Errorf("exit %d: %s", code, said.String())
		}
	}
	if _, _, err := connect("relative", false, true, nil, nil); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
}

// What comes while the environment ends is refused before it runs, and can be
// told from what did run.
func TestEndingRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	var out syncBuffer
	c.start("", `trap "" TERM; echo ready; while :; do sleep 0.02; done`, &out)
	eventually(t, "it runs", func() bool { return strings.Contains(out.String(), "ready") })
	stop := e.info().PID
	if err := syscall.Kill(stop, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(e.tmp, "ran")
	ran := 0
	for again := false; !again; {
		p, err := d.Start(session.StartRequest{Command: jobs.Command{Shell: "echo x >>" + file}}, nil, nil)
		if err == nil {
			var res session.Result
			if res, err = p.Wait(); err == nil && res.Exit.OK() {
				ran++
			}
		}
		if again = errors.Is(err, session.ErrAgain); !again && err != nil {
			break // it was under way
		}
	}
	b, _ := os.ReadFile(file)
	if n := strings.Count(string(b), "x"); n < ran || n > ran+1 {
		t.Errorf("it ran %d times, and %d were told", n, ran)
	}
	next := e.open()
	if !strings.Contains(next.rep.Rebuilt, "ended by a signal") {
		t.Errorf("%+v", next.rep)
	}
}

// A keeper that hangs is told from one that is gone.
func TestHangingKeeper(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	e.open()
	pid := e.info().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
	o := e.options()
	o.Wait = 300 * time.Millisecond
	if _, err := e.tryOpen(o); err == nil || !strings.Contains(err.Error(), "not open within 300ms") {
		t.Error(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if out, _ := e.open().sh("", "echo x"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

func TestFlow(t *testing.T) {
	f := newFlow(&wire.StartMessage{TTY: &wire.Size{}})
	for _, c := range []struct {
		what string
		got  error
		ok   bool
	}{
		{"a whole window", f.data(f.up, wire.Stdin, wire.Window), true},
		{"one more", f.data(f.up, wire.Stdin, 1), false},
		{"too much credit", f.credit(f.up, wire.Stdin, wire.Window+1), false},
		{"no credit", f.credit(f.up, wire.Stdin, 0), false},
		{"credit", f.credit(f.up, wire.Stdin, 10), true},
		{"as much", f.data(f.up, wire.Stdin, 10), true},
		{"the end", f.data(f.up, wire.Stdin, 0), true},
		{"behind it", f.data(f.up, wire.Stdin, 0), false},
		{"a prompt", f.data(f.up, wire.PromptData, 1), false},
		{"output", f.data(f.down, wire.Stdout, 100), true},
		{"no such output", f.data(f.down, wire.Stdin, 100), false},
		{"its end", f.data(f.down, wire.Stdout, 0), true},
		{"the other end", f.data(f.down, wire.Stderr, 0), true},
	} {
		if (c.got == nil) != c.ok {
			t.Errorf("%s: %v", c.what, c.got)
		}
	}
	if owed := f.owed(); len(owed) != 1 || owed[wire.Stdout] != 100 || len(f.owed()) > 0 {
		t.Errorf("%v", owed)
	}
	if f.over() || !f.exit() || f.exit() || !f.over() {
		t.Error("it is over with its exit, and that counts once")
	}
}

// The last words of a keeper that does not read any more arrive: they tell the
// client that what it has just sent was not touched.
func TestLastWords(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, its := os.NewFile(uintptr(fds[0]), "client"), os.NewFile(uintptr(fds[1]), "keeper")
	defer func() { _ = its.Close() }()
	if err := unix.Shutdown(fds[1], unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan struct{})
	go func() {
		joined(mine, r, &out)
		close(done)
	}()
	for range 3 { // each is read only after the one before it was sent, in vain
		if _, err := w.Write([]byte("too late")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := its.WriteString("last words"); err != nil {
		t.Fatal(err)
	}
	_ = its.Close()
	<-done
	if out.String() != "last words" {
		t.Errorf("%q", out.String())
	}
	_ = w.Close()
}
