package run_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/leaks"
	"berth/internal/sys/run"
	"berth/jobs"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "family" {
		family(os.Args[2])
	}
	leaks.Main(m)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(stop)
	return ctx
}

func sh(script string) jobs.Cmd { return jobs.Cmd{Argv: []string{"/bin/sh", "-c", script}} }

func TestExit(t *testing.T) {
	for script, want := range map[string]jobs.Exit{
		"exit 0":        {Started: true},
		"exit 1":        {Started: true, Code: 1},
		"exit 255":      {Started: true, Code: 255},
		"kill -9 $$":    {Started: true, Code: 137, Signal: 9},
		"kill -SEGV $$": {Started: true, Code: 139, Signal: 11},
		"exec 1>&-; :":  {Started: true},
		"cat; exit 3":   {Started: true, Code: 3}, // the input is empty
	} {
		c := sh(script)
		c.Stdout, c.Stderr = new(bytes.Buffer), new(bytes.Buffer)
		p, err := run.Local{}.Start(bounded(t), c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Wait()
		again, err2 := p.Wait()
		if got != want || err != nil || again != want || err2 != nil {
			t.Errorf("%s: got %+v %v, want %+v", script, got, err, want)
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: signal after the end: %v", script, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		cmd  jobs.Cmd
		want error
	}{
		"no such program": {t.Context(), jobs.Cmd{Argv: []string{"berth-no-such-program"}}, exec.ErrNotFound},
		"no such dir":     {t.Context(), jobs.Cmd{Argv: []string{"true"}, Dir: "/no/such/dir"}, syscall.ENOENT},
		"empty":           {t.Context(), jobs.Cmd{}, nil},
		"ended context":   {ended, jobs.Cmd{Argv: []string{"true"}}, context.Canceled},
	} {
		c.cmd.Stdin, c.cmd.Stdout = strings.NewReader("x"), new(bytes.Buffer)
		_, err := run.Local{}.Start(c.ctx, c.cmd)
		if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestHeldPipe leaves processes behind that keep the output open, silent or
// not: Wait must not wait for them, and what the command wrote must be there.
func TestHeldPipe(t *testing.T) {
	for name, script := range map[string]string{
		"silent":  `sleep 300 & echo $!; exit 4`,
		"talking": `(while :; do echo x; sleep .01; done) & echo $!; exit 4`,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := sh(script)
			c.Stdout = &out
			p, err := run.Local{}.Start(bounded(t), c)
			if err != nil {
				t.Fatal(err)
			}
			exit, err := p.Wait()
			// The talker may speak before its number is printed.
			pid, perr := strconv.Atoi(strings.Trim(strings.ReplaceAll(out.String(), "x", ""), "\n"))
			if perr != nil {
				t.Fatalf("no pid in %q", out.String())
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			if exit.Code != 4 || err != nil {
				t.Errorf("got %+v %v", exit, err)
			}
		})
	}
}

// slow takes its time with the first write.
type slow struct {
	n    int
	wait time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.wait)
	s.wait = 0
	s.n += len(p)
	return len(p), nil
}

// TestSlowReceiver has the whole output in the pipe when the command ends, and
// a receiver that is busy for longer than any settling time.
func TestSlowReceiver(t *testing.T) {
	w := &slow{wait: 2500 * time.Millisecond}
	c := sh("head -c 60000 /dev/zero")
	c.Stdout = w
	p, err := run.Local{}.Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || w.n != 60000 {
		t.Errorf("got %d bytes, %v", w.n, err)
	}
}

// TestContextKillsGroup ends the context of a shell with a child that ignores
// TERM, and of one that never reads its endless input.
func TestContextKillsGroup(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	out, outW := io.Pipe()
	ctx, kill := context.WithCancel(bounded(t))
	c := sh(`trap "" TERM; sleep 301 & echo $!; wait`)
	c.Stdin, c.Stdout = r, outW
	p, err := run.Local{}.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	buf := make([]byte, 32)
	n, _ := out.Read(buf)
	child, err = strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kill()
	if exit, err := p.Wait(); err != nil || exit.Signal != 9 {
		t.Errorf("got %+v, %v", exit, err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(child, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatalf("the child %d lives on", child)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTerminate has a command that ends when it is told to and leaves a child
// behind that does not want to: that ends with it.
func TestTerminate(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	c := sh(`trap "exit 3" TERM; (trap "" TERM; echo child; while :; do sleep 1; done) & echo pid $!; wait`)
	c.Stdout = w
	p, err := run.Local{}.Start(bounded(t), c)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	child, said := 0, bufio.NewReader(r)
	for range 2 { // in any order
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscanf(line, "pid %d\n", &child)
	}
	if err := run.Terminate(p); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 3 {
		t.Errorf("got %+v, %v", exit, err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(child, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatalf("the child %d lives on", child)
		}
	}
	if err := run.Terminate(p); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestFailingReceiver(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	c := jobs.Cmd{Argv: []string{"yes"}, Stdout: w}
	p, err := run.Local{}.Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Signal != int(syscall.SIGPIPE) {
		t.Errorf("got %+v, %v: the command should see a closed pipe", exit, err)
	}
}

func TestEnvAndDir(t *testing.T) {
	t.Setenv("BERTH_TEST_VALUE", "of berth")
	dir := t.TempDir()
	script := `echo "${BERTH_TEST_VALUE-none} $A"; pwd`
	for _, c := range []struct {
		env  []string
		want string
	}{{nil, "of berth \n" + dir + "\n"}, {[]string{}, "none \n" + dir + "\n"}, {[]string{"A=two\nlines"}, "none two\nlines\n" + dir + "\n"}} {
		cmd := sh(script)
		cmd.Dir, cmd.Env = dir, c.env
		got, err := run.Output(bounded(t), run.Local{}, cmd)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: got %q, %v", c.env, got, err)
		}
	}
}

func TestOneWriterForBoth(t *testing.T) {
	var both bytes.Buffer
	c := sh("for i in 1 2 3 4 5 6 7 8 9; do echo o; echo e >&2; done")
	c.Stdout, c.Stderr = &both, &both
	p, err := run.Local{}.Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || both.String() != strings.Repeat("o\ne\n", 9) {
		t.Errorf("got %q, %v", both.String(), err)
	}
}

// What a program has written over, and its progress bars, are no last words.
func TestLastWords(t *testing.T) {
	_, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: []string{"sh", "-c",
		`printf 'creating\r\n\r[===|    ]  1/9  10%%\r[=====|  ]  2/9  20%%\nout of memory\n\r[======/ ] 3/9 30%%\n[==-  ] 4/9 44%% signal: killed\n' >&2; exit 3`}, Env: []string{"PATH=" + os.Getenv("PATH")}})
	var failed *run.Error
	if !errors.As(err, &failed) || failed.Stderr != "creating\nout of memory\nsignal: killed" {
		t.Errorf("%v", err)
	}
}

func TestOutput(t *testing.T) {
	var seen bytes.Buffer
	c := sh(`echo out; echo "what is wrong" >&2; exit 7`)
	c.Stderr = &seen
	out, err := run.Output(bounded(t), run.Local{}, c)
	var failed *run.Error
	if !errors.As(err, &failed) || failed.Exit.Code != 7 || failed.Stderr != "what is wrong" || string(out) != "out\n" || seen.String() != "what is wrong\n" {
		t.Errorf("got %q, %#v, %q", out, err, seen.String())
	}
	if !strings.HasSuffix(err.Error(), ": exit code 7: what is wrong") {
		t.Errorf("message %q", err)
	}

	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	on := begun{func() { stop(context.DeadlineExceeded) }}
	if _, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"sleep", "62"}}); !errors.Is(err, context.DeadlineExceeded) || err.Error() != "sleep 62: context deadline exceeded" {
		t.Errorf("deadline: %v", err)
	}
	if out, err := run.Output(bounded(t), run.Local{}, jobs.Cmd{Argv: []string{"yes"}}); err == nil || len(out) != run.MaxOutput || !strings.Contains(err.Error(), "more than 64MiB") {
		t.Errorf("endless: %d bytes, %v", len(out), err)
	}
	if _, err := run.Output(bounded(t), run.Local{}, sh(`yes wrong | head -c 100000 >&2; exit 1`)); err == nil || len(err.Error()) > 700 || !strings.HasSuffix(err.Error(), "wrong wron") {
		t.Errorf("much on stderr: %v", err)
	}
}

// begun calls a function when a command has begun.
type begun struct{ then func() }

func (b begun) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	p, err := run.Local{}.Start(ctx, c)
	b.then()
	return p, err
}
