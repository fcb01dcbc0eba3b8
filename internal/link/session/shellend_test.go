//go:build linux

package session_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/jobs"
)

// TestTimeout ends what a command has started, as far as it may have gone, and
// nothing that an earlier one has left to run.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]session.StartRequest{
		"session": {Session: "a"}, "fork": {Session: "a", Fork: true}, "plain": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, session.Options{})
			var early buffer
			p.run(in("a", "cd /usr; x=1"))
			if _, err := wait(t, p.start(in("a", "(while :; do sleep 0.1; done) >/dev/null 2>&1 & echo child $!; setsid sleep 300 >/dev/null 2>&1 & echo daemon $!"), &early, nil)); err != nil {
				t.Fatal(err)
			}
			old := numbers(t, early.String())
			var out buffer
			req := base
			req.Command = jobs.Command{Shell: "cd /tmp; x=2; " + nasty}
			req.Timeout, req.Grace = patience, 200*time.Millisecond
			proc := p.start(req, &out, nil)
			<-proc.Begun()
			eventually(t, "three processes", func() bool { return strings.Count(out.String(), "\n") == 3 })
			young := numbers(t, out.String())
			res, err := wait(t, proc)
			if err != nil || !res.TimedOut || res.Exit != (jobs.Exit{Started: true, Code: 124}) || res.ShellEnded != (name == "session") {
				t.Errorf("%+v %v", res, err)
			}
			dead(t, young...)
			for _, pid := range old {
				if !alive(pid) {
					t.Errorf("process %d of an earlier command is gone", pid)
				}
			}
			res, o, _ := p.run(in("a", "pwd; echo $x"))
			if o != "/usr\n1\n" || res.Dir != "/usr" {
				t.Errorf("%q %+v", o, res)
			}
			if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
				t.Errorf("%d left %v", left, err)
			}
			dead(t, old...)
			if _, o, _ := p.run(in("a", "pwd; echo $x")); o != "/usr\n1\n" {
				t.Errorf("after the end of everything: %q", o)
			}
		})
	}
}

// TestTimeoutOf is about commands that do not resist.
func TestTimeoutOf(t *testing.T) {
	p := open(t, session.Options{})
	var all sync.WaitGroup
	for i, text := range []string{"echo part; sleep 300; echo no", "echo part; while :; do :; done", "echo part; read x </dev/tty; sleep 300", "echo part; cat /dev/zero >/dev/null | sleep 300"} {
		all.Go(func() {
			var out buffer
			req := in(fmt.Sprint("a", i), text)
			req.Timeout = patience // is also that for its output
			proc, err := p.s.Start(req, &out, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := proc.Wait(); err != nil || !res.TimedOut || res.Exit.Code != 124 || out.String() != "part\n" {
				t.Errorf("%s: %+v %v %q", text, res, err, out.String())
			}
		})
	}
	all.Wait()
	req := in("a", "echo quick")
	req.Timeout = hang
	if res, out, _ := p.run(req); res.TimedOut || !res.Exit.OK() || out != "quick\n" {
		t.Errorf("%+v %q", res, out)
	}
}

func TestTerminateInSession(t *testing.T) {
	p := open(t, session.Options{})
	var out buffer
	proc := p.start(in("a", "echo ready; sleep 300; echo no"), &out, nil)
	eventually(t, "ready", func() bool { return out.String() != "" })
	queued := p.start(in("a", "echo never"), nil, nil)
	after := p.start(in("a", "echo after"), nil, nil)
	select {
	case <-queued.Begun():
		t.Error("it has begun at once")
	case <-time.After(100 * time.Millisecond):
	}
	if err := queued.Terminate(0); err != nil {
		t.Fatal(err)
	}
	if res, err := wait(t, queued); err != nil || res.Exit.Started || res.Exit.Code != 126 {
		t.Errorf("%+v %v", res, err)
	}
	if err := proc.Terminate(time.Minute); err != nil {
		t.Fatal(err)
	}
	if res, err := wait(t, proc); err != nil || res.Exit != (jobs.Exit{Started: true, Code: 143, Signal: 15}) || res.TimedOut || !res.ShellEnded {
		t.Errorf("%+v %v", res, err)
	}
	if res, err := wait(t, after); err != nil || !res.Exit.OK() {
		t.Errorf("%+v %v", res, err)
	}
	// A late one does nothing to the shell.
	_, pid, _ := p.run(in("a", "echo $$"))
	for range 3 {
		if err := proc.Terminate(0); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if _, now, _ := p.run(in("a", "echo $$")); now != pid {
		t.Errorf("the shell is %s and not %s any more", now, pid)
	}
}

func TestSignalInSession(t *testing.T) {
	p := open(t, session.Options{})
	p.run(in("a", "x=1; sleep 300 >/dev/null 2>&1 & pid=$!"))
	var out buffer
	proc := p.start(in("a", "sh -c 'echo ready; exec sleep 300'; echo no"), &out, nil)
	eventually(t, "ready", func() bool { return out.String() != "" })
	if err := proc.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if res, err := wait(t, proc); err != nil || res.Exit.Code != 130 || out.String() != "ready\n" {
		t.Errorf("%+v %v %q", res, err, out.String())
	}
	if _, o, _ := p.run(in("a", "echo $x; grep -q 'State:.[^ZX]' /proc/$pid/status && echo there")); o != "1\nthere\n" {
		t.Errorf("%q", o)
	}
}

func TestQueue(t *testing.T) {
	p := open(t, session.Options{})
	var all []*session.Process
	outs := make([]buffer, 30)
	for i := range outs {
		all = append(all, p.start(in("a", fmt.Sprintf("n=$((n+1)); echo $n %d", i)), &outs[i], nil))
	}
	for i, proc := range all {
		if _, err := wait(t, proc); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d %d\n", i+1, i); outs[i].String() != want {
			t.Errorf("got %q, want %q", outs[i].String(), want)
		}
	}
}

func TestSessionsBesideEachOther(t *testing.T) {
	p := open(t, session.Options{})
	p.run(in("a", "v=a; cd /usr; f() { echo fun; }"))
	slow := p.start(in("a", "v=later; sleep 300"), nil, nil)
	<-slow.Begun()
	if _, out, _ := p.run(in("b", "echo ${v-none}; v=b; pwd")); out != "none\n"+p.s.Guest().Home+"\n" {
		t.Errorf("b: %q", out)
	}
	fork := in("a", "echo $v $PWD; f; v=fork; cd /; exit 4")
	fork.Fork = true
	if res, out, _ := p.run(fork); out != "a /usr\nfun\n" || res.Exit.Code != 4 || res.Dir != "/usr" {
		t.Errorf("fork: %q %+v", out, res)
	}
	first := in("new", "echo $PWD $0; shopt expand_aliases")
	first.Fork = true
	if _, out, errs := p.run(first); out != p.s.Guest().Home+" bash\nexpand_aliases \ton\n" {
		t.Errorf("fork of a new session: %q %q", out, errs)
	}
	var forks sync.WaitGroup
	for i := range 10 {
		forks.Go(func() {
			var out bytes.Buffer
			req := in("a", fmt.Sprintf("sleep 0.1; echo %d; head -c %d /dev/zero", i, i*100000))
			req.Fork = true
			proc, err := p.s.Start(req, &out, nil)
			if err != nil {
				t.Error(err)
			} else if res, err := proc.Wait(); err != nil || !res.Exit.OK() || out.Len() != i*100000+2 {
				t.Errorf("%d: %+v %v %d bytes", i, res, err, out.Len())
			}
		})
	}
	forks.Wait()
	if err := slow.Terminate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(t, slow); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := p.run(in("a", "echo $v $PWD")); out != "a /usr\n" {
		t.Errorf("a: %q", out)
	}
}

func TestSessionInput(t *testing.T) {
	p := open(t, session.Options{})
	big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	req := in("a", "wc -c; x=1")
	req.Stdin = bytes.NewReader(big)
	if _, out, _ := p.run(req); strings.TrimSpace(out) != fmt.Sprint(len(big)) {
		t.Errorf("%q", out)
	}
	req.Stdin = strings.NewReader("one\ntwo\n")
	req.Command.Shell = "read a; read b"
	p.run(req)
	if _, out, _ := p.run(in("a", "echo $x $a $b; cat; read c; echo $?")); out != "1 one two\n1\n" {
		t.Errorf("%q", out)
	}
	r, w := io.Pipe()
	req.Stdin = r
	req.Command.Shell = "head -n 1"
	go func() { _, _ = w.Write([]byte("first\nsecond\n")) }()
	if _, out, _ := p.run(req); out != "first\n" {
		t.Errorf("%q", out)
	}
	_ = w.Close()
	req.Stdin, req.Prompt = nil, []byte("the prompt\n")
	req.Command.Shell = `cat; cat "$BERTH_PROMPT_FILE"`
	if _, out, _ := p.run(req); out != "the prompt\nthe prompt\n" {
		t.Errorf("%q", out)
	}
}

func TestSessionEnv(t *testing.T) {
	p := open(t, session.Options{})
	p.run(in("a", "KEPT=before; export KEPT; PLAIN=plain"))
	req := in("a", `sh -c 'echo "$SECRET $KEPT $PLAIN $LINES2"'; echo "$SECRET"; tr '\0' '\n' </proc/$$/environ | grep -c s3cret; nosuch`)
	req.Env = []string{"SECRET=s3cret ' \" $x", "KEPT=during", "PLAIN=exported", "LINES2=one\ntwo\\'"}
	_, out, errs := p.run(req)
	if want := "s3cret ' \" $x during exported one\ntwo\\'\ns3cret ' \" $x\n0\n"; out != want || errs != "bash: line 1: nosuch: command not found\n" {
		t.Errorf("got %q %q\nwant %q", out, errs, want)
	}
	look := `echo ${SECRET-gone} $KEPT $PLAIN; sh -c 'echo $KEPT ${PLAIN-gone}'; set | grep -c s3cret; env | grep -c BERTH_COMMAND`
	if _, out, _ := p.run(in("a", look)); out != "gone before plain\nbefore gone\n0\n1\n" {
		t.Errorf("afterwards: %q", out)
	}
	// Nor is it in what a shell leaves that ends with it.
	req.Command.Shell = "NEW=new; exit 3"
	p.run(req)
	if _, out, _ := p.run(in("a", "echo $NEW; "+look)); out != "new\ngone before plain\nbefore gone\n0\n1\n" {
		t.Errorf("after an exit: %q", out)
	}
	req = in("a", `sh -c 'echo $SECRET $KEPT'`)
	req.Fork, req.Env = true, []string{"SECRET=s3cret", "KEPT=forked"}
	if _, out, _ := p.run(req); out != "s3cret forked\n" {
		t.Errorf("forked: %q", out)
	}
	req = in("a", "true")
	req.Env = []string{"a.b=1"}
	if res, _, _ := p.run(req); res.Exit.Started || res.Exit.Code != 126 {
		t.Errorf("a bad name: %+v", res)
	}
}

func TestSessionDir(t *testing.T) {
	p := open(t, session.Options{})
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub\ndir $x")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	p.run(in("a", "x=1"))
	req := in("a", "x=2")
	for _, bad := range []string{"/no/such", filepath.Join(dir, "none"), "/dev/null"} {
		req.Dir = bad
		if res, _, _ := p.run(req); res.Exit.Started || res.Exit.Code != 126 || !strings.Contains(res.Exit.Error, bad) || res.Dir != p.s.Guest().Home {
			t.Errorf("%s: %+v", bad, res)
		}
	}
	req.Dir = dir
	req.Command.Shell = "pwd; echo $x"
	if res, out, _ := p.run(req); out != dir+"\n1\n" || res.Dir != dir {
		t.Errorf("%q %+v", out, res)
	}
	req.Dir = filepath.Base(sub)
	if res, out, _ := p.run(req); out != sub+"\n1\n" || res.Dir != sub {
		t.Errorf("%q %+v", out, res)
	}
	// Removed, and made again.
	if err := os.Remove(sub); err != nil {
		t.Fatal(err)
	}
	forked := in("a", "pwd")
	forked.Fork = true
	if res, out, errs := p.run(forked); out != dir+"\n" || errs != "" || !strings.Contains(res.Note, "it goes on in "+dir) {
		t.Errorf("forked: %+v, %q, %q", res, out, errs)
	}
	if res, out, _ := p.run(in("a", "pwd; cd /")); out != dir+"\n" || res.Dir != "/" || !strings.Contains(res.Note, "is gone (no such file or directory); it goes on in "+dir) {
		t.Errorf("%+v, %q", res, out)
	}
	if res, _, _ := p.run(in("a", "cd "+dir)); res.Note != "" {
		t.Errorf("%+v", res)
	}
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	req = in("a", "true")
	req.Dir = sub
	p.run(req)
	if _, out, errs := p.run(in("a", "touch here; ls; cd ..; cd -")); out != "here\n"+sub+"\n" {
		t.Errorf("%q %q", out, errs)
	}
}

func TestSessionWords(t *testing.T) {
	p := open(t, session.Options{})
	run := func(words ...string) (session.Result, string) {
		req := argv(words...)
		req.Session = "a"
		res, out, _ := p.run(req)
		return res, out
	}
	if res, _ := run("cd", "/usr"); res.Dir != "/usr" {
		t.Errorf("%+v", res)
	}
	if _, out := run("printf", "<%s>", "a b", "$x", "it's", "*", "", "\n"); out != "<a b><$x><it's><*><><\n>" {
		t.Errorf("%q", out)
	}
	for _, words := range [][]string{{"echo", "a\x00b"}, {""}} {
		if res, _ := run(words...); res.Exit.Started || res.Exit.Error == "" {
			t.Errorf("%q: %+v", words, res)
		}
	}
}

func TestSessionOdd(t *testing.T) {
	p := open(t, session.Options{})
	long := strings.Repeat("x", 1<<20)
	if res, out, _ := p.run(in("a", "v='"+long+"'; echo ${#v}")); out != "1048576\n" || !res.Exit.OK() {
		t.Errorf("1 MiB: %+v %.100q", res, out)
	}
	p.run(in("a", "unset v"))
	if _, out, _ := p.run(in("a", "v=$'\\377\\376 \\001'; echo \"$v\"; printf '\xff\xfe'")); out != "\xff\xfe \x01\n\xff\xfe" {
		t.Errorf("bytes: %q", out)
	}
	p.run(in("a", "kill -9 $$"))
	if _, out, _ := p.run(in("a", "echo \"$v\"")); out != "\xff\xfe \x01\n" {
		t.Errorf("restored bytes: %q", out)
	}
	// A child that was left behind holds the output, and writes only there.
	dir := t.TempDir()
	if _, out, _ := p.run(in("a", "d='"+dir+"'; (trap '' PIPE; until [ -e $d/go ]; do sleep 0.02; done; echo late; : >$d/said; sleep 300) & echo now")); out != "now\n" {
		t.Errorf("%q", out)
	}
	if _, out, _ := p.run(in("a", ": >$d/go; until [ -e $d/said ]; do sleep 0.02; done; echo mine")); out != "mine\n" {
		t.Errorf("%q", out)
	}
	// A task may remove what is not its own: the guest's directory, which its
	// shell's input or output leads to. Others on this machine have such, too.
	if res, _, errs := p.run(in("a", "x=kept; f=$(readlink /proc/$$/fd/1); f=${f%/shell-*/*}; case $f in /tmp/berth-*) rm -rf \"$f\";; *) exit 1;; esac")); !res.Exit.OK() {
		t.Error(errs)
		t.Errorf("%+v", res)
	}
	for range 2 {
		if res, out, errs := p.run(in("a", "echo $x; echo e >&2; nosuch=1")); out != "kept\n" || errs != "e\n" || !res.Exit.OK() {
			t.Errorf("after its removal: %q %q %+v", out, errs, res)
		}
	}
	// Names of builtins.
	p.run(in("a", `eval() { echo no; }; read() { echo no; }; declare() { echo no; }; set() { echo no; }; printf() { echo no; }; unset() { echo no; }
alias builtin='echo no' eval='echo no' exec='echo no'; IFS=x; trap() { echo no; }; pwd() { echo mine; }; cd() { builtin cd "$@"; }`))
	if res, out, errs := p.run(in("a", "cd /usr; pwd; echo $x | cat")); res.Dir != "/usr" || out != "mine\nkept\n" {
		t.Errorf("%+v %q %q", res, out, errs)
	}
	p.run(in("a", "builtin() { echo no; }; exec() { echo no; }"))
	if _, out, errs := p.run(in("a", "pwd; echo $x")); out != "mine\nkept\n" {
		t.Errorf("%q %q", out, errs)
	}
	for _, text := range []string{"break 9", "exec 97>&- 98>&- 99>&-", "exec >/dev/null", "continue; echo no", "exec 5>/dev/null 9<&1", "set -o posix", "trap 'echo dbg' DEBUG", "trap '' TERM"} {
		p.run(in("c", text))
		if res, out, errs := p.run(in("c", "echo fine")); !res.Exit.OK() || out != "fine\n" || errs != "" {
			t.Errorf("after %s: %+v %q %q", text, res, out, errs)
		}
	}
}
