//go:build clouds

package modal

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"

	"google.golang.org/grpc/codes"
)

// asProgram makes the test binary the program.
const asProgram = "BERTH_TEST_AS_BACKEND"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		cleanupTime = 2 * time.Minute // however slow the machine is
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// program starts the program for a request. Its answer is read from out.
func program(ctx context.Context, t *testing.T, verb string, r *protocol.Request) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	q := *r
	q.Berth, q.Verb = protocol.Version, verb
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, self, verb, path)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	o, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, bufio.NewReader(o)
}

// answer reads lines to the last one.
func answer(out *bufio.Reader, to any) error {
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		var l protocol.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		switch {
		case l.Error != nil:
			return l.Error
		case l.OK != nil:
			return json.Unmarshal(l.OK, to)
		}
	}
}

// Fifty are opened at once, by fifty programs, at a server that refuses more than
// five in a second.
func TestManyAtOnce(t *testing.T) {
	many(t, 50, 0, t.TempDir())
}

// Thirty are opened at once from as many machines, which know nothing of each
// other's turns: what is refused comes again, less and less often.
func TestManyMachinesAtOnce(t *testing.T) {
	if srv := many(t, 30, 30, ""); srv.Refused() == 0 {
		t.Error("nothing was refused")
	}
}

// many opens n sandboxes at once, each by a program of its own, at a server that
// makes five in a second, and takes the first so many of them together. Turns are taken in the directory turns; "" is that each
// has one of its own.
func many(t *testing.T, n, together int, turns string) *modaltest.Server {
	t.Helper()
	srv := serve(t)
	srv.PerSecond, srv.Together = 5, together
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range n {
		r := request(t, fmt.Sprintf("berth-many-%d", i))
		cache := turns
		if cache == "" {
			cache = t.TempDir()
		}
		t.Setenv("XDG_CACHE_HOME", cache)
		cmd, in, out := program(ctx, t, protocol.VerbOpen, r)
		_ = in.Close()
		all.Go(func() {
			var a protocol.Opened
			if err := answer(out, &a); err != nil || a.State != protocol.StateMade {
				t.Errorf("%s: %+v %v", r.Name, a, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		})
	}
	all.Wait()
	if made := len(srv.Running()); made != n {
		t.Errorf("%d run", made)
	}
	t.Logf("%d were refused", srv.Refused())
	return srv
}

const gib = 1 << 30

// Much data passes in little memory, up and down.
func TestMemoryOfAStream(t *testing.T) {
	serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r := request(t, "berth-memory")
	a := open(t, r)
	for name, c := range map[string]struct {
		text     string
		up, down int64
	}{
		"up":   {"wc -c", gib, int64(len(fmt.Sprintln(gib)))},
		"down": {fmt.Sprintf("head -c %d /dev/zero", gib), 0, gib},
	} {
		q := *r
		q.Argv = []string{a.Guest, "guest", c.text}
		cmd, in, out := program(ctx, t, protocol.VerbStream, &q)
		if err := answer(out, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.CopyN(in, zeros{}, c.up)
			_ = in.Close()
		}()
		n, err := io.Copy(io.Discard, out)
		if err != nil || n != c.down {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
		t.Logf("%s: %d MiB at most", name, peak)
		if peak >= 64 {
			t.Errorf("%s: %d MiB", name, peak)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// A program that is killed leaves a sandbox that is found again; one that is told
// to end leaves none.
func TestKilledProgram(t *testing.T) {
	srv := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for name, c := range map[string]struct {
		sig  syscall.Signal
		left int
	}{"berth-killed": {syscall.SIGKILL, 1}, "berth-told": {syscall.SIGTERM, 0}} {
		r := request(t, name)
		// It is made, and the program does not hear of that.
		srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", After: true, Wait: 5 * time.Minute, Err: modaltest.Code(codes.Canceled, "gone")})
		cmd, in, out := program(ctx, t, protocol.VerbOpen, r)
		_ = in.Close()
		there := func() (n int) {
			for _, b := range srv.Running() {
				if b.Name == name {
					n++
				}
			}
			return n
		}
		for there() == 0 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		if err := cmd.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if there() != c.left {
			t.Errorf("%s: %d sandboxes are left", name, there())
		}
		if a := open(t, r); c.left == 1 && a.State != protocol.StateFound || there() != 1 {
			t.Errorf("%s: %+v, %d", name, a, there())
		}
	}
}

// A person who starts the program sees what it is.
func TestProgramWithoutArguments(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	b, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(b), "berth starts this program") {
		t.Errorf("%s %v", b, err)
	}
}
