package mux

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/backends/local"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/guest"
	"berth/internal/node/keeper"
	"berth/internal/sys/leaks"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/jobs/store"
)

// TestMain makes this binary its own holder, far side, keeper and guest.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guest":
			leave(guest.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "keep":
			leave(keeper.Main(os.Args[2:], []jobs.Opener{quietBackend{}}, os.Stdout, os.Stderr))
		case "connect":
			leave(ConnectMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "hold":
			leave(HoldMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	leaks.Main(m)
}

// leave ends this process without the second that the race detector makes
// os.Exit sleep; counters of coverage are written only by os.Exit.
func leave(code int) {
	if os.Getenv("GOCOVERDIR") != "" {
		os.Exit(code)
	}
	syscall.Exit(code)
}

// quietBackend is the local one without login shells.
type quietBackend struct{ local.Backend }

func (b quietBackend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if b, err := os.ReadFile(filepath.Join(at.Dir, "slow")); err == nil {
		d, err := time.ParseDuration(string(b))
		if err != nil {
			return nil, err
		}
		time.Sleep(d)
	}
	o, err := b.Backend.Open(ctx, s, at)
	if err == nil {
		o.Login = false
	}
	return o, err
}

// env is an environment under test, with a keeper.
type env struct {
	t        *testing.T
	dir, tmp string
	self     string
	spec     jobs.EnvSpec
}

func newEnv(t *testing.T) *env {
	t.Helper()
	tmp := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, dir: filepath.Join(tmp, "envs", "test"), tmp: filepath.Join(tmp, "home"), self: self}
	e.spec = jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano()), Name: "test", Lifetime: 5 * time.Minute, Created: time.Now().UTC(), User: "alice",
		Place: jobs.Place{
			Backend: jobs.BackendLocal, Level: jobs.LevelNone,
		},
	}
	if err := os.Mkdir(e.tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.CreateEnv(e.dir, e.spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.nothingLeft)
	return e
}

func (e *env) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.tmp, "TMPDIR=" + e.tmp, "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}
}

// keep starts the environment's keeper.
func (e *env) keep() *keeper.Info {
	e.t.Helper()
	conn, _, err := keeper.Open(e.t.Context(), e.dir, keeper.OpenOptions{Node: e.self, Env: e.environ(), Wait: patient})
	if err != nil {
		e.t.Fatal(err)
	}
	_ = conn.Close()
	return e.info()
}

func (e *env) info() *keeper.Info {
	e.t.Helper()
	i, err := keeper.Peek(e.dir)
	if err != nil || i == nil {
		e.t.Fatal(i, err)
	}
	return i
}

// far is the command that leads to the far side.
func (e *env) far(args ...string) jobs.Cmd {
	return jobs.Cmd{Argv: append([]string{e.self, "connect", "--env", e.dir, "--mux"}, args...), Env: e.environ()}
}

// interval is the pings' of tests. Four of them without a word are the end of a
// link, and a machine that does other things too can let a process wait for
// many seconds.
const interval = 4 * time.Second

// link is the way through a holder.
func (e *env) link() Link {
	return Link{Dir: e.dir, ID: e.spec.ID, Node: e.self, Interval: interval, Command: func(context.Context) (jobs.Cmd, error) { return e.far(), nil }}
}

// mux is the way within this process.
func (e *env) mux(cmd jobs.Cmd) *Mux {
	e.t.Helper()
	m, rep, err := overCommand(e.t.Context(), run.Local{}, cmd, Options{Interval: interval})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = m.Close() })
	if !rep.Ready || rep.Opened.IsZero() {
		e.t.Errorf("%+v", rep)
	}
	return m
}

// conn is a conversation with the keeper.
type conn struct {
	*session.Session
	t *testing.T
}

type dialer interface {
	Dial(context.Context) (io.ReadWriteCloser, *keeper.Report, error)
}

func (e *env) dial(d dialer, o session.Options) *conn {
	e.t.Helper()
	rw, rep, err := d.Dial(e.t.Context())
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.log())
	}
	if !rep.Ready || !rep.Opened.Equal(e.info().Opened) {
		e.t.Errorf("%+v", rep)
	}
	o.PingTimeout = -1
	s, err := session.Open(e.t.Context(), rw, rw, o)
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.log())
	}
	e.t.Cleanup(func() { _ = s.Close() })
	return &conn{Session: s, t: e.t}
}

func (c *conn) start(command string, out io.Writer) *session.Process {
	c.t.Helper()
	p, err := c.Start(session.StartRequest{Command: jobs.Command{Shell: command}, Much: true}, out, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *conn) sh(command string) string {
	c.t.Helper()
	var out bytes.Buffer
	if res, err := c.start(command, &out).Wait(); err != nil || !res.Exit.OK() || res.Output != nil {
		c.t.Errorf("%+v, %v", res, err)
	}
	return out.String()
}

// stop ends the keeper.
func (c *conn) stop() {
	c.t.Helper()
	p, err := c.Do(wire.StartMessage{Keep: &wire.KeepRequest{Op: wire.KeepStop}}, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	_, _ = p.Wait()
}

func (e *env) log() string {
	var all strings.Builder
	for _, n := range []string{"runtime.log", fileLog} {
		b, _ := os.ReadFile(filepath.Join(e.dir, n))
		fmt.Fprintf(&all, "%s:\n%s", n, b)
	}
	return all.String()
}

// patient is a time that guards against hanging alone.
const patient = 3 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// soon waits for something, but not for ever.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patient):
		t.Fatalf("in vain: %s", what)
	}
	return v
}

// processes are those of this environment whose command has a word.
func (e *env) processes(word string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		environ, _ := os.ReadFile(filepath.Join(d, "environ"))
		text, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && pid != os.Getpid() &&
			(bytes.Contains(environ, []byte("HOME="+e.tmp)) || bytes.Contains(text, []byte(e.dir))) && bytes.Contains(text, []byte(word)) {
			out = append(out, pid)
		}
	}
	return out
}

func (e *env) one(word string) int {
	e.t.Helper()
	var all []int
	// A process that is about to become another is seen as the one it was.
	eventually(e.t, "one process "+word, func() bool {
		all = e.processes(word)
		return len(all) == 1
	})
	return all[0]
}

func (e *env) nothingLeft() {
	_ = e.link().End(context.Background())
	if i, err := keeper.Peek(e.dir); err == nil && i != nil && i.Running && i.Near(lease.Self()) {
		_ = syscall.Kill(i.PID, syscall.SIGTERM)
	}
	for deadline := time.Now().Add(patient); len(e.processes("")) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, pid := range e.processes("") {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				e.t.Errorf("process %d is left: %q", pid, b)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
	}
	if dir, err := socket.Dir(); err == nil {
		left, _ := filepath.Glob(filepath.Join(dir, strings.TrimSuffix(socket.Name("hold", e.spec.ID, e.dir), ".sock")+"*"))
		if len(left) > 0 {
			e.t.Errorf("left: %q", left)
		}
	}
	for _, d := range []string{dirSpool, "io"} {
		if left, _ := filepath.Glob(filepath.Join(e.dir, d, "*")); len(left) > 0 {
			e.t.Errorf("left: %q", left)
		}
	}
	if s := e.log(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") || strings.Contains(s, "goroutine ") || e.t.Failed() {
		e.t.Error(s)
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
