//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/jobs"
)

// wait bounds every single thing that a case waits for.
const wait = 3 * time.Minute

// tag is of this run alone. Where nothing is contained, the processes of others on
// the machine are seen, and HOME and /tmp are shared, with other runs of this suite, too.
var tag = strings.ToLower(rand.Text()[:8])

// unique is a word of this run.
func unique(word string) string { return word + "-" + tag }

func backend() string { return os.Getenv("CONFORMANCE_BACKEND") }

// scheduler, if there is one, gives the environments allocations to be kept in.
func scheduler() string { return os.Getenv("CONFORMANCE_SCHEDULER") }

// login is the host on which the scheduler is asked; "" is this one.
func login() *jobs.SSHSpec {
	if h := os.Getenv("CONFORMANCE_LOGIN"); h != "" {
		return &jobs.SSHSpec{Host: h}
	}
	return nil
}

// column is where what has passed stands in the table.
func column() string {
	switch {
	case login() != nil:
		return "held-ssh"
	case scheduler() != "":
		return "held"
	case backend() == "sample":
		return jobs.BackendExternal
	}
	return backend()
}

// newEngine is a program of its own, as far as the environments can tell.
func newEngine(t *testing.T, home string) *engine.Engine {
	t.Helper()
	// Those of cleanups, too, when the context of the test has ended.
	e, err := engine.Open(context.WithoutCancel(t.Context()), engine.Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func options(name string) jobs.EnvOptions {
	o := jobs.EnvOptions{Name: name, Lifetime: 2 * time.Minute, Place: jobs.Place{Backend: backend(), Scheduler: scheduler(), Login: login()}}
	switch backend() {
	case jobs.BackendSSH:
		o.SSH = &jobs.SSHSpec{Host: os.Getenv("CONFORMANCE_HOST")}
	case jobs.BackendLocal:
	default:
		o.Image = os.Getenv("CONFORMANCE_IMAGE")
	}
	return o
}

// place is an environment and a client of it.
type place struct {
	t *testing.T
	e *engine.Engine
	v *engine.Environment
	s *engine.Session

	node   string // of the last allocation, where it is held in one
	absent bool   // the backend does not have what the case is about, and has said so
}

// open makes or finds an environment and a session in it.
func open(t *testing.T, home, name, session string) *place {
	t.Helper()
	p := &place{t: t, e: newEngine(t, home)}
	ctx, cancel := context.WithTimeout(context.Background(), 3*wait)
	defer cancel()
	var err error
	if p.v, err = p.e.Environment(ctx, options(name)); err != nil {
		t.Fatal(explain(err))
	}
	t.Cleanup(p.v.Close)
	if p.s, err = p.v.Session(session); err != nil {
		t.Fatal(err)
	}
	return p
}

func explain(err error) string {
	if err == nil {
		return "no error"
	}
	if h := jobs.HintOf(err); h != "" {
		return err.Error() + "\nhint: " + h
	}
	return err.Error()
}

func (p *place) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	p.t.Cleanup(cancel)
	return ctx
}

// exec runs a command to its end.
func (p *place) exec(req engine.ExecRequest) *engine.ExecResult {
	p.t.Helper()
	res, err := p.s.Exec(p.ctx(), req)
	if err != nil {
		p.t.Fatalf("%.200q: %s", req.Command, explain(err))
	}
	return res
}

func (p *place) sh(text string) *engine.ExecResult {
	p.t.Helper()
	return p.exec(engine.ExecRequest{Command: jobs.Command{Shell: text}})
}

// want runs a text and compares its code and standard output.
func (p *place) want(text string, code int, out string) *engine.ExecResult {
	p.t.Helper()
	res := p.sh(text)
	if res.Code != code || res.Stdout.Text != out {
		p.t.Errorf("%.200q: exit %d, want %d; stdout %.300q, want %.300q; stderr %.500q", text, res.Code, code, res.Stdout.Text, out, res.Stderr.Text)
	}
	return res
}

// session is another session of the same environment.
func (p *place) session(name string) *place {
	p.t.Helper()
	s, err := p.v.Session(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return &place{t: p.t, e: p.e, v: p.v, s: s}
}

// gone makes sure that no process inside has this word on its command line.
func (p *place) gone(word string) {
	p.t.Helper()
	text := having(word)
	other := p.session("looking")
	deadline := time.Now().Add(wait)
	for {
		left := strings.Fields(other.sh(text).Stdout.Text)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Errorf("processes are left: %v", left)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// having lists the processes with this word on their command line. The brackets
// keep the question from finding itself; it is one process, because many tests
// ask at once about many processes.
func having(word string) string {
	return fmt.Sprintf(`grep -la '[%c]%s' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; true`, word[0], word[1:])
}

// there waits until a process with this word on its command line runs inside.
func (p *place) there(word string) {
	p.t.Helper()
	text := having(word)
	other := p.session("looking")
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if other.sh(text).Stdout.Text != "" {
			return
		}
	}
	p.t.Fatalf("no process %q appeared", word)
}

// Cases is the suite. Each case has a session of its own in an environment that
// all share, but those that end or remove it.
type testCase struct {
	group, name string
	run         func(p *place)
}

// sessionOf names a session after a case.
func sessionOf(name string) string {
	return "case-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

func TestConformance(t *testing.T) {
	if backend() == "" {
		t.Fatal("CONFORMANCE_BACKEND names no backend")
	}
	home := filepath.Join(t.TempDir(), "state")
	name := fmt.Sprintf("conf-%d", os.Getpid())
	first := open(t, home, name, "first")
	// What is left when all is over must be nothing.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		e := newEngine(t, home)
		list, err := e.Environments()
		if err != nil {
			t.Error(err)
		}
		for _, v := range list {
			if err := v.Remove(ctx, true); err != nil {
				t.Error(explain(err))
			}
		}
		found, err := e.Collect(ctx, true)
		if err != nil || len(found) > 0 {
			t.Errorf("left behind: %+v, %v", found, err)
		}
	})
	first.want("echo ready", 0, "ready\n")
	var passed bytes.Buffer
	for _, list := range [][]testCase{stateCases, exitCases, streamCases, timeCases, backgroundCases, fileCases, clientCases, lifeCases, fateCases, snapshotCases, inputCases} {
		for _, c := range list {
			mark := ""
			ok := t.Run(c.group+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				p := open(t, home, name, sessionOf(c.name))
				if c.run(p); p.absent {
					mark = "\t-"
				}
			})
			if ok {
				fmt.Fprintf(&passed, "%s\t%s\t%s%s\n", c.group, c.name, column(), mark)
			}
		}
	}
	if out := os.Getenv("CONFORMANCE_OUT"); out != "" {
		if err := os.WriteFile(out, passed.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
}
