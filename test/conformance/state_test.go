//go:build conformance

package conformance

import (
	"strings"

	"berth/engine"
	"berth/jobs"
)

var stateCases = []testCase{
	{"state", "a directory stays", func(p *place) {
		p.want("mkdir -p /tmp/one/two && cd /tmp/one/two", 0, "")
		if res := p.want("pwd", 0, "/tmp/one/two\n"); res.Dir != "/tmp/one/two" {
			p.t.Errorf("it is told as %q", res.Dir)
		}
	}},
	{"state", "exported and other variables stay", func(p *place) {
		p.want("export A='one  two'; B=$'tab\\there'; unset LANGUAGE", 0, "")
		p.want(`printf '%s|%s|' "$A" "$B"; sh -c 'echo "$A|$B"'`, 0, "one  two|tab\there|one  two|\n")
		p.want("unset A B; echo ${A-none}${B-none}", 0, "nonenone\n")
	}},
	{"state", "arrays stay", func(p *place) {
		p.want("list=(a 'b c' d); declare -A map=([k]=v [x]=y)", 0, "")
		p.want(`echo ${#list[@]} "${list[1]}" ${map[x]}`, 0, "3 b c y\n")
	}},
	{"state", "functions stay", func(p *place) {
		p.want("greet() { echo hello $1; return 3; }", 0, "")
		p.want("greet you", 3, "hello you\n")
	}},
	{"state", "aliases stay", func(p *place) {
		p.want("shopt -s expand_aliases; alias hi='echo hi there'", 0, "")
		p.want("hi", 0, "hi there\n")
	}},
	{"state", "options stay", func(p *place) {
		p.want("set -u; set -o pipefail; shopt -s nullglob", 0, "")
		p.want("false | true", 1, "")
		p.want("echo /nonexistent-*", 0, "\n")
		p.want("set +u; set +o pipefail", 0, "")
		p.want("false | true", 0, "")
	}},
	{"state", "the umask stays", func(p *place) {
		p.want("umask 027", 0, "")
		p.want("umask", 0, "0027\n")
	}},
	{"state", "the last status is seen", func(p *place) {
		p.want("(exit 7)", 7, "")
		p.want("echo $?", 0, "7\n")
	}},
	{"state", "state outlives the shell", func(p *place) {
		p.want("cd /tmp; export KEPT=yes; fun() { echo fun; }; set -o pipefail", 0, "")
		p.want("exit 4", 4, "")
		p.want("pwd; echo $KEPT; fun; false | true", 1, "/tmp\nyes\nfun\n")
	}},
	{"state", "sessions do not mix", func(p *place) {
		other := p.session("another")
		p.want("cd /tmp; V=mine; f() { echo mine; }", 0, "")
		other.want("cd /; V=other; f() { echo other; }", 0, "")
		p.want("echo $PWD $V; f", 0, "/tmp mine\nmine\n")
		other.want("echo $PWD $V; f", 0, "/ other\nother\n")
	}},
	{"state", "a variable for one command", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: `echo "$TOKEN"; sh -c 'echo "$TOKEN"'`}, Env: []string{"TOKEN=s3cret 'x' $y"}})
		if res.Stdout.Text != "s3cret 'x' $y\ns3cret 'x' $y\n" {
			p.t.Errorf("got %q %q", res.Stdout.Text, res.Stderr.Text)
		}
		p.want("echo ${TOKEN-gone}; exit 0", 0, "gone\n")
		p.want("echo ${TOKEN-gone}", 0, "gone\n")
	}},
	{"state", "HOME exists and can be written", func(p *place) {
		name := unique(".conf-test")
		p.want(`cd && [ "$PWD" = "$HOME" ] && echo x >"$HOME/`+name+`" && cat ~/`+name+` && rm ~/`+name, 0, "x\n")
	}},
	{"state", "another directory for one command", func(p *place) {
		p.want("cd /tmp", 0, "")
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "pwd"}, Dir: "/usr"})
		if res.Stdout.Text != "/usr\n" || res.Dir != "/usr" {
			p.t.Errorf("got %q, %q", res.Stdout.Text, res.Dir)
		}
	}},
	{"state", "an argv is not evaluated", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Argv: []string{"printf", "%s|", "$HOME", "*", "a b", "it's", ""}}})
		if res.Stdout.Text != "$HOME|*|a b|it's||" {
			p.t.Errorf("got %q", res.Stdout.Text)
		}
		p.exec(engine.ExecRequest{Command: jobs.Command{Argv: []string{"cd", "/tmp"}}})
		p.want("pwd", 0, "/tmp\n")
	}},
	{"state", "the host's secrets are not there", func(p *place) {
		p.want(`env | grep -c -e CONFORMANCE_ -e SSH_AUTH_SOCK -e SECRET_TOKEN; true`, 0, "0\n")
	}},
	{"state", "much state", func(p *place) {
		p.want(`for i in $(seq 300); do eval "var_$i=$(printf %0200d $i)"; eval "f_$i() { echo $i; }"; done`, 0, "")
		p.want("f_300; echo ${#var_7}", 0, "300\n200\n")
		p.want("exit 1", 1, "")
		p.want("f_299; echo ${#var_8}", 0, "299\n200\n")
	}},
}

var exitCases = []testCase{
	{"exit", "codes", func(p *place) {
		for _, c := range []struct {
			text string
			code int
		}{{"true", 0}, {"false", 1}, {"(exit 42)", 42}, {"exit 255", 255}, {"sh -c 'exit 126'", 126}} {
			p.want(c.text, c.code, "")
		}
	}},
	{"exit", "a program that is not there", func(p *place) {
		if res := p.sh("no-such-program-x"); res.Code != 127 || !strings.Contains(res.Stderr.Text, "no-such-program-x") {
			p.t.Errorf("exit %d, %q", res.Code, res.Stderr.Text)
		}
		if res := p.exec(engine.ExecRequest{Command: jobs.Command{Argv: []string{"no-such-program-x", "y"}}}); res.Code != 127 {
			p.t.Errorf("argv: exit %d", res.Code)
		}
	}},
	{"exit", "a file that is no program", func(p *place) {
		p.want("cd /tmp && echo x >plain.$$ && ./plain.$$ 2>/dev/null; c=$?; rm plain.$$; (exit $c)", 126, "")
	}},
	{"exit", "a signal", func(p *place) {
		p.want("sh -c 'kill -TERM $$'", 143, "")
		p.want("sh -c 'kill -KILL $$'", 137, "")
	}},
	{"exit", "a command that kills its shell", func(p *place) {
		p.want("cd /tmp", 0, "")
		res := p.want("kill -9 $$", 137, "")
		if !res.ShellEnded {
			p.t.Error("that the shell ended is not told")
		}
		p.want("pwd", 0, "/tmp\n")
	}},
	{"exit", "exec replaces the shell", func(p *place) {
		p.want("exec sh -c 'echo other; exit 6'", 6, "other\n")
		p.want("echo again", 0, "again\n")
	}},
	{"exit", "set -e", func(p *place) {
		p.want("set -e; echo a; false; echo b", 1, "a\n")
		p.want("echo on", 0, "on\n")
	}},
	{"exit", "trap at the end", func(p *place) {
		p.want("trap 'echo bye' EXIT; echo hi", 0, "hi\nbye\n")
		p.want("echo next", 0, "next\n")
		p.want("trap 'echo bye; exit 9' EXIT; exit 2", 9, "bye\n")
	}},
	{"exit", "a syntax error", func(p *place) {
		res := p.sh("if then")
		if res.Code != 2 || !strings.Contains(res.Stderr.Text, "syntax error") {
			p.t.Errorf("exit %d, %q", res.Code, res.Stderr.Text)
		}
		p.want("echo fine", 0, "fine\n")
		if res := p.sh("echo 'open"); res.Code != 2 {
			p.t.Errorf("an open quote: exit %d", res.Code)
		}
		p.want("echo fine", 0, "fine\n")
	}},
	{"exit", "a directory that is missing", func(p *place) {
		res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "echo ran"}, Dir: "/no/such/directory"})
		if res.Code != 126 || res.Stdout.Text != "" || !strings.Contains(res.Exit.Error, "/no/such/directory") {
			p.t.Errorf("exit %d, %q, %+v", res.Code, res.Stdout.Text, res.Exit)
		}
		p.want("mkdir /tmp/gone-$$ && cd /tmp/gone-$$ && rmdir /tmp/gone-$$", 0, "")
		if res := p.sh("pwd"); res.Code != 0 || res.Stdout.Text != "/tmp\n" || !strings.Contains(strings.Join(res.Notes, "\n"), "it goes on in /tmp") {
			p.t.Errorf("the session's own: exit %d, %q, %q", res.Code, res.Stdout.Text, res.Notes)
		}
		if res := p.exec(engine.ExecRequest{Command: jobs.Command{Shell: "pwd"}, Dir: "/tmp"}); res.Code != 0 || res.Stdout.Text != "/tmp\n" {
			p.t.Errorf("and on: exit %d, %q", res.Code, res.Stdout.Text)
		}
	}},
	{"exit", "a hostile shell", func(p *place) {
		p.want("exec() { :; }; cd() { :; }; read() { :; }; alias eval=false; IFS=xyz; set -f; PATH=/none; echo set", 0, "set\n")
		p.want("echo on", 0, "on\n")
		p.want("set -x 2>/dev/null; echo traced", 0, "traced\n")
		p.want("echo still", 0, "still\n")
	}},
}
