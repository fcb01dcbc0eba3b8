//go:build conformance

package conformance

import (
	"context"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
)

// stubborn starts children of every unkind sort, whose command lines hold WORD.
const stubborn = `
sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' WORD-ignores &
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' WORD-session &
(setsid sh -c 'trap "" TERM; (while :; do sleep 1; done)' WORD-double &) &
(env -i /bin/sh -c 'while :; do /bin/sleep 1; done' WORD-naked &) &
echo started; sleep 300`

func (p *place) limited(text string, limit time.Duration) *engine.ExecResult {
	p.t.Helper()
	return p.exec(engine.ExecRequest{Command: jobs.Command{Shell: text}, Timeout: limit})
}

var timeCases = []testCase{
	{"time", "a limit ends the command", func(p *place) {
		p.want("cd /tmp; A=kept", 0, "")
		res := p.limited("echo part; A=lost; sleep 300; echo never", 10*time.Second)
		if res.Code != jobs.CodeTimeout || !res.TimedOut || res.Stdout.Text != "part\n" {
			p.t.Errorf("exit %d, %v, %q", res.Code, res.TimedOut, res.Stdout.Text)
		}
		p.want("pwd; echo $A", 0, "/tmp\nkept\n")
	}},
	{"time", "a limit ends the whole tree", func(p *place) {
		word := unique("limit-tree")
		res := p.limited(strings.ReplaceAll(stubborn, "WORD", word), 10*time.Second)
		if res.Code != jobs.CodeTimeout || res.Stdout.Text != "started\n" {
			p.t.Errorf("exit %d, %q", res.Code, res.Stdout.Text)
		}
		p.gone(word)
	}},
	{"time", "a limit ends a shell that ignores TERM", func(p *place) {
		if res := p.limited("trap '' TERM; while :; do :; done", time.Second); res.Code != jobs.CodeTimeout {
			p.t.Errorf("exit %d", res.Code)
		}
		p.want("echo on", 0, "on\n")
	}},
	{"time", "an end in time is no timeout", func(p *place) {
		if res := p.limited("sleep 0.2; exit 3", wait); res.Code != 3 || res.TimedOut {
			p.t.Errorf("exit %d, %v", res.Code, res.TimedOut)
		}
	}},
	{"time", "an earlier command's process lives on", func(p *place) {
		word := unique("earlier-one")
		p.want("sh -c 'while :; do sleep 0.2; done' "+word+" & sleep 1.1", 0, "")
		p.there(word)
		p.limited("sleep 300", time.Second)
		p.there(word)
		p.sh("for d in /proc/[0-9]*; do tr '\\0' ' ' <$d/cmdline 2>/dev/null | grep -q '[e]" + word[1:] + "' && kill -9 ${d#/proc/}; done; true")
		p.gone(word)
	}},
	{"time", "an interrupt ends the whole tree", func(p *place) {
		word := unique("interrupt-tree")
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		first := &firstWrite{seen: cancel}
		res, err := p.s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: strings.ReplaceAll(stubborn, "WORD", word)}, Stdout: first})
		if err != nil || res.Code != jobs.CodeInterrupted || !res.Interrupted {
			p.t.Errorf("got %+v, %v", res, err)
		}
		p.gone(word)
		p.want("echo on", 0, "on\n")
	}},
	{"time", "two sessions at once", func(p *place) {
		other := p.session("parallel")
		let := "/tmp/" + unique("parallel-go")
		done := make(chan *engine.ExecResult, 1)
		go func() {
			res, _ := p.s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "while [ ! -e " + let + " ]; do sleep 0.05; done; rm " + let + "; echo one"}, Timeout: wait})
			done <- res
		}()
		other.want("touch "+let+"; echo two", 0, "two\n")
		if res := <-done; res == nil || res.Stdout.Text != "one\n" {
			p.t.Errorf("got %+v", res)
		}
	}},
	{"time", "one session, one command at a time", func(p *place) {
		done := make(chan *engine.ExecResult, 8)
		for range 8 {
			go func() {
				res, _ := p.s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "n=${n:-0}; m=$n; sleep 0.05; n=$((m+1)); echo $n"}, Timeout: wait})
				done <- res
			}()
		}
		for range 8 {
			<-done
		}
		p.want("echo $n", 0, "8\n")
	}},
	{"time", "a limit of one does not end another", func(p *place) {
		other := p.session("beside")
		done := make(chan *engine.ExecResult, 1)
		go func() {
			res, _ := other.s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: "sleep 4; echo whole"}, Timeout: wait})
			done <- res
		}()
		p.limited("sleep 300", time.Second)
		if res := <-done; res == nil || res.Stdout.Text != "whole\n" {
			p.t.Errorf("got %+v", res)
		}
	}},
}
