//go:build linux

package session_test

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/link/session"
)

// counter counts bytes; it waits for leave before each write.
type counter struct {
	n     atomic.Int64
	leave chan struct{}
}

func (c *counter) Write(p []byte) (int, error) {
	<-c.leave
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// rss reads a process' resident memory and its peak, in KiB.
func rss(t testing.TB, pid int) (now, peak int) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmRSS:":
			now, _ = strconv.Atoi(f[1])
		case "VmHWM:":
			peak, _ = strconv.Atoi(f[1])
		}
	}
	return now, peak
}

// TestSlowReceiver has 100 MB of output and a receiver that takes nothing at
// first: the command waits, nothing else does, and no one's memory grows.
func TestSlowReceiver(t *testing.T) {
	p := open(t, session.Options{PingTimeout: 20 * time.Second})
	p.keepPinging()
	const size = 100_000_000
	out := &counter{leave: make(chan struct{})}
	_, before := rss(t, p.s.Guest().PID)
	big := p.start(shell("head -c "+strconv.Itoa(size)+" /dev/zero; exit 6"), out, nil)
	for range 8 {
		time.Sleep(100 * time.Millisecond)
		if _, o, e := p.run(shell("echo o; echo e >&2")); o != "o\n" || e != "e\n" {
			t.Fatalf("another command: %q %q", o, e)
		}
	}
	_ = p.s.Ping()
	eventually(t, "a pong", func() bool { return p.s.Unanswered() == 0 })
	if out.n.Load() != 0 {
		t.Fatal("the receiver did not wait")
	}
	close(out.leave)
	res, err := wait(t, big)
	if err != nil || res.Exit.Code != 6 || out.n.Load() != size || res.Output != nil {
		t.Errorf("%+v %v, %d bytes", res, err, out.n.Load())
	}
	if _, after := rss(t, p.s.Guest().PID); after-before > 16<<10 {
		t.Errorf("the guest's memory went from %d to %d KiB", before, after)
	}
}

// TestExitPassesStuckOutput has a command end while its receiver takes
// nothing: Wait waits for the receiver, but the end is known.
func TestExitPassesStuckOutput(t *testing.T) {
	p := open(t, session.Options{})
	out := &counter{leave: make(chan struct{})}
	proc := p.start(shell("head -c 300000 /dev/zero; exit 8"), out, nil)
	eventually(t, "the exit", func() bool { return session.Exited(proc) })
	close(out.leave)
	if res, err := wait(t, proc); err != nil || res.Exit.Code != 8 || out.n.Load() != 300000 {
		t.Errorf("%+v %v, %d bytes", res, err, out.n.Load())
	}
}

type broken struct{}

var errFull = errors.New("disk is full")

func (broken) Write([]byte) (int, error) { return 0, errFull }

func TestFailingReceiver(t *testing.T) {
	p := open(t, session.Options{})
	proc := p.start(shell("head -c 3000000 /dev/zero; echo done >&2; exit 2"), broken{}, io.Discard)
	if res, err := wait(t, proc); err != nil || res.Exit.Code != 2 || !errors.Is(res.Output, errFull) {
		t.Errorf("%+v %v", res, err)
	}
}

// TestMeasure reports what a guest costs.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("only a report")
	}
	p := open(t, session.Options{})
	now, peak := rss(t, p.s.Guest().PID)
	t.Logf("guest idle: %d KiB resident, peak %d", now, peak)
	const n = 100
	began := time.Now()
	for range n {
		p.run(argv("/bin/true"))
	}
	t.Logf("start and end of /bin/true: %v", time.Since(began)/n)
	began = time.Now()
	out := &counter{leave: make(chan struct{})}
	close(out.leave)
	if _, err := wait(t, p.start(shell("head -c 100000000 /dev/zero"), out, nil)); err != nil {
		t.Fatal(err)
	}
	t.Logf("output: %.0f MB/s", 100/time.Since(began).Seconds())
	now, peak = rss(t, p.s.Guest().PID)
	t.Logf("guest afterwards: %d KiB resident, peak %d", now, peak)
}
