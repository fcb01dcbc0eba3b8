//go:build linux

package session_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// typist is a person at a terminal.
type typist struct {
	p    *place
	proc *session.Process
	keys *io.PipeWriter
	out  buffer
}

func (p *place) sit(req session.StartRequest, size wire.Size) *typist {
	p.t.Helper()
	r, w := io.Pipe()
	ty := &typist{p: p, keys: w}
	req.TTY, req.Stdin = &size, r
	ty.proc = p.start(req, &ty.out, nil)
	p.t.Cleanup(func() { _ = w.Close() })
	return ty
}

func (ty *typist) press(keys string) {
	ty.p.t.Helper()
	if _, err := ty.keys.Write([]byte(keys)); err != nil {
		ty.p.t.Fatal(err)
	}
}

func (ty *typist) see(text string) {
	ty.p.t.Helper()
	for deadline := time.Now().Add(hang); !strings.Contains(ty.out.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ty.p.t.Fatalf("%q does not show up in %q", text, ty.out.String())
		}
	}
}

func TestTerminal(t *testing.T) {
	p := open(t, session.Options{})
	for name, req := range map[string]session.StartRequest{"plain": {}, "session": {Session: "a"}} {
		t.Run(name, func(t *testing.T) {
			req.Command = jobs.Command{Shell: `tty >/dev/null && test -t 0 -a -t 1 -a -t 2 && stty size; echo $TERM; : </dev/tty && echo mine; trap 'echo int' INT
echo ready; until stty size | grep '40 120'; do sleep 0.02; done; read x; echo got $x; until read y; do :; done; exit 7`}
			ty := p.sit(req, wire.Size{Rows: 30, Cols: 101})
			ty.see("30 101\r\nxterm-256color\r\nmine\r\nready\r\n")
			if err := ty.proc.Resize(wire.Size{Rows: 40, Cols: 120}); err != nil {
				t.Fatal(err)
			}
			ty.see("40 120\r\n")
			ty.press("typed\n")
			ty.see("got typed\r\n")
			ty.press("\x03")
			ty.see("int\r\n")
			ty.press("end\n")
			if res, err := wait(t, ty.proc); err != nil || res.Exit != (jobs.Exit{Started: true, Code: 7}) {
				t.Errorf("%+v %v\n%s", res, err, ty.out.String())
			}
			if err := ty.proc.Resize(wire.Size{Rows: 1, Cols: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	// To the end, however much.
	ty := p.sit(session.StartRequest{Command: jobs.Command{Shell: "seq 100000; echo last"}, Env: []string{"TERM=vt100"}}, wire.Size{})
	if _, err := wait(t, ty.proc); err != nil || !strings.HasSuffix(ty.out.String(), "\r\n100000\r\nlast\r\n") {
		t.Errorf("%v, %d bytes", err, len(ty.out.String()))
	}
	// A child that was left behind with the terminal holds nothing up.
	ty = p.sit(session.StartRequest{Command: jobs.Command{Shell: "trap '' HUP; sleep 300 & echo $!"}}, wire.Size{})
	if _, err := wait(t, ty.proc); err != nil {
		t.Error(err)
	}
	if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
		t.Errorf("%d left %v", left, err)
	}
}

func TestInteractiveShell(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("rc=fromrc\nalias rcalias='echo aliased'\nPS1='rc$ '\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a"} {
		p := open(t, session.Options{Home: home})
		p.run(in("a", "v=state; cd /usr; f() { echo fun; }; set -e -o pipefail; export E=exported"))
		ty := p.sit(session.StartRequest{Session: name, Env: []string{"EXTRA=extra"}}, wire.Size{Rows: 24, Cols: 80})
		ty.see("$ ")
		ty.press("echo $rc:$v:$PWD:$EXTRA:$E:$-; rcalias x; f; ls -l /proc/self/fd | wc -l\n")
		want := map[string]string{"": "fromrc::" + home + ":extra::", "a": "fromrc:state:/usr:extra:exported:"}[name]
		ty.see("\n" + want)
		ty.see("aliased x\r\n")
		if name != "" {
			ty.see("fun\r\n")
		}
		ty.see("\n5\r\n")
		ty.press("sh -c 'echo run\"\"ning; exec sleep 300'\n")
		ty.see("running\r\n")
		ty.press("\x03")
		ty.press("echo code $?\n")
		ty.see("code 130\r\n")
		ty.press("v=changed; exit 5\n")
		if res, err := wait(t, ty.proc); err != nil || res.Exit.Code != 5 {
			t.Errorf("%+v %v", res, err)
		}
		if _, out, _ := p.run(in("a", "echo $v")); out != "state\n" {
			t.Errorf("%q", out)
		}
		// Its client goes: what runs there is hung up.
		ty = p.sit(session.StartRequest{Session: name}, wire.Size{Rows: 24, Cols: 80})
		ty.see("$ ")
		ty.press("sleep 300 & echo pid $!; sleep 301 # x\n")
		ty.see("pid ")
		time.Sleep(100 * time.Millisecond)
		if err := ty.proc.Terminate(hang); err != nil {
			t.Fatal(err)
		}
		if res, err := wait(t, ty.proc); err != nil || res.Exit.Signal == int(syscall.SIGKILL) {
			t.Errorf("%+v %v", res, err)
		}
	}
	p := openSh(t)
	p.run(in("a", "v=state; cd /usr"))
	ty := p.sit(session.StartRequest{Session: "a"}, wire.Size{Rows: 24, Cols: 80})
	ty.press("echo $v:$PWD\n")
	ty.see("state:/usr\r\n")
	ty.press("exit 4\n")
	if res, err := wait(t, ty.proc); err != nil || res.Exit.Code != 4 {
		t.Errorf("%+v %v", res, err)
	}
}

func TestLoginShell(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".bash_profile"), []byte("export MODULES=yes\nmodule() { echo module $1; }\necho noise\ncd /\nset -u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, session.Options{Home: home, Login: true, Dir: "/usr"})
	for _, fork := range []bool{false, true, false} {
		req := in("a", "echo $MODULES $PWD; module x; kill -9 $$")
		req.Fork = fork
		if res, out, errs := p.run(req); out != "yes /usr\nmodule x\n" || errs != "" || res.Dir != "/usr" {
			t.Errorf("%v: %q %q %+v", fork, out, errs, res)
		}
	}
}
