//go:build linux

package session_test

import (
	"testing"

	"berth/internal/link/session"
	"berth/jobs"
)

// in makes a request of a session's.
func in(name, text string) session.StartRequest {
	return session.StartRequest{Command: jobs.Command{Shell: text}, Session: name}
}

// step is one command of a session and what must come of it.
type step struct {
	text, out, err string
	code           int
	dir            string // after it; "" is not looked at
	ended          bool   // the shell
}

// steps runs commands one after the other in one session.
func steps(t *testing.T, o session.Options, list ...step) {
	t.Helper()
	p := open(t, o)
	for _, s := range list {
		res, out, errs := p.run(in("a", s.text))
		if out != s.out || errs != s.err || res.Exit.Code != s.code || res.ShellEnded != s.ended || s.dir != "" && res.Dir != s.dir {
			t.Errorf("%s\ngot  %+v\n%q %q\nwant %+v", s.text, res, out, errs, s)
		}
		if !res.Exit.Started || res.Dir == "" || res.Started.IsZero() || res.Ended.Before(res.Started) {
			t.Errorf("%s: %+v", s.text, res)
		}
	}
}

func TestShellState(t *testing.T) {
	steps(t, session.Options{Dir: "/"},
		step{text: "pwd; cd /tmp", out: "/\n", dir: "/tmp"},
		step{text: "pwd; cd -", out: "/tmp\n/\n", dir: "/"},
		step{text: `a=1; export b=2; c=(x "y z"); declare -A d=([k]="v w"); f() { echo "f $1"; }; alias g='echo alias'`},
		step{text: `echo $a ${c[1]} ${d[k]}; f x; g y; sh -c 'echo $a-$b'`, out: "1 y z v w\nf x\nalias y\n-2\n"},
		step{text: "set -f -o pipefail; shopt -s nullglob; umask 077"},
		step{text: "echo $- * ; umask; shopt nullglob; false | true", out: "fhBc *\n0077\nnullglob       \ton\n", code: 1},
		step{text: "echo $?", out: "1\n"},
		step{text: "set +o pipefail; (exit 7)", code: 7},
		step{text: "echo $?; sh -c 'echo err >&2'", out: "7\n", err: "err\n"},
		step{text: "cat <<X\nhere $a\nX", out: "here 1\n"},
		step{text: "cd /usr; exit 3", code: 3, dir: "/usr", ended: true},
		step{text: `echo $? $a ${c[1]} ${d[k]}; f x; g y; sh -c 'echo $a-$b'; umask; pwd; echo $-; cd -`,
			out: "3 1 y z v w\nf x\nalias y\n-2\n0077\n/usr\nfhBc\n/\n", dir: "/"},
		step{text: "kill -9 $$", code: 137, ended: true},
		step{text: "echo $a", out: "1\n"},
		step{text: "exec sh -c 'echo $b; exit 9'", out: "2\n", code: 9, ended: true},
		step{text: "if", err: "bash: eval: line 2: syntax error: unexpected end of file\n", code: 2},
		step{text: "echo $$ >/dev/null; nosuch", err: "bash: line 1: nosuch: command not found\n", code: 127},
		step{text: "trap 'echo bye $?; exit 5' EXIT; a=2; (exit 4)", out: "bye 4\n", code: 5},
		step{text: "echo $a; trap 'echo bye' EXIT; exit 6", out: "2\nbye\n", code: 6, ended: true},
		step{text: "set -e"},
		step{text: "echo $-; false; echo no", out: "efhBc\n", code: 1, ended: true},
		step{text: "echo $-; set +e; unset a b", out: "efhBc\n"},
		step{text: "set -x; set -u; :", err: "++++ set -u\n++++ :\n"},
		step{text: "echo x; set +x; set +u", out: "x\n", err: "++++ echo x\n++++ set +x\n"},
		step{text: "echo ${a-unset} ${b-unset}; declare -p __berth __berth_s BERTH_X 2>&1 | wc -l", out: "unset unset\n3\n"},
	)
}
