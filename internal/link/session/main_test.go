//go:build linux

package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/guest"
	"berth/internal/sys/leaks"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// The test binary is its own guest and its own client.
const (
	roleVar    = "SESSION_TEST_ROLE"
	roleGuest  = "guest"
	roleJoined = "joined"
	roleClient = "client"
	roleCalls  = "calls"
	roleTraps  = "traps"
	shVar      = "SESSION_TEST_SH" // if set, the guest has no bash
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "--environ" { // a guest has started itself
		os.Exit(guest.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	switch os.Getenv(roleVar) {
	case roleGuest:
		_ = os.Unsetenv(roleVar)
		if os.Getenv(shVar) != "" {
			guest.Shells = nil
		}
		_ = os.Unsetenv(shVar)
		os.Exit(guest.Main(nil, os.Stdin, os.Stdout, os.Stderr))
	case roleJoined:
		_ = os.Unsetenv(roleVar)
		os.Exit(guest.Main([]string{guest.Joined}, os.Stdin, os.Stdout, os.Stderr))
	case roleClient:
		os.Exit(clientMain())
	case roleTraps:
		os.Exit(trapsMain())
	case roleCalls:
		os.Exit(callsMain(os.Args[1:], os.Stdout))
	}
	leaks.Main(m)
}

// env is a guest's environment, as clean as a backend makes it. A guest with
// the race detector would sleep for a second when it leaves.
func env(role string, more ...string) []string {
	return append([]string{roleVar + "=" + role, "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, more...)
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// place is a running guest.
type place struct {
	t      testing.TB
	ctx    context.Context
	s      *session.Session
	proc   jobs.Process
	stderr *buffer
	in     *os.File // the guest's standard input
}

// launch starts a guest's process; argv is what is started in its place.
func launch(ctx context.Context, t testing.TB, argv, env []string) (p *place, r *os.File) {
	t.Helper()
	p = &place{t: t, ctx: ctx, stderr: &buffer{}}
	watch(t, "the guest's standard error", p.stderr)
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.proc, err = run.Local{}.Start(ctx, jobs.Cmd{Argv: argv, Env: env, Stdin: inR, Stdout: outW, Stderr: p.stderr})
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		t.Fatal(err)
	}
	p.in = inW
	return p, outR
}

// open opens a session with a guest of its own. No one pings it, and it waits
// for that only when asked to.
func open(t testing.TB, o session.Options, more ...string) *place {
	t.Helper()
	if o.PingTimeout == 0 {
		o.PingTimeout = -1
	}
	// Not the test's own context: that ends before the cleanups run.
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	p, r := launch(ctx, t, []string{os.Args[0]}, env(roleGuest, more...))
	var err error
	p.s, err = session.Open(ctx, r, p.in, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.stderr.String())
	}
	t.Cleanup(func() {
		qctx, qstop := context.WithTimeout(context.Background(), hang)
		defer qstop()
		if err := p.s.Quit(qctx); err != nil {
			t.Error(err)
		}
		_, _ = p.proc.Wait()
		stop()
		if e := p.stderr.String(); e != "" {
			t.Logf("guest: %s", e)
		}
	})
	return p
}

// keepPinging pings until it is told to stop, or the test ends.
func (p *place) keepPinging() (enough func()) {
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				if err := p.s.Ping(); err != nil {
					p.t.Error(err)
					return
				}
			}
		}
	}()
	enough = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	p.t.Cleanup(enough)
	return enough
}

func (p *place) start(req session.StartRequest, stdout, stderr io.Writer) *session.Process {
	p.t.Helper()
	if b, ok := stdout.(*buffer); ok {
		watch(p.t, "output", b)
	}
	proc, err := p.s.Start(req, stdout, stderr)
	if err != nil {
		p.t.Fatal(err)
	}
	return proc
}

// wait waits for a command, but not for ever.
func wait(t testing.TB, proc *session.Process) (session.Result, error) {
	t.Helper()
	type answer struct {
		res session.Result
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		res, err := proc.Wait()
		ch <- answer{res, err}
	}()
	select {
	case a := <-ch:
		return a.res, a.err
	case <-time.After(hang):
		t.Fatal("the command does not end")
	}
	panic("not reached")
}

// run runs a shell text to its end.
func (p *place) run(req session.StartRequest) (res session.Result, stdout, stderr string) {
	p.t.Helper()
	var o, e bytes.Buffer
	res, err := wait(p.t, p.start(req, &o, &e))
	if err != nil {
		p.t.Fatal(err)
	}
	return res, o.String(), e.String()
}

func shell(text string) session.StartRequest {
	return session.StartRequest{Command: jobs.Command{Shell: text}}
}

func argv(words ...string) session.StartRequest {
	return session.StartRequest{Command: jobs.Command{Argv: words}}
}

// hang is when a wait is given up: what it is for does not happen any more.
// All that runs for a purpose in these tests runs longer.
const hang = 3 * time.Minute

// patience is for what a machine with much else to do must do in time, where a
// test has to wait until that is over.
const patience = 12 * time.Second

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v\n%s", what, hang, situation(t))
		}
	}
}

// watched are buffers of the tests that are under way: testing.TB to its [shown]
// ones, oldest first.
var watched = struct {
	sync.Mutex
	of map[testing.TB][]shown
}{of: map[testing.TB][]shown{}}

type shown struct {
	name string
	*buffer
}

// watch has a test's failure show what is in b.
func watch(t testing.TB, name string, b *buffer) {
	watched.Lock()
	defer watched.Unlock()
	if watched.of[t] == nil {
		t.Cleanup(func() {
			watched.Lock()
			defer watched.Unlock()
			delete(watched.of, t)
		})
	}
	watched.of[t] = append(watched.of[t], shown{name, b})
}

// situation describes what a test waits for in vain: what its guests and commands have
// written, and the processes below this one, with the masks of their signals.
func situation(t testing.TB) string {
	var out strings.Builder
	watched.Lock()
	for _, b := range watched.of[t] {
		_, _ = fmt.Fprintf(&out, "%s: %q\n", b.name, b.String())
	}
	watched.Unlock()
	entries, _ := os.ReadDir("/proc")
	parents, stats := map[int]int{}, map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
			stats[pid] = strings.TrimSpace(string(b))
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(parents)) {
		up := pid
		for up > 1 && up != os.Getpid() {
			up = parents[up]
		}
		if up != os.Getpid() {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid)
		wchan, _ := os.ReadFile(dir + "/wchan")
		status, _ := os.ReadFile(dir + "/status")
		args, _ := os.ReadFile(dir + "/cmdline")
		_, _ = fmt.Fprintf(&out, "%.200q\n  %s\n  wchan %s", args, stats[pid], wchan)
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Sig") || strings.HasPrefix(line, "Shd") {
				out.WriteString(" " + strings.Join(strings.Fields(line), " "))
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// alive tells whether a process runs; one that ended and was not waited for
// does not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// deadSoon makes sure that processes end; it kills the ones that do not.
func deadSoon(t testing.TB, pids ...int) {
	t.Helper()
	for deadline := time.Now().Add(hang); slices.ContainsFunc(pids, alive) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	dead(t, pids...)
}

// dead makes sure that processes have ended; it kills the ones that have not.
func dead(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// nasty is a command that does not want to end: it ignores TERM, and leaves a
// child, and a daemon in a session of its own that has lost its parent, its
// output and its environment. All write their numbers to its output.
const nasty = `trap "" TERM HUP INT
sleep 300 & echo child $!
sh -c 'setsid env -i PATH="$PATH" sh -c "trap \"\" TERM HUP INT; echo daemon \$\$; exec >/dev/null 2>&1; while :; do sleep 0.1; done" &'
echo main $$
while :; do sleep 0.1; done`

// startNasty starts it and returns the numbers of its three processes; the
// last one is the daemon.
func (p *place) startNasty() (*session.Process, []int) {
	p.t.Helper()
	var out buffer
	proc := p.start(shell(nasty), &out, nil)
	eventually(p.t, "three processes", func() bool { return strings.Count(out.String(), "\n") == 3 })
	return proc, numbers(p.t, out.String())
}

// numbers reads lines that end with the number of a process; the daemon's
// comes last.
func numbers(t testing.TB, text string) (pids []int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Index(a, "daemon") - strings.Index(b, "daemon")
	})
	for _, line := range lines {
		f := line[strings.LastIndexByte(line, ' ')+1:]
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("not a number: %q", f)
		}
		if !alive(pid) {
			t.Fatalf("process %d has ended by itself", pid)
		}
		pids = append(pids, pid)
	}
	return pids
}

// clientMain is a client that starts something nasty and then only waits to
// be killed.
func clientMain() int {
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	_, err3 := run.Local{}.Start(context.Background(), jobs.Cmd{Argv: []string{os.Args[0]}, Env: env(roleGuest), Stdin: inR, Stdout: outW, Stderr: os.Stderr})
	_, _ = inR.Close(), outW.Close()
	s, err4 := session.Open(context.Background(), outR, inW, session.Options{LeaveGrace: 300 * time.Millisecond})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.Guest().PID)
	p, err := s.Start(shell(nasty), os.Stdout, nil)
	if err != nil {
		return 1
	}
	_, _ = p.Wait()
	return 1
}

// trapsMain is a command that says which signals it gets, and ends with TERM. A bash
// that traps them would lose some: of those that come when it has just forked, 1 in
// 3000 on a busy machine.
func trapsMain() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGUSR1, unix.SIGTERM)
	fmt.Println("ready")
	for sig := range signals {
		if sig == unix.SIGTERM {
			fmt.Println("term")
			break
		}
		fmt.Println("usr1")
	}
	return 3
}
