package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/backends/local"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/guest"
	"berth/internal/node/supervise"
	"berth/internal/sys/leaks"
	"berth/jobs"
	"berth/jobs/store"
)

// envTimes carries the periods of a keeper under test to it.
const envTimes = "TEST_KEEPER_TIMES"

// TestMain makes this binary its own keeper and guest: a keeper ends all
// processes below its own, so it cannot be tested inside of the tests' process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sleep": // a helper of a container, by its name
			time.Sleep(time.Minute)
			leave(0)
		case "guest":
			leave(guest.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "keep":
			p := quick
			if s := os.Getenv(envTimes); s != "" {
				if err := json.Unmarshal([]byte(s), &p); err != nil {
					panic(err)
				}
			}
			leave(start(os.Args[2:], []jobs.Opener{testBackend{}}, os.Stdout, os.Stderr, p.times()))
		case "connect":
			leave(ConnectMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
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

// periods are the times that a test may set, for a slow machine and yet short.
type periods struct {
	Beat, GuestWait, Silent, Start, Grace, Unmount, Accept, Client, Flush time.Duration
}

// A guest that does not answer for five beats is taken for gone, and a machine
// that does other things too can let it wait for many seconds.
var quick = periods{Beat: 2 * time.Second, GuestWait: time.Minute, Silent: 20 * time.Second, Start: patient,
	Grace: 500 * time.Millisecond, Unmount: 3 * time.Second, Accept: 10 * time.Second, Client: time.Minute, Flush: 30 * time.Second}

func (p periods) times() times {
	return times{grace: p.Grace, accept: p.Accept, client: p.Client, flush: p.Flush, Times: supervise.Times{Beat: p.Beat, Fresh: p.GuestWait, Unanswered: 4,
		GuestWait: p.GuestWait, Dead: p.GuestWait, Silent: p.Silent, Start: p.Start, Unmount: p.Unmount}}
}

// testBackend is the local one, which a test may let do other things by what
// stands in the environment's directory.
type testBackend struct{ local.Backend }

func (b testBackend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if text, err := os.ReadFile(filepath.Join(at.Dir, "fail")); err == nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: string(text), Hint: "fix it"}
	}
	at.Progress("opening")
	o, err := b.Backend.Open(ctx, s, at)
	if err != nil {
		return nil, err
	}
	o.Login = false
	o.Notes = []string{"a note"}
	if text, err := os.ReadFile(filepath.Join(at.Dir, "argv")); err == nil {
		o.Argv = append(strings.Split(strings.TrimSpace(string(text)), "\n"), o.Argv...)
	}
	return o, nil
}

// env is an environment under test.
type env struct {
	t       *testing.T
	dir     string
	tmp     string
	spec    jobs.EnvSpec
	periods *periods
}

// newEnv records an environment of the local backend.
func newEnv(t *testing.T, change func(*jobs.EnvSpec)) *env {
	t.Helper()
	tmp := t.TempDir()
	spec := jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano()), Name: "test", Lifetime: patient, Created: time.Now().UTC(), User: "alice",
		Place: jobs.Place{
			Backend: jobs.BackendLocal, Level: jobs.LevelNone, Env: []string{"FROM_SPEC=spec", "BOTH=spec"},
		},
	}
	if change != nil {
		change(&spec)
	}
	e := &env{t: t, dir: filepath.Join(tmp, "envs", "test"), tmp: filepath.Join(tmp, "home"), spec: spec}
	if err := os.Mkdir(e.tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.CreateEnv(e.dir, spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.nothingLeft)
	return e
}

// options start a keeper with this binary.
func (e *env) options() OpenOptions {
	self, err := os.Executable()
	if err != nil {
		e.t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.tmp, "TMPDIR=" + e.tmp, "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}
	if e.periods != nil {
		b, err := json.Marshal(e.periods)
		if err != nil {
			e.t.Fatal(err)
		}
		env = append(env, envTimes+"="+string(b))
	}
	return OpenOptions{Node: self, Env: env, Wait: patient}
}

// conn is a client of the environment.
type conn struct {
	*session.Session
	t   *testing.T
	rep *Report
}

// open opens the environment, or reaches its keeper.
func (e *env) open() *conn {
	e.t.Helper()
	c, err := e.tryOpen(e.options())
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.log())
	}
	return c
}

func (e *env) tryOpen(o OpenOptions) (*conn, error) {
	rw, rep, err := Open(e.t.Context(), e.dir, o)
	if err != nil {
		return nil, err
	}
	s, err := session.Open(e.t.Context(), rw, rw, session.Options{PingTimeout: -1})
	if err != nil {
		return nil, err
	}
	e.t.Cleanup(func() { _ = s.Close() })
	return &conn{Session: s, t: e.t, rep: rep}, nil
}

func (e *env) log() string {
	b, _ := os.ReadFile(filepath.Join(e.dir, fileLog))
	return string(b)
}

// start begins a command of a session.
func (c *conn) start(name, command string, out io.Writer) *session.Process {
	c.t.Helper()
	p, err := c.Start(session.StartRequest{Command: jobs.Command{Shell: command}, Session: name}, out, out)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// sh runs a command in a session and returns its output and exit.
func (c *conn) sh(name, command string) (string, session.Result) {
	c.t.Helper()
	var out syncBuffer
	res, err := c.start(name, command, &out).Wait()
	if err != nil {
		c.t.Fatal(err)
	}
	return out.String(), res
}

// keep asks the keeper for something.
func (c *conn) keep(req wire.KeepRequest, in io.Reader, out io.Writer) (wire.KeepAnswer, error) {
	var a wire.KeepAnswer
	p, err := c.Do(wire.StartMessage{Keep: &req}, in, out)
	if err != nil {
		return a, err
	}
	res, err := p.Wait()
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(res.Keep, &a); err != nil {
		return a, fmt.Errorf("%s: %w", res.Keep, err)
	}
	if a.Error != "" {
		return a, &jobs.Error{Kind: a.Kind, Msg: a.Error, Hint: a.Hint}
	}
	return a, nil
}

// state asks the keeper for its own.
func (c *conn) state() *wire.KeepState {
	c.t.Helper()
	a, err := c.keep(wire.KeepRequest{Op: wire.KeepStatus}, nil, nil)
	if err != nil || a.State == nil {
		c.t.Fatalf("%+v, %v", a, err)
	}
	return a.State
}

// patient is a time that guards against hanging alone.
const patient = 3 * time.Minute

// slow is what a machine with much else to do gets for what must happen in time,
// where a test has to wait until that is over.
const slow = 12 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// processes are the ones that carry the environment's mark.
func (e *env) processes() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var pid int
		if _, err := fmt.Sscan(filepath.Base(d), &pid); err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(d, "environ"))
		if bytes.Contains(environ, []byte("HOME="+e.tmp)) {
			line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
			out[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return out
}

// info is keeper.json.
func (e *env) info() *Info {
	e.t.Helper()
	i, err := Peek(e.dir)
	if err != nil {
		e.t.Fatal(err)
	}
	return i
}

// nothingLeft ends the keeper and fails the test when something stays.
func (e *env) nothingLeft() {
	if i, err := Peek(e.dir); err == nil && i != nil && i.Running && i.Near(selfProcess()) {
		_ = syscall.Kill(i.PID, syscall.SIGCONT)
		_ = syscall.Kill(i.PID, syscall.SIGTERM)
	}
	var left map[int]string
	for deadline := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) {
		if left = e.processes(); len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for pid, line := range left {
				e.t.Errorf("process %d is left: %s", pid, line)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
	}
	if e.t.Failed() {
		e.t.Log(e.log())
	}
	if dirs, _ := filepath.Glob(filepath.Join(e.tmp, "berth-*")); len(dirs) > 0 {
		e.t.Errorf("left on the node: %q", dirs)
	}
	if i, err := Peek(e.dir); err == nil && i != nil {
		if _, err := os.Lstat(i.Socket); err == nil {
			e.t.Errorf("left: %s", i.Socket)
		}
	}
	if s := e.log(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") || strings.Contains(s, "goroutine ") {
		e.t.Error(s)
	}
}
