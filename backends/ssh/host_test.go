package ssh

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

var hardWords = []string{
	"plain", "", "a b", "a'b", `x\y`, `\\`, `\n`, "hi!there", `!$ "$(id)"` + " `id`", "* ? ~ {a,b} [a-z]", "# & ; | < > ( ) ^ %", "ä漢🙂", "-n", "--", "'", "!", `\`, `\'!\`, `"`, "a=b", "=ls", "~root", "%s",
}

// Every shell here reads back what was quoted for any shell.
func TestAnyShell(t *testing.T) {
	line := viaSh(`for w; do printf '%s\n' "$w"; done`, hardWords...)
	want := strings.Join(hardWords, "\n") + "\n"
	for _, shell := range []string{"sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "ksh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // sh is everywhere; test/ssh has real login shells
		}
		out, err := exec.Command(path, "-c", line).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\ngot  %q\nwant %q", shell, err, out, want)
		}
	}
}

func FuzzAnyShell(f *testing.F) {
	for _, w := range hardWords {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, w string) {
		if jobs.CheckText("x", w) != nil {
			t.Skip("refused before")
		}
		out, err := exec.Command("sh", "-c", viaSh(`printf %s "$1"`, w)).Output()
		if err != nil || string(out) != w {
			t.Errorf("%q became %q, %v", w, out, err)
		}
	})
}

func TestCheckSpec(t *testing.T) {
	for _, s := range []jobs.SSHSpec{
		{Host: "login"}, {Host: "10.0.0.1", User: "alice", Port: 2222, Key: "/home/a b/.ssh/id", Options: []string{"ProxyJump=gate", "SetEnv=A=b c"}}, {Host: "fe80::1%eth0"}, {Host: "my_alias.x-y"}, {Host: "x", User: "a@realm"},
	} {
		if err := CheckSpec(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []jobs.SSHSpec{
		{}, {Host: "-oProxyCommand=x"}, {Host: "a b"}, {Host: "a\nb"}, {Host: "$(id)"}, {Host: "a;b"}, {Host: "u@h"}, {Host: "ssh://h"}, {Host: "h", User: "-x"}, {Host: "h", User: "a;b"}, {Host: "h", User: "`id`"}, {Host: "h", User: "a\tb"},
		{Host: "h", Port: -1}, {Host: "h", Port: 65536}, {Host: "h", Key: "a\x00b"}, {Host: "h", Key: "-i"}, {Host: "h", Options: []string{"ProxyJump"}}, {Host: "h", Options: []string{"=x"}}, {Host: "h", Options: []string{"A="}}, {Host: "h", Options: []string{"A=b\nProxyCommand=x"}},
		{Host: "h", Options: []string{"-v=1"}}, {Host: "h", Options: []string{"A B=1"}},
	} {
		if err := CheckSpec(s); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// The whole command line, as it stands.
func TestArgv(t *testing.T) {
	b := Backend{Control: "/run/c"}
	s := jobs.SSHSpec{Host: "login", User: "alice", Port: 2222, Key: "/k", Options: []string{"ProxyJump=gate", "ConnectTimeout=3"}}
	got, err := b.Argv(jobs.Invocation{Guest: "/home/x/.berth/bin/berth-node-0123", Place: jobs.Place{SSH: &s}}, []string{"guest", "--x=a b"})
	want := []string{
		"ssh", "-o", "ProxyJump=gate", "-o", "ConnectTimeout=3", "-l", "alice", "-p", "2222", "-i", "/k", "-oControlMaster=no",
		"-T", "-oRemoteCommand=none", "-oClearAllForwardings=yes", "-oForwardAgent=no", "-oForwardX11=no", "-oPermitLocalCommand=no", "-oLogLevel=ERROR",
		"-oConnectTimeout=15", "-oServerAliveInterval=15", "-oServerAliveCountMax=3", "-oControlMaster=auto", "-oControlPersist=300",
		"-oControlPath=/run/c/" + socketName(s, "ssh") + ".ssh", "-oBatchMode=yes", "--", "login", "exec ~/.local/state/berth/bin/berth-node-0123 guest '--x=a b'",
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
	if _, err := b.Argv(jobs.Invocation{Guest: "/g"}, nil); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
	if _, err := b.Argv(jobs.Invocation{Guest: "/g", Place: jobs.Place{SSH: &s}}, []string{"a\nb"}); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
}

// Two destinations never share a connection, and one always does.
func TestSocketName(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []jobs.SSHSpec{{Host: "a"}, {Host: "b"}, {Host: "a", User: "x"}, {Host: "a", Port: 22}, {Host: "a", Key: "x"}, {Host: "a", Options: []string{"A=b"}}, {Host: "a", Options: []string{"A=b", "C=d"}}, {Host: "a", Options: []string{"A=b-oC=d"}}} {
		n := socketName(s, "ssh")
		if seen[n] || n != socketName(s, "ssh") || len(n) != hashLen {
			t.Errorf("%+v: %s", s, n)
		}
		seen[n] = true
	}
}

func TestControlDir(t *testing.T) {
	short := t.TempDir()
	tmp := t.TempDir()
	fallback := controlDir(func(string) string { return "" }, tmp)
	for run, own := range map[string]bool{short: true, "": false, "relative": false, "/nowhere/at/all": false, strings.Repeat("/x", 40): false, t.TempDir() + "/a b": false} {
		if strings.HasSuffix(run, "a b") {
			if err := os.Mkdir(run, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		want := fallback
		if own {
			want = run + "/berth"
		}
		if got := controlDir(func(string) string { return run }, tmp); got != want {
			t.Errorf("%s: %s", run, got)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o770); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(short, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link} {
		if err := makePrivate(dir); jobs.KindOf(err) != jobs.KindConfig {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A name in /tmp that someone else has made first denies nothing.
func TestControlDirTaken(t *testing.T) {
	tmp := t.TempDir()
	none := func(string) string { return "" }
	plain := controlDir(none, tmp)
	if err := os.Remove(plain); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), plain); err != nil {
		t.Fatal(err)
	}
	got := controlDir(none, tmp)
	if got == plain || len(got)+1+hashLen+len(".ssh") > maxControl+len(tmp) {
		t.Errorf("%s", got)
	}
	if err := makePrivate(got); err != nil {
		t.Error(err)
	}
	if again := controlDir(none, tmp); again != got {
		t.Errorf("%s, then %s", got, again)
	}
}

func TestStart(t *testing.T) {
	for name, env := range map[string][]string{"plain": nil, "banner": {"FAKE_BANNER=Welcome to\nthe machine"}} {
		t.Run(name, func(t *testing.T) {
			h, dir := fake(t, env...)
			var errs bytes.Buffer
			out, err := run.Output(t.Context(), h, jobs.Cmd{
				Argv: append([]string{"sh", "-c", `cat; echo "$T"; pwd; echo err >&2; shift; printf '%s|' "$@"`, "x", "y"}, hardWords...),
				Dir:  "/usr", Env: []string{"T=secret ' \\ \"", "PATH=" + os.Getenv("PATH")}, Stdin: strings.NewReader("in\n"), Stderr: &errs,
			})
			if want := "in\nsecret ' \\ \"\n/usr\n" + strings.Join(hardWords, "|") + "|"; err != nil || string(out) != want || errs.String() != "err\n" {
				t.Errorf("%v\ngot  %q, %q\nwant %q", err, out, errs.String(), want)
			}
			if all := strings.Join(calls(t, dir), ""); strings.Contains(all, "secret") || len(calls(t, dir)) != 1 {
				t.Errorf("%s", all)
			}
			// Nothing of ours is in its environment.
			out, err = run.Output(t.Context(), h, jobs.Cmd{Argv: []string{"/usr/bin/env"}, Env: []string{"A=b"}})
			if err != nil || strings.Contains(string(out), "SECRET") || strings.Contains(string(out), "HOME=") || !strings.Contains(string(out), "A=b\n") {
				t.Errorf("%q, %v", out, err)
			}
			both := new(bytes.Buffer)
			p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "echo a; echo b >&2; exit 255"}, Stdout: both, Stderr: both})
			if err != nil {
				t.Fatal(err)
			}
			if e, err := p.Wait(); err != nil || e.Code != 255 || both.Len() != 4 {
				t.Errorf("%+v, %v, %q", e, err, both)
			}
		})
	}
	h, dir := fake(t)
	for _, c := range []jobs.Cmd{{}, {Argv: []string{""}}, {Argv: []string{"a\nb"}}, {Argv: []string{"a", "\x00"}}, {Argv: []string{"a", "\x1b[2J"}}, {Argv: []string{"a"}, Dir: "x\ty"}, {Argv: []string{"a"}, Env: []string{"A=b\nc"}}, {Argv: []string{"a"}, Env: []string{"A-B=c"}}, {Argv: []string{"a"}, Env: []string{"x"}}, {Argv: []string{"a"}, Env: []string{"=x"}}} {
		if _, err := h.Start(t.Context(), c); err == nil {
			t.Errorf("%+v was started", c)
		}
	}
	if c := calls(t, dir); len(c) != 0 {
		t.Errorf("%q", c)
	}
}

// A signal reaches what runs there, and so does the end of the context.
func TestSignal(t *testing.T) {
	h, dir := fake(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 0} {
		ctx, stop := context.WithCancel(t.Context())
		p, err := h.Start(ctx, jobs.Cmd{Argv: []string{"sh", "-c", "echo $$ >pid; sleep 1000; true"}})
		if err != nil {
			t.Fatal(err)
		}
		want := sig
		if sig == 0 {
			want = syscall.SIGKILL
			stop()
		} else if err := p.Signal(sig); err != nil {
			t.Error(err)
		}
		if e, err := p.Wait(); err != nil || e.Code != 128+int(want) {
			t.Errorf("%v: %+v, %v", sig, e, err)
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		stop()
	}
	for _, c := range calls(t, dir) {
		if strings.Contains(c, "<-O>") {
			t.Error(c)
		}
	}
}

// A command that is left is told nothing over the link, which may be dead: its ssh ends at once.
func TestLeave(t *testing.T) {
	h, dir := fake(t)
	in, w := io.Pipe()
	defer func() { _ = w.Close() }()
	p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"cat"}, Stdin: in})
	if err != nil {
		t.Fatal(err)
	}
	before := len(calls(t, dir))
	Leave(p)
	select {
	case <-p.(*process).done:
	default:
		t.Error("its ssh has not ended")
	}
	if _, err := p.Wait(); jobs.KindOf(err) != jobs.KindInfra {
		t.Errorf("its end is not known: %v", err)
	}
	if c := calls(t, dir); len(c) != before {
		t.Errorf("%q", c)
	}
	Leave(p)
}

func TestConnect(t *testing.T) {
	h, dir := fake(t)
	if h.Connected(t.Context()) {
		t.Error("connected")
	}
	for range 2 {
		if err := h.Connect(t.Context(), false); err != nil || !h.Connected(t.Context()) {
			t.Error(err)
		}
	}
	if c := calls(t, dir); len(c) != 6 {
		t.Errorf("%d calls: %q", len(c), c)
	}
	gone := Backend{Program: "no-such-ssh-program", Control: filepath.Join(dir, "c")}
	h, err := gone.Host(jobs.SSHSpec{Host: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), false); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "openssh-client") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	if c := gone.Check(t.Context()); c.Health != jobs.Undetected {
		t.Errorf("%+v", c)
	}
	if c := (Backend{Program: filepath.Join(dir, "ssh"), Env: []string{"FAKE_DIR=" + dir, "PATH=" + os.Getenv("PATH")}}).Check(t.Context()); c.Health != jobs.Healthy || c.Version != "OpenSSH_9.9p1" {
		t.Errorf("%+v", c)
	}
}
