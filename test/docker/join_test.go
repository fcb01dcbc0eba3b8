//go:build docker

package docker_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"berth/backends/docker"
	"berth/internal/link/session"
	"berth/internal/node/guest"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"
)

// converse starts a program and talks to the guest that it runs.
func converse(t *testing.T, argv, env []string) (*session.Session, jobs.Process) {
	t.Helper()
	inR, inW, err := os.Pipe()
	must(t, err)
	outR, outW, err := os.Pipe()
	must(t, err)
	said := &safe{}
	p, err := run.Local{}.Start(context.WithoutCancel(t.Context()), jobs.Cmd{Argv: argv, Env: env, Dir: "/", Stdin: inR, Stdout: outW, Stderr: said})
	must(t, err)
	_, _ = inR.Close(), outW.Close()
	s, err := session.Open(t.Context(), outR, inW, session.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return s, p
}

// A second guest in an attempt's container sees the first one's processes, has
// no more rights, and ends without them.
func TestJoin(t *testing.T) {
	id, err := ids.New()
	must(t, err)
	name := jobs.JobName("join", id)
	argv, err := (&docker.Backend{}).Argv(jobs.Invocation{Name: name, User: "12345:12345", Guest: node, Place: jobs.Place{Image: image}}, []string{"guest"})
	must(t, err)
	if _, _, err := docker.ExecArgv(t.Context(), run.Local{}, name, "guest", guest.Joined); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("no container: %v", err)
	}
	env := docker.Environ(os.Getenv)
	first, proc := converse(t, argv, env)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = first.Quit(ctx)
		_, _ = proc.Wait()
	}()
	task, err := first.Start(session.StartRequest{Command: jobs.Command{Shell: "sleep 310"}}, nil, nil)
	must(t, err)
	<-task.Begun()
	argv, env, err = docker.ExecArgv(t.Context(), run.Local{}, name, "guest", guest.Joined)
	must(t, err)
	second, joined := converse(t, argv, env)
	var out safe
	p, err := second.Start(session.StartRequest{Command: jobs.Command{Shell: `until grep -qs "[3]10" /proc/[0-9]*/cmdline; do sleep 0.1; done; setsid sleep 311 >&- 2>&- & grep -E "CapEff|NoNewPrivs" /proc/self/status; id -u; for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done`}}, &out, &out)
	must(t, err)
	if res, err := p.Wait(); err != nil || !res.Exit.OK() {
		t.Errorf("%+v %v", res, err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000\nNoNewPrivs:\t1\n12345\n", "/.berth/node guest \n", "sleep 310"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not there:\n%s", want, out.String())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, second.Quit(ctx))
	if exit, err := joined.Wait(); err != nil || !exit.OK() {
		t.Errorf("%+v %v", exit, err)
	}
	// What is killed stays in /proc for a moment.
	for left := ""; left != "sleep 310"; time.Sleep(100 * time.Millisecond) {
		var out safe
		p, err = first.Start(session.StartRequest{Command: jobs.Command{Shell: `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done | grep '^sleep'`}}, &out, &out)
		must(t, err)
		_, err := p.Wait()
		if left = strings.TrimSpace(out.String()); err != nil || !strings.Contains(left, "sleep 310") || ctx.Err() != nil {
			t.Fatalf("%v; of both are left:\n%s", err, left)
		}
	}
}
