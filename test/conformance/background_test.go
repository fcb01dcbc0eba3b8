//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
)

func (p *place) start(text string) engine.Background {
	p.t.Helper()
	b, err := p.s.Start(p.ctx(), engine.ExecRequest{Command: jobs.Command{Shell: text}})
	if err != nil {
		p.t.Fatal(explain(err))
	}
	return b
}

func (p *place) log(id string) string {
	p.t.Helper()
	var out bytes.Buffer
	if _, err := p.v.Log(p.ctx(), id, 0, false, &out); err != nil {
		p.t.Fatal(explain(err))
	}
	return out.String()
}

var backgroundCases = []testCase{
	{"background", "log and exit code", func(p *place) {
		p.want("cd /tmp; export BG=state", 0, "")
		b := p.start("echo $PWD $BG; echo err >&2; exit 5")
		got, err := p.v.Wait(p.ctx(), b.ID)
		if err != nil || got.Exit == nil || got.Exit.Code != 5 || got.Running {
			p.t.Fatalf("got %+v, %v", got, err)
		}
		if l := p.log(b.ID); !strings.Contains(l, "/tmp state\n") || !strings.Contains(l, "err\n") {
			p.t.Errorf("log %q", l)
		}
	}},
	{"background", "another client finds it", func(p *place) {
		b := p.start("echo begun; read line; echo got $line; exit 3")
		p.v.Close()
		other := open(p.t, p.e.Store.Home(), p.v.Spec.Name, "somebody-else")
		list, err := other.v.Backgrounds(p.ctx())
		if err != nil {
			p.t.Fatal(explain(err))
		}
		found := false
		for _, o := range list {
			found = found || o.ID == b.ID && o.Running && o.PID > 0
		}
		if !found {
			p.t.Fatalf("%s is not in %+v", b.ID, list)
		}
		if _, err := other.v.Write(p.ctx(), b.ID, strings.NewReader("hello\n"), false); err != nil {
			p.t.Fatal(explain(err))
		}
		got, err := other.v.Wait(p.ctx(), b.ID)
		if err != nil || got.Exit == nil || got.Exit.Code != 3 || !strings.Contains(other.log(b.ID), "begun\ngot hello\n") {
			p.t.Errorf("got %+v, %v, %q", got, err, other.log(b.ID))
		}
	}},
	{"background", "the end of its input", func(p *place) {
		b := p.start("wc -c")
		if _, err := p.v.Write(p.ctx(), b.ID, strings.NewReader(strings.Repeat("x", 100000)), true); err != nil {
			p.t.Fatal(explain(err))
		}
		if got, err := p.v.Wait(p.ctx(), b.ID); err != nil || got.Exit == nil || !got.Exit.OK() || strings.TrimSpace(p.log(b.ID)) != "100000" {
			p.t.Errorf("got %+v, %v, %q", got, err, p.log(b.ID))
		}
	}},
	{"background", "kill ends the tree", func(p *place) {
		word := unique("bg-tree")
		b := p.start(strings.ReplaceAll(stubborn, "WORD", word))
		p.there(word + "-double")
		if _, err := p.v.Kill(p.ctx(), b.ID, 0, 300*time.Millisecond); err != nil {
			p.t.Fatal(explain(err))
		}
		if got, err := p.v.Wait(p.ctx(), b.ID); err != nil || got.Exit == nil || got.Exit.Code < 128 {
			p.t.Errorf("got %+v, %v", got, err)
		}
		p.gone(word)
	}},
	{"background", "a signal", func(p *place) {
		b := p.start("trap 'echo usr1; exit 8' USR1; echo ready; while :; do sleep 0.1; done")
		for deadline := time.Now().Add(wait); !strings.Contains(p.log(b.ID), "ready") && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		if _, err := p.v.Kill(p.ctx(), b.ID, 10, 0); err != nil {
			p.t.Fatal(explain(err))
		}
		if got, err := p.v.Wait(p.ctx(), b.ID); err != nil || got.Exit == nil || got.Exit.Code != 8 {
			p.t.Errorf("got %+v, %v", got, err)
		}
	}},
	{"background", "following a log", func(p *place) {
		b := p.start("for i in 1 2 3; do echo line $i; sleep 0.3; done")
		var out bytes.Buffer
		if _, err := p.v.Log(p.ctx(), b.ID, 0, true, &out); err != nil || out.String() != "line 1\nline 2\nline 3\n" {
			p.t.Errorf("got %q, %v", out.String(), err)
		}
		out.Reset()
		if _, err := p.v.Log(p.ctx(), b.ID, -7, false, &out); err != nil || out.String() != "line 3\n" {
			p.t.Errorf("the end: %q, %v", out.String(), err)
		}
	}},
	{"background", "one that does not exist", func(p *place) {
		for name, err := range map[string]error{
			"log":  second(p.v.Log(p.ctx(), "bg-9999", 0, false, &bytes.Buffer{})),
			"wait": second(p.v.Wait(p.ctx(), "bg-9999")), "kill": second(p.v.Kill(p.ctx(), "bg-9999", 0, 0)),
			"path": second(p.v.Wait(p.ctx(), "../../x")),
		} {
			if jobs.KindOf(err) != jobs.KindNotFound && jobs.KindOf(err) != jobs.KindUsage {
				p.t.Errorf("%s: %v", name, err)
			}
		}
	}},
	{"background", "a session goes on beside it", func(p *place) {
		b := p.start("sleep 300")
		p.want("echo free", 0, "free\n")
		if _, err := p.v.Kill(p.ctx(), b.ID, 0, 0); err != nil {
			p.t.Error(explain(err))
		}
	}},
	{"background", "a client that is killed takes nothing along", func(p *place) {
		b := p.start("sleep 1; echo finished")
		p.v.Close()
		other := open(p.t, p.e.Store.Home(), p.v.Spec.Name, "later")
		got, err := other.v.Wait(p.ctx(), b.ID)
		if err != nil || got.Exit == nil || !got.Exit.OK() || other.log(b.ID) != "finished\n" {
			p.t.Errorf("got %+v, %v", got, err)
		}
	}},
}

func second(_ engine.Background, err error) error { return err }

var clientCases = []testCase{
	{"clients", "two share a session", func(p *place) {
		p.want("cd /tmp; SHARED=1", 0, "")
		other := open(p.t, p.e.Store.Home(), p.v.Spec.Name, sessionOf("two share a session"))
		other.want("echo $PWD $SHARED", 0, "/tmp 1\n")
	}},
	{"clients", "forty at once", func(p *place) {
		const n = 40
		done := make(chan string, n)
		for i := range n {
			go func() {
				other := newEngine(p.t, p.e.Store.Home())
				v, err := other.FindEnvironment(p.v.Spec.Name)
				if err != nil {
					done <- err.Error()
					return
				}
				defer v.Close()
				s, err := v.Session("many-" + string(rune('a'+i%8)))
				if err != nil {
					done <- err.Error()
					return
				}
				res, err := s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "echo fine"}, Timeout: wait})
				switch {
				case err != nil:
					done <- explain(err)
				case res.Stdout.Text != "fine\n":
					done <- res.Stdout.Text + res.Stderr.Text
				default:
					done <- ""
				}
			}()
		}
		for range n {
			if e := <-done; e != "" {
				p.t.Error(e)
			}
		}
	}},
	{"clients", "one that leaves ends its command", func(p *place) {
		word := unique("left-alone")
		ended := make(chan error, 1)
		go func() {
			_, err := p.s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "sh -c 'while :; do sleep 0.2; done' " + word}, Timeout: wait})
			ended <- err
		}()
		other := open(p.t, p.e.Store.Home(), p.v.Spec.Name, "watching")
		other.there(word)
		p.v.Close()
		if err := <-ended; err == nil {
			p.t.Error("the client was not told")
		}
		other.gone(word)
		other.want("echo on", 0, "on\n")
	}},
	{"clients", "a slow one holds no other up", func(p *place) {
		release := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = p.s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "head -c 20000000 /dev/zero"}, Stdout: &slow{release}, Timeout: wait})
		}()
		other := open(p.t, p.e.Store.Home(), p.v.Spec.Name, "quick")
		for range 20 {
			other.want("echo quick", 0, "quick\n")
		}
		close(release)
		<-ended
	}},
}

// slow takes its first bytes only when it is released.
type slow struct{ release chan struct{} }

func (s *slow) Write(b []byte) (int, error) { <-s.release; return len(b), nil }
