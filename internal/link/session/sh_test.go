//go:build linux

package session_test

import (
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
)

// openSh opens a session with a guest that has a POSIX shell only.
func openSh(t *testing.T) *place { return open(t, session.Options{}, shVar+"=1") }

// TestPosixShell is about a place without bash. What /bin/sh says differs.
func TestPosixShell(t *testing.T) {
	p := openSh(t)
	if sh := p.s.Guest().Shell; sh != "/bin/sh" {
		t.Fatalf("the shell is %s", sh)
	}
	long := strings.Repeat("x", 1<<20)
	for _, s := range []step{
		{text: "cd /usr; a='it'\\''s \"q\"'; export b='two\nlines'; alias g='echo alias'; f() { echo fun; }; umask 077"},
		{text: "pwd; echo \"$a\"; sh -c 'echo \"$b\"'; g; f; umask", out: "/usr\nit's \"q\"\ntwo\nlines\nalias\nfun\n0077\n"},
		{text: "(exit 7)", code: 7},
		{text: "echo $?", out: "7\n"},
		{text: "cd /; exit 3", code: 3, dir: "/", ended: true},
		{text: "pwd; echo \"$a\"; sh -c 'echo \"$b\"'; g; umask; cat <<X\nhere $?\nX", out: "/\nit's \"q\"\ntwo\nlines\nalias\n0077\nhere 0\n"},
		{text: "kill -9 $$", code: 137, ended: true},
		{text: "exec sh -c 'exit 9'", code: 9, ended: true},
		{text: "trap 'echo bye' EXIT; (exit 4)", out: "bye\n", code: 4},
		{text: "set -e; set -f"},
		{text: "echo *; false; echo no", out: "*\n", code: 1, ended: true},
		{text: "set +e; set +f; set -u; echo $a", out: "it's \"q\"\n"},
		{text: "v=" + long + "; echo ${#v}; unset v", out: "1048576\n"},
		{text: "printf '\xff\xfe'", out: "\xff\xfe"},
		{text: "ls /proc/self/fd | tr '\\n' ' '", out: "0 1 2 3 "},
	} {
		res, out, errs := p.run(in("a", s.text))
		if out != s.out || errs != s.err || res.Exit.Code != s.code || res.ShellEnded != s.ended || s.dir != "" && res.Dir != s.dir {
			t.Errorf("%.200s\ngot  %+v\n%q %q\nwant %.200v", s.text, res, out, errs, s)
		}
	}
	for text, code := range map[string]int{"if": 2, "nosuch": 127, "/etc/passwd": 126} {
		if res, _, errs := p.run(in("a", text)); res.Exit.Code != code || res.ShellEnded || errs == "" {
			t.Errorf("%s: %+v %q", text, res, errs)
		}
	}
	req := in("a", `sh -c 'echo "$SECRET"'; cat`)
	req.Env, req.Stdin, req.Dir = []string{"SECRET=s3\ncret"}, strings.NewReader("input"), "/tmp"
	if res, out, _ := p.run(req); out != "s3\ncret\ninput" || res.Dir != "/tmp" {
		t.Errorf("%q %+v", out, res)
	}
	if _, out, _ := p.run(in("a", "echo ${SECRET-gone}; set | grep -c s3")); out != "gone\n0\n" {
		t.Errorf("%q", out)
	}
	req = in("a", `echo "$a"; sh -c 'echo "$b$c"'; pwd; exit 5`)
	req.Fork, req.Env = true, []string{"c=3"}
	if res, out, _ := p.run(req); out != "it's \"q\"\ntwo\nlines3\n/tmp\n" || res.Exit.Code != 5 {
		t.Errorf("fork: %q %+v", out, res)
	}
	req = in("a", "a=lost; trap '' TERM; sleep 300; sleep 300")
	req.Timeout, req.Grace = 200*time.Millisecond, 200*time.Millisecond
	if res, _, _ := p.run(req); !res.TimedOut || res.Exit.Code != 124 {
		t.Errorf("%+v", res)
	}
	if _, out, _ := p.run(in("a", "echo $a")); out != "it's \"q\"\n" {
		t.Errorf("%q", out)
	}
}
