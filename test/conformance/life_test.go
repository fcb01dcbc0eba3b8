//go:build conformance

package conformance

import (
	"context"
	"errors"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
)

// own makes an environment for one case alone.
func (p *place) own(name string, change func(*jobs.EnvOptions)) *place {
	p.t.Helper()
	o := options(p.v.Spec.Name + "-" + name)
	if change != nil {
		change(&o)
	}
	v, err := p.e.Environment(p.ctx(), o)
	if err != nil {
		p.t.Fatal(explain(err))
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := v.Remove(ctx, true); err != nil {
			p.t.Error(explain(err))
		}
	})
	s, err := v.Session("")
	if err != nil {
		p.t.Fatal(err)
	}
	return &place{t: p.t, e: p.e, v: v, s: s}
}

var lifeCases = []testCase{
	{"life", "files outlive a stop", func(p *place) {
		q := p.own("stop", nil)
		keep := "~/" + unique("keep")
		q.want("mkdir "+keep+" && echo kept >"+keep+"/file && ln -s file "+keep+"/link && cd "+keep+" && X=1", 0, "")
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		if _, err := q.v.State(p.ctx()); !errors.Is(err, engine.ErrNotRunning) {
			p.t.Errorf("it still runs: %v", err)
		}
		res := q.want("cat "+keep+"/link; echo ${X-anew}; rm -r "+keep, 0, "kept\nanew\n")
		if len(res.Notes) == 0 || !strings.Contains(strings.Join(res.Notes, " "), "again") {
			p.t.Errorf("that it began anew is not said: %q", res.Notes)
		}
	}},
	{"life", "variables of whoever runs a command", func(p *place) {
		p.t.Setenv("CONF_TOKEN", "one 'two' $three")
		q := p.own("forward", func(o *jobs.EnvOptions) { o.Forward = []string{"CONF_TOKEN", "CONF_NOT_SET"} })
		q.want(`sh -c 'echo "$CONF_TOKEN" ${CONF_NOT_SET-none}'`, 0, "one 'two' $three none\n")
		p.t.Setenv("CONF_TOKEN", "another")
		q.want(`echo "$CONF_TOKEN"`, 0, "another\n")
		b := q.start("echo bg $CONF_TOKEN")
		if _, err := q.v.Wait(p.ctx(), b.ID); err != nil || q.log(b.ID) != "bg another\n" {
			p.t.Errorf("got %q, %v", q.log(b.ID), err)
		}
	}},
	{"life", "stop ends everything", func(p *place) {
		q := p.own("stopall", nil)
		word := unique("stop-all")
		b := q.start(strings.ReplaceAll(stubborn, "WORD", word))
		q.there(word + "-double")
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		q.gone(word)
		list, err := q.v.Backgrounds(p.ctx())
		if err != nil || len(list) != 1 || list[0].ID != b.ID || list[0].Running || (list[0].Exit == nil && list[0].Lost == "") {
			p.t.Errorf("got %+v, %v", list, err)
		}
	}},
	{"life", "it ends when it is not used", func(p *place) {
		q := p.own("idle", func(o *jobs.EnvOptions) { o.Lifetime = time.Second })
		q.want("echo on", 0, "on\n")
		q.v.Close()
		for deadline := time.Now().Add(wait); ; {
			// Whoever asks for the state does not keep it.
			time.Sleep(time.Second)
			_, err := q.v.State(p.ctx())
			q.v.Close()
			if errors.Is(err, engine.ErrNotRunning) {
				break
			}
			if time.Now().After(deadline) {
				p.t.Fatalf("it still runs: %v", err)
			}
		}
	}},
	{"life", "never under a running command", func(p *place) {
		q := p.own("busy", func(o *jobs.EnvOptions) { o.Lifetime = time.Second })
		q.want("sleep 4; echo whole", 0, "whole\n")
		let := "/tmp/" + unique("busy-go")
		b := q.start("until [ -e " + let + " ]; do sleep 0.1; done; rm " + let + "; echo bg whole")
		q.v.Close()
		time.Sleep(4 * time.Second)
		q.want("touch "+let, 0, "")
		if got, err := q.v.Wait(p.ctx(), b.ID); err != nil || got.Exit == nil || !got.Exit.OK() {
			p.t.Errorf("got %+v, %v", got, err)
		}
	}},
	{"life", "remove removes it", func(p *place) {
		q := p.own("rm", nil)
		left := "~/" + unique(".conf-removed")
		q.want("echo x >"+left, 0, "")
		if err := q.v.Remove(p.ctx(), false); err != nil {
			p.t.Fatal(explain(err))
		}
		if _, err := p.e.FindEnvironment(q.v.Spec.Name); jobs.KindOf(err) != jobs.KindNotFound {
			p.t.Errorf("it is still recorded: %v", err)
		}
		if q.v.Spec.Level != jobs.LevelNone {
			r := p.own("rm", nil)
			r.want("cat "+left+" 2>/dev/null || echo gone", 0, "gone\n")
		} else {
			p.sh("rm -f " + left)
		}
	}},
	{"life", "one in use is not removed", func(p *place) {
		q := p.own("inuse", nil)
		q.start("sleep 300")
		if err := q.v.Remove(p.ctx(), false); jobs.KindOf(err) != jobs.KindUsage || jobs.HintOf(err) == "" {
			p.t.Errorf("got %v", err)
		}
		q.want("echo on", 0, "on\n")
	}},
	{"life", "two clients open it at once", func(p *place) {
		q := p.own("race", nil)
		done := make(chan string, 6)
		for range 6 {
			go func() {
				v, err := newEngine(p.t, p.e.Store.Home()).FindEnvironment(q.v.Spec.Name)
				if err != nil {
					done <- explain(err)
					return
				}
				defer v.Close()
				st, err := openState(v)
				if err != nil {
					done <- explain(err)
					return
				}
				done <- "pid " + st
			}()
		}
		first := <-done
		for range 5 {
			if got := <-done; got != first || !strings.HasPrefix(got, "pid ") {
				p.t.Errorf("got %q and %q", first, got)
			}
		}
	}},
	{"life", "a tree that resists is removed", func(p *place) {
		q := p.own("resist", nil)
		if q.v.Spec.Level == jobs.LevelNone {
			q.want("true", 0, "") // nothing of the files is berth's
			return
		}
		q.want("mkdir -p ~/d/e/f && touch ~/d/e/f/g && chmod 0500 ~/d/e/f && chmod 0 ~/d/e", 0, "")
		if err := q.v.Remove(p.ctx(), false); err != nil {
			p.t.Error(explain(err))
		}
	}},
	{"life", "package managers work", func(p *place) {
		q := p.own("whiteout", nil)
		if q.v.Spec.Level == jobs.LevelNone {
			q.want("true", 0, "") // the host's own directories are not touched
			return
		}
		q.want("[ -w / ] || exit 0; d=$(ls -d /usr/share/doc/*/ | head -1); rm -r $d && mkdir $d && [ -z \"$(ls -A $d)\" ] && rmdir $d && mv /usr/share/misc /usr/share/misc2 && mkdir /usr/share/misc && [ -z \"$(ls -A /usr/share/misc)\" ] && ls /usr/share/misc2 >/dev/null", 0, "")
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		q.want("[ -w / ] || exit 0; [ -z \"$(ls -A /usr/share/misc)\" ]", 0, "")
	}},
}

func openState(v *engine.Environment) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if _, err := v.Open(ctx); err != nil {
		return "", err
	}
	st, err := v.State(ctx)
	if err != nil {
		return "", err
	}
	return st.Opened.String(), nil
}

var inputCases = []testCase{
	{"input", "a session's name", func(p *place) {
		for _, n := range []string{"a b", "../x", "-x", "a\nb", strings.Repeat("x", 200)} {
			if _, err := p.v.Session(n); jobs.KindOf(err) != jobs.KindUsage {
				p.t.Errorf("%q: %v", n, err)
			}
		}
	}},
	{"input", "an environment's name", func(p *place) {
		for _, n := range []string{"A", "../x", "a b", ".x", "a/b", "x\n"} {
			if _, err := p.e.Environment(p.ctx(), options(n)); jobs.KindOf(err) != jobs.KindUsage {
				p.t.Errorf("%q: %v", n, err)
			}
		}
	}},
	{"input", "no command", func(p *place) {
		if _, err := p.s.Exec(p.ctx(), engine.ExecRequest{}); err == nil {
			p.t.Error("it was taken")
		}
		p.want("echo on", 0, "on\n")
	}},
	{"input", "a NUL byte", func(p *place) {
		for _, c := range []jobs.Command{{Shell: "echo a\x00b"}, {Argv: []string{"echo", "a\x00b"}}} {
			res, err := p.s.Exec(p.ctx(), engine.ExecRequest{Command: c})
			if err == nil && res.Code != 126 {
				p.t.Errorf("%q: %+v", c, res)
			}
		}
		p.want("echo on", 0, "on\n")
	}},
	{"input", "a variable without a name", func(p *place) {
		res, err := p.s.Exec(p.ctx(), engine.ExecRequest{Command: jobs.Command{Shell: "true"}, Env: []string{"=x"}})
		if err == nil && res.Code != 126 {
			p.t.Errorf("%+v", res)
		}
	}},
	{"input", "another backend for the same name", func(p *place) {
		o := options(p.v.Spec.Name)
		o.Backend = jobs.BackendLocal
		if backend() == jobs.BackendLocal {
			o.Backend = jobs.BackendDocker
		}
		if _, err := p.e.Environment(p.ctx(), o); jobs.KindOf(err) != jobs.KindUsage || jobs.HintOf(err) == "" {
			p.t.Errorf("got %v", err)
		}
	}},
	{"input", "words that are no options", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Argv: []string{"printf", "%s\n", "--", "-n", "$(reboot)", "`x`", "\\"}}})
		if res.Stdout.Text != "--\n-n\n$(reboot)\n`x`\n\\\n" {
			p.t.Errorf("got %q", res.Stdout.Text)
		}
	}},
}
