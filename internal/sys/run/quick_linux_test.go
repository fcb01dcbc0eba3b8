package run

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func quick(ctx context.Context, t *testing.T, c QuickCmd, script string) (QuickEnd, [3]string) {
	t.Helper()
	q, err := NewQuick()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var out [3]bytes.Buffer
	c.Path, c.Argv, c.Env = "/bin/sh", []string{"sh", "-c", script}, os.Environ()
	c.Output = func(stream int, b []byte) error { out[stream].Write(b); return nil }
	end, err := q.Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return end, [3]string{"", out[1].String(), out[2].String()}
}

func TestQuick(t *testing.T) {
	ctx := t.Context()
	end, out := quick(ctx, t, QuickCmd{Dir: "/"}, "pwd; echo no >&2; read x || echo eof; exit 3")
	if end.Exit.Code != 3 || end.Exit.Signal != 0 || !end.Exit.Started || out[1] != "/\neof\n" || out[2] != "no\n" || end.CPU <= 0 || end.Memory < 100<<10 {
		t.Errorf("%+v %q", end, out)
	}
	if end, _ := quick(ctx, t, QuickCmd{}, "kill -9 $$"); end.Exit.Code != 137 || end.Exit.Signal != 9 {
		t.Errorf("%+v", end)
	}
	// More than a pipe holds, of both streams.
	if _, out := quick(ctx, t, QuickCmd{}, "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"); len(out[1]) != 3_000_000 || len(out[2]) != 2_000_000 {
		t.Errorf("%d %d", len(out[1]), len(out[2]))
	}
	// What it leaves behind holds nothing up, and is ended.
	_, out = quick(ctx, t, QuickCmd{}, "sleep 600 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(out[1]))
	if err != nil {
		t.Fatal(err)
	}
	for unix.Kill(pid, 0) == nil && !isZombie(pid) { // killed, and on its way
		time.Sleep(time.Millisecond)
	}
}

func TestQuickEnds(t *testing.T) {
	end, out := quick(t.Context(), t, QuickCmd{Limit: 50 * time.Millisecond, Grace: time.Minute}, "trap 'echo bye; exit 4' TERM; echo hi; while :; do sleep 0.01; done")
	if !end.TimedOut || end.Exit.Code != 4 || out[1] != "hi\nbye\n" {
		t.Errorf("%+v %q", end, out)
	}
	end, _ = quick(t.Context(), t, QuickCmd{Limit: 50 * time.Millisecond}, "trap '' TERM; while :; do sleep 0.01; done")
	if !end.TimedOut || end.Exit.Signal != 9 {
		t.Errorf("%+v", end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if end, _ := quick(ctx, t, QuickCmd{}, "sleep 600"); !end.Stopped || end.Exit.Signal == 0 {
		t.Errorf("%+v", end)
	}
	q, err := NewQuick()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Run(t.Context(), QuickCmd{Path: "/no/such", Argv: []string{"x"}}); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func BenchmarkQuick(b *testing.B) {
	q, err := NewQuick()
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	for b.Loop() {
		if _, err := q.Run(b.Context(), QuickCmd{Path: "/bin/true", Argv: []string{"true"}, Output: func(int, []byte) error { return nil }}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBare is what a fork and an exec alone cost.
func BenchmarkBare(b *testing.B) {
	for b.Loop() {
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
