//go:build linux

package session_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"berth/internal/link/session"
	"berth/jobs"
)

// counted counts the pipes that are made.
type counted struct {
	session.Pipes
	made atomic.Int32
}

func (c *counted) Make(into bool) session.Pipe {
	c.made.Add(1)
	return c.Pipes.Make(into)
}

// TestMuch has a pipe made for the rest of much output, and for nothing less: what it costs
// is more than a command that says little. All comes, in its order.
func TestMuch(t *testing.T) {
	dir := t.TempDir()
	pipes := &counted{Pipes: session.LocalPipes(dir, dir)}
	p := open(t, session.Options{Pipes: pipes})
	for _, c := range []struct {
		shell string
		most  int
		lines int
	}{{"seq 10000", 0, 10000}, {"seq 1000000", 1, 1000000}} {
		before := pipes.made.Load()
		var out bytes.Buffer
		proc, err := p.s.Start(session.StartRequest{Command: jobs.Command{Shell: c.shell}, Session: "s", Much: true}, &out, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := proc.Wait(); err != nil || !res.Exit.OK() || res.Output != nil {
			t.Fatalf("%s: %+v, %v", c.shell, res, err)
		}
		if made := int(pipes.made.Load() - before); made != c.most {
			t.Errorf("%s: %d pipes", c.shell, made)
		}
		n := 0
		for line := range bytes.Lines(out.Bytes()) {
			if n++; number(line) != n {
				t.Fatalf("%s: %q is line %d", c.shell, line, n)
			}
		}
		if n != c.lines {
			t.Errorf("%s: %d lines", c.shell, n)
		}
	}
}

func number(line []byte) (n int) {
	for _, c := range bytes.TrimSpace(line) {
		n = 10*n + int(c-'0')
	}
	return n
}
