//go:build linux

package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"
)

// same compares two trees with what the machine has for it.
func same(t *testing.T, a, b string) {
	t.Helper()
	if out, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: []string{"diff", "-r", "--no-dereference", a, b}}); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

// ways runs a test of copies through frames, and through named pipes.
func ways(t *testing.T, test func(t *testing.T, p *place, home, local string)) {
	for _, way := range []string{"frames", "pipes"} {
		t.Run(way, func(t *testing.T) {
			o, dir := session.Options{Home: t.TempDir()}, t.TempDir()
			if way == "pipes" {
				o.Pipes = session.LocalPipes(dir, dir)
			}
			test(t, open(t, o), o.Home, t.TempDir())
			if e, _ := os.ReadDir(dir); len(e) > 0 {
				t.Errorf("pipes stay: %v", e)
			}
		})
	}
}

func TestCopy(t *testing.T) { ways(t, testCopy) }

func testCopy(t *testing.T, p *place, home, local string) {
	for i := range 300 {
		put(t, fmt.Sprintf("%s/tree/%d/%d", local, i%7, i), strings.Repeat("x", i*i), 0o644)
	}
	put(t, local+"/tree/odd\n\xff", "\x00", 0o751)
	put(t, local+"/tree/0/7", large(5<<20+3), 0o644)
	if err := errors.Join(os.Mkdir(local+"/tree/hollow", 0o711), os.Symlink("odd\n\xff", local+"/tree/link")); err != nil {
		t.Fatal(err)
	}
	var told int64
	in, err := p.s.CopyIn(p.ctx, "", local+"/tree", "here", func(n int64) { told = n })
	if err != nil || in.Path != home+"/here" || in.Bytes != told || in.Entries != 311 || in.Incomplete || len(in.Notes) > 0 {
		t.Fatalf("%+v %v, %d told", in, err, told)
	}
	same(t, local+"/tree", home+"/here")
	odd(t, home+"/here")
	out, err := p.s.CopyOut(p.ctx, "", "~/here", local+"/back", func(n int64) { told = n })
	if err != nil || out.Path != local+"/back" || out.Bytes != told || out.Entries != 311 || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], `"here/fifo"`) {
		t.Fatalf("%+v %v, %d told", out, err, told)
	}
	same(t, local+"/tree", local+"/back")
	if fi, err := os.Stat(local + "/back/odd\n\xff"); err != nil || fi.Mode() != 0o751 {
		t.Errorf("%v %v", fi, err)
	}
	// Into directories, and contents.
	if in, err := p.s.CopyIn(p.ctx, "", local+"/tree", ".", nil); err != nil || in.Path != home+"/tree" {
		t.Errorf("%+v %v", in, err)
	}
	if out, err := p.s.CopyOut(p.ctx, "", "tree/.", local+"/back", nil); err != nil || out.Path != local+"/back" {
		t.Errorf("%+v %v", out, err)
	}
	if out, err := p.s.CopyOut(p.ctx, "", "tree/1/1", local, nil); err != nil || out.Path != local+"/1" || out.Bytes != 1 {
		t.Errorf("%+v %v", out, err)
	}
}

// large is a text no part of which is like another.
func large(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()[:size]
}

func TestCopyErrors(t *testing.T) { ways(t, testCopyErrors) }

func testCopyErrors(t *testing.T, p *place, home, local string) {
	put(t, local+"/f", "new", 0o644)
	put(t, local+"/d/x", strings.Repeat("x", 1<<20), 0o644)
	put(t, home+"/f", "old", 0o644)
	put(t, home+"/d/x", strings.Repeat("x", 4<<20), 0o644)
	fifo := odd(t, home)
	for name, c := range map[string]struct {
		out      bool
		from, to string
		kind     string // of the error inside, or
		class    jobs.Kind
		says     string
	}{
		"in: no source":      {false, local + "/none", ".", "", jobs.KindNotFound, "on this machine: lstat " + local + "/none: no such file or directory"},
		"in: no such place":  {false, local + "/d", "no/such", wire.FileNotFound, jobs.KindNotFound, home + "/no: no such file or directory"},
		"in: over a file":    {false, local + "/d", "f", wire.FileNotDir, jobs.KindUsage, home + "/f: not a directory"},
		"in: below a file":   {false, local + "/f", "f/x", wire.FileNotDir, jobs.KindUsage, "not a directory"},
		"in: a pipe":         {false, fifo, ".", "", jobs.KindUsage, "neither a file nor a directory"},
		"out: no source":     {true, "none", local, wire.FileNotFound, jobs.KindNotFound, home + "/none: no such file or directory"},
		"out: no such place": {true, "d", local + "/no/such", "", jobs.KindNotFound, "on this machine: "},
		"out: over a file":   {true, "d", local + "/f", "", jobs.KindUsage, local + "/f: not a directory"},
		"out: a pipe":        {true, "fifo", local, wire.FileNotRegular, jobs.KindUsage, "neither a file nor a directory"},
		"out: a device":      {true, "/dev/zero", local, wire.FileNotRegular, jobs.KindUsage, "neither a file nor a directory"},
	} {
		copying := p.s.CopyIn
		if c.out {
			copying = p.s.CopyOut
		}
		from, to := c.from, c.to
		_, err := copying(p.ctx, "", from, to, nil)
		trouble(t, name, err, c.kind, c.says)
		if jobs.KindOf(err) != c.class {
			t.Errorf("%s: kind %v", name, jobs.KindOf(err))
		}
	}
	if get(t, home+"/f") != "old" || get(t, local+"/f") != "new" {
		t.Error("a file has changed")
	}
}

// TestCopyCancelled ends copies in the middle.
func TestCopyCancelled(t *testing.T) { ways(t, testCopyCancelled) }

func testCopyCancelled(t *testing.T, p *place, home, local string) {
	f, err := os.Create(local + "/big")
	if err == nil {
		err = errors.Join(f.Truncate(1<<30), f.Close(), os.Link(local+"/big", home+"/inside"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]func(context.Context, func(int64)) (session.Copied, error){
		"in": func(ctx context.Context, progress func(int64)) (session.Copied, error) {
			return p.s.CopyIn(ctx, "", local+"/big", "copy", progress)
		},
		"out": func(ctx context.Context, progress func(int64)) (session.Copied, error) {
			return p.s.CopyOut(ctx, "", "inside", local+"/copy", progress)
		},
	} {
		ctx, stop := context.WithCancel(p.ctx)
		if _, err := c(ctx, func(n int64) {
			if n > 1<<20 {
				stop()
			}
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		stop()
	}
	eventually(t, "nothing stays", func() bool {
		a, _ := filepath.Glob(home + "/*")
		b, _ := filepath.Glob(local + "/*")
		c, _ := filepath.Glob(home + "/.*")
		return len(a) == 1 && len(b) == 1 && len(c) == 0
	})
	if _, out, _ := p.run(shell("echo still here")); out != "still here\n" {
		t.Errorf("got %q", out)
	}
}

// TestCopyMeasure reports how fast copies are.
func TestCopyMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("only a report")
	}
	home, local := t.TempDir(), t.TempDir()
	p := open(t, session.Options{Home: home})
	const size = 64 << 20
	put(t, local+"/big", strings.Repeat("0123456789abcdef", size/16), 0o644)
	for i := range 2000 {
		put(t, fmt.Sprintf("%s/small/%d/%d", local, i%20, i), "some bytes", 0o644)
	}
	measure := func(what string, f func() (session.Copied, error)) {
		began := time.Now()
		c, err := f()
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%s: %.0f MB/s, %v an entry", what, float64(c.Bytes)/1e6/took.Seconds(), took/time.Duration(c.Entries))
	}
	measure("in, large", func() (session.Copied, error) { return p.s.CopyIn(p.ctx, "", local+"/big", ".", nil) })
	measure("out, large", func() (session.Copied, error) { return p.s.CopyOut(p.ctx, "", "big", local+"/b", nil) })
	measure("in, small", func() (session.Copied, error) { return p.s.CopyIn(p.ctx, "", local+"/small", ".", nil) })
	measure("out, small", func() (session.Copied, error) { return p.s.CopyOut(p.ctx, "", "small", local+"/s", nil) })
	began := time.Now()
	const n = 200
	for range n {
		if _, err := p.s.Stat(p.ctx, "", "big"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("stat: %v", time.Since(began)/n)
	now, peak := rss(t, p.s.Guest().PID)
	t.Logf("guest afterwards: %d KiB resident, peak %d", now, peak)
}
