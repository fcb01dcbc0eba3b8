package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// A client that disappears takes its commands with it, and no one else's.
func TestClientGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	var mine, other syncBuffer
	c.start("", `echo $$; trap "" TERM; (setsid sleep 1000 &); while :; do echo x; sleep 0.01; done`, &mine)
	d.start("", "echo ready; sleep 2000", &other)
	eventually(t, "both run", func() bool {
		return strings.Contains(mine.String(), "x\n") && strings.Contains(other.String(), "ready")
	})
	if st := d.state(); st.Running != 2 || st.Idle != 0 {
		t.Errorf("%+v", st)
	}
	_ = c.Close()
	eventually(t, "the command is ended", func() bool { return d.state().Running == 1 })
	eventually(t, "nothing of it is left", func() bool {
		for _, line := range e.processes() {
			if strings.Contains(line, "sleep 1000") {
				return false
			}
		}
		return true
	})
	if out, res := d.sh("", "echo still here"); out != "still here\n" || res.Exit.Code != 0 {
		t.Errorf("%q, %+v", out, res)
	}
}

// What a client says of everything is about its own.
func TestEndAndQuit(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	var out syncBuffer
	p := d.start("", "echo ready; sleep 1000", &out)
	eventually(t, "it runs", func() bool { return strings.Contains(out.String(), "ready") })
	q := c.start("", "sleep 1000", nil)
	if left, err := c.End(t.Context(), 0); left != 0 || err != nil {
		t.Errorf("%d, %v", left, err)
	}
	if res, err := q.Wait(); err != nil || res.Exit.Signal != 9 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := c.Quit(t.Context()); err != nil {
		t.Error(err)
	}
	if st := d.state(); st.Running != 1 {
		t.Errorf("%+v", st)
	}
	if err := p.Terminate(0); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err != nil || res.Exit.Signal != 9 {
		t.Errorf("%+v, %v", res, err)
	}
}

// blocked is a writer that takes nothing until it is let go.
type blocked struct{ free chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.free
	return len(p), nil
}

// A client that does not read holds up its own command and no one else's.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c, d := e.open(), e.open()
	stuck := blocked{make(chan struct{})}
	var all []*session.Process
	for range 4 {
		p, err := c.Start(session.StartRequest{Command: jobs.Command{Shell: "head -c 3000000 /dev/zero"}}, stuck, stuck)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	// One whose stream itself is not read: it says hello and starts.
	raw, _, err := Open(t.Context(), e.dir, e.options())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	w := wire.NewWriter(raw)
	key := wire.NewKey()
	if err := w.Open(wire.ClientMagic, wire.NewNonce(), wire.ClientHello{Version: wire.Version, Key: key[:]}); err != nil {
		t.Fatal(err)
	}
	w.Seal(key, wire.FromClient)
	for i := range 5 {
		if err := w.Message(wire.Start, uint32(i+1), wire.StartMessage{Shell: "cat /dev/zero"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		n := &counter{}
		if p, err := d.Start(session.StartRequest{Command: jobs.Command{Shell: "head -c 2000000 /dev/zero"}}, n, nil); err != nil {
			t.Fatal(err)
		} else if res, err := p.Wait(); err != nil || res.Exit.Code != 0 || n.n != 2000000 {
			t.Errorf("%+v, %v, %d bytes", res, err, n.n)
		}
	}
	close(stuck.free)
	for _, p := range all {
		if res, err := p.Wait(); err != nil || res.Exit.Code != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if st := d.state(); st.Running != 5 {
		t.Errorf("%+v", st)
	}
	_ = raw.Close()
	eventually(t, "they are ended", func() bool { return d.state().Running == 0 })
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// A flood in both directions at once comes through whole.
func TestThrough(t *testing.T) {
	t.Parallel()
	c := newEnv(t, nil).open()
	in := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	var out bytes.Buffer
	p, err := c.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"cat"}}, Stdin: bytes.NewReader(in)}, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Exit.Code != 0 || !bytes.Equal(out.Bytes(), in) {
		t.Errorf("%+v, %v, %d bytes", res, err, out.Len())
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	e.open()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c, err := e.tryOpen(e.options())
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 3 {
				if out, res := c.sh("", fmt.Sprintf("echo %d %d", i, j)); out != fmt.Sprintf("%d %d\n", i, j) || res.Exit.Code != 0 {
					t.Errorf("%q, %+v", out, res)
				}
			}
			_ = c.Close()
		})
	}
	all.Wait()
}

// What is no client of this protocol is dropped, and no one notices.
func TestGarbage(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	var out syncBuffer
	p := c.start("", "echo ready; sleep 1000", &out)
	eventually(t, "it runs", func() bool { return strings.Contains(out.String(), "ready") })
	hello := func(w *wire.Writer, h wire.ClientHello) { _ = w.Open(wire.ClientMagic, wire.NewNonce(), h) }
	key := wire.NewKey()
	greet := func(w *wire.Writer) {
		hello(w, wire.ClientHello{Version: wire.Version, Key: key[:]})
		w.Seal(key, wire.FromClient)
	}
	start := func(w *wire.Writer, m wire.StartMessage) { _ = w.Message(wire.Start, 1, m) }
	for name, say := range map[string]func(raw io.Writer, w *wire.Writer){
		"text": func(raw io.Writer, _ *wire.Writer) {
			_, _ = io.WriteString(raw, strings.Repeat("GET / HTTP/1.1\r\n", 40000))
		},
		"half a hello": func(raw io.Writer, _ *wire.Writer) {
			_, _ = io.WriteString(raw, wire.ClientMagic+"0123456789abcdef\x01")
		},
		"a huge frame": func(raw io.Writer, w *wire.Writer) {
			greet(w)
			_, _ = raw.Write([]byte{4, 0, 0, 0, 1, 255, 255, 255, 255})
		},
		"no seal": func(raw io.Writer, w *wire.Writer) {
			greet(w)
			start(wire.NewWriter(raw), wire.StartMessage{Shell: "true"})
		},
		"other version": func(_ io.Writer, w *wire.Writer) { hello(w, wire.ClientHello{Version: 1, Key: key[:]}) },
		"no key":        func(_ io.Writer, w *wire.Writer) { hello(w, wire.ClientHello{Version: wire.Version}) },
		"twice a stream": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000"})
			start(w, wire.StartMessage{Shell: "true"})
		},
		"no JSON": func(_ io.Writer, w *wire.Writer) { greet(w); _ = w.Forward(wire.Start, 1, []byte("{")) },
		"bad signal": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000"})
			_ = w.Forward(wire.Signal, 1, []byte("[]"))
		},
		"credit for none": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000"})
			_ = w.Message(wire.Credit, 1, wire.CreditMessage{Channel: wire.Stdout, Bytes: 1})
		},
		"credit of a channel that is none": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000"})
			_ = w.Message(wire.Credit, 1, wire.CreditMessage{Channel: 7, Bytes: 1})
		},
		"input not asked for": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000"})
			_ = w.Data(wire.Stdin, 1, []byte("x"))
		},
		"more than its window": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000", Stdin: true})
			for range 40 {
				_ = w.Data(wire.Stdin, 1, make([]byte, wire.MaxData))
			}
		},
		"input after its end": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Shell: "sleep 1000", Stdin: true})
			_ = w.Data(wire.Stdin, 1, nil)
			_ = w.Data(wire.Stdin, 1, []byte("x"))
		},
		"input of the keeper not asked for": func(_ io.Writer, w *wire.Writer) {
			greet(w)
			start(w, wire.StartMessage{Keep: &wire.KeepRequest{Op: wire.KeepBGLog, ID: "bg-1", Follow: true}})
			_ = w.Data(wire.Stdin, 1, []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw, _, err := Open(t.Context(), e.dir, e.options())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if name == "input of the keeper not asked for" {
				if _, err := c.keep(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "sleep 1000"}}, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			say(raw, wire.NewWriter(raw))
			if strings.HasPrefix(name, "half") {
				_ = raw.Close()
				return
			}
			if _, err := io.Copy(io.Discard, raw); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		})
	}
	eventually(t, "only the first is left", func() bool { return c.state().Running == 1 })
	if err := p.Terminate(0); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err != nil || res.Exit.Signal != 9 {
		t.Errorf("%+v, %v", res, err)
	}
}

// More than so many requests of one client at a time are refused.
func TestTooMany(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	c := e.open()
	bg, err := c.keep(wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "sleep 1000"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range maxStreams {
		if _, err := c.Do(wire.StartMessage{Keep: &wire.KeepRequest{Op: wire.KeepBGWait, ID: bg.BG[0].ID}}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if out, res := c.sh("", "echo x"); out != "" || res.Exit.Started || res.Exit.Code != codeFailed || !strings.Contains(res.Exit.Error, "256 requests") {
		t.Errorf("%q, %+v", out, res)
	}
	if out, _ := e.open().sh("", "echo x"); out != "x\n" {
		t.Errorf("another client: %q", out)
	}
}

// A client that used to ping and does so no more is dropped.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	p := quick
	p.Client = 500 * 1e6
	e.periods = &p
	c, d := e.open(), e.open()
	q := c.start("", "sleep 1000", nil)
	<-q.Begun()
	if err := c.Ping(); err != nil { // and no more
		t.Fatal(err)
	}
	<-c.Gone()
	if _, err := q.Wait(); !errors.Is(err, session.ErrGuestGone) {
		t.Error(err)
	}
	eventually(t, "its command is ended", func() bool { return d.state().Running == 0 })
}

// The client's variables win over the environment's.
func TestVariables(t *testing.T) {
	t.Parallel()
	c := newEnv(t, nil).open()
	var out bytes.Buffer
	p, err := c.Start(session.StartRequest{Command: jobs.Command{Shell: `echo "$FROM_SPEC $BOTH $MINE"`}, Env: []string{"BOTH=client", "MINE=x"}}, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "spec client x\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{{"A=1", "A=2", true}, {"A=1", "AB=1", false}, {"AB=1", "A=1", false}, {"A=", "A=", true}, {"A", "A", false}, {"", "", false}} {
		if sameName(c.a, c.b) != c.same {
			t.Errorf("%q, %q", c.a, c.b)
		}
	}
}

// A context that ends while a keeper is asked ends the waiting.
func TestOpenCancelled(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	if err := writeFile(e.dir, "argv", "sh\n-c\nsleep 1000; exec \"$@\"\nsh"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	o := e.options()
	o.Progress = func(string) { cancel(why) }
	if _, _, err := Open(ctx, e.dir, o); !errors.Is(err, why) {
		t.Error(err)
	}
	eventually(t, "the container is started", func() bool { i := e.info(); return i != nil && len(i.Inside) > 0 })
	// It goes on opening; told to end, it does.
	endKeeper(t, e)
	if i := e.info(); i != nil {
		t.Errorf("%+v", i)
	}
}
