//go:build cluster

package ssh

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

var hard = []string{"a'b", `x\y`, `\\n\t`, "hi!there", `$HOME "$(id)"` + " `id`", "* ? ~ {a,b} [a-z]", "# & ; | < > ( ) ^ %", "ä漢🙂", "", "-n", "--", "'", "!", `\`, `"`, "a=b"}

// TestCommands: words arrive as they are, whatever the login shell is.
func TestCommands(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	h := s.host(jobs.SSHSpec{Host: v.ip4})
	for name, shell := range map[string]string{
		"bash":          "#!/bin/sh\nexec /bin/bash \"$@\"",
		"dash":          "#!/bin/sh\nexec /bin/dash \"$@\"",
		"with a banner": "#!/bin/sh\necho 'Welcome! Rules: ...'; printf 'quota: 5%%' >&2\nexec /bin/bash \"$@\"",
	} {
		t.Run(name, func(t *testing.T) {
			v.in("root", "cat >/bin/login-shell <<'X'\n"+shell+"\nX\nchmod 755 /bin/login-shell; usermod -s /bin/login-shell alice")
			s.endMasters()
			out, err := run.Output(t.Context(), h, jobs.Cmd{Argv: append([]string{"printf", `%s\n`}, hard...)})
			if want := strings.Join(hard, "\n") + "\n"; err != nil || string(out) != want {
				t.Errorf("%v\ngot  %q\nwant %q", err, out, want)
			}
			var errs bytes.Buffer
			out, err = run.Output(t.Context(), h, jobs.Cmd{
				Argv: []string{"sh", "-c", `pwd; cat; echo "$A"; echo said >&2; env | cut -d= -f1 | sort | tr '\n' ' '`}, Dir: "/usr/lib", Env: []string{"A=1 ' \\ ! $x\ty", "PATH=/usr/bin:/bin"},
				Stdin: strings.NewReader("in\x00put\n"), Stderr: &errs,
			})
			if want := "/usr/lib\nin\x00put\n1 ' \\ ! $x\ty\nA PATH PWD "; err != nil || strings.ReplaceAll(string(out), "OLDPWD ", "") != want || errs.String() != "said\n" {
				t.Errorf("%v\ngot  %q, %q\nwant %q", err, out, errs.String(), want)
			}
		})
	}
	t.Run("one that runs nothing", func(t *testing.T) {
		v.in("root", "usermod -s /usr/sbin/nologin alice")
		s.endMasters() // a connection knows the shell that was
		defer s.endMasters()
		defer v.in("root", "usermod -s /bin/bash alice")
		_, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"true"}})
		if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "login shell runs no command") || !strings.Contains(err.Error(), "not available") {
			t.Errorf("%v (%s)", err, jobs.HintOf(err))
		}
	})
	t.Run("restricted", func(t *testing.T) {
		v.in("root", "ln -sf bash /bin/rbash; usermod -s /bin/rbash alice")
		s.endMasters()
		defer s.endMasters()
		defer v.in("root", "usermod -s /bin/bash alice")
		_, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"true"}})
		if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "restricted") {
			t.Errorf("%v", err)
		}
	})
}

// wait waits, but not for ever.
func wait(t *testing.T, p jobs.Process) (e jobs.Exit, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e, err = p.Wait()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not end")
	}
	return e, err
}

func exitOf(t *testing.T, on jobs.Starter, argv ...string) jobs.Exit {
	t.Helper()
	p, err := on.Start(t.Context(), jobs.Cmd{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	e, err := wait(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExits: a command's own 255 is not a broken link, and a command that is
// killed is gone there, too.
func TestExits(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	h := s.host(jobs.SSHSpec{Host: v.ip4})
	for text, code := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill $$": 143} {
		if e := exitOf(t, h, "sh", "-c", text); !e.Started || e.Code != code {
			t.Errorf("%s: %+v", text, e)
		}
	}
	if e := exitOf(t, h, "no-such-program"); e.Code != 127 {
		t.Errorf("%+v", e)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"sleep", "1234"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(sig); err != nil {
			t.Error(err)
		}
		if e, err := wait(t, p); err != nil || e.Code != 128+int(sig) {
			t.Errorf("%v: %+v, %v", sig, e, err)
		}
		if err := p.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	p, err := h.Start(ctx, jobs.Cmd{Argv: []string{"sh", "-c", "trap '' TERM HUP INT; sleep 1234 & sleep 1234; sleep 1234"}})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := wait(t, p); err != nil {
		t.Log(err)
	}
	s.eventually("the end of the sleeps", func() bool {
		return v.in("root", "pgrep -c sleep || true") == "0"
	})
}

// TestAuth: what goes wrong on the way in, and what to do.
func TestAuth(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	b := s.backend()
	fails := func(what string, spec jobs.SSHSpec, kind jobs.Kind, msg, hint string) {
		t.Helper()
		h, err := b.Host(spec)
		if err != nil {
			t.Fatal(err)
		}
		err = h.Connect(t.Context(), false)
		if jobs.KindOf(err) != kind || !strings.Contains(err.Error(), msg) || !strings.Contains(jobs.HintOf(err), hint) {
			t.Errorf("%s: %v (%s), kind %d", what, err, jobs.HintOf(err), jobs.KindOf(err))
		}
		t.Logf("%s: %v\n  hint: %s", what, err, jobs.HintOf(err))
	}
	fails("unknown host key", jobs.SSHSpec{Host: v.ip4}, jobs.KindConfig, "not known", "ssh "+v.ip4)
	fails("unknown host key, strictly", jobs.SSHSpec{Host: v.ip4, Options: []string{"StrictHostKeyChecking=yes"}}, jobs.KindConfig, "not known", "StrictHostKeyChecking=yes "+v.ip4)
	if b, _ := os.ReadFile(s.known); len(b) > 0 {
		t.Errorf("the key was accepted: %s", b)
	}
	other := t.TempDir() + "/other"
	host(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
	pub, err := os.ReadFile(other + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	s.write(s.known, v.ip4+" "+string(pub))
	fails("changed host key", jobs.SSHSpec{Host: v.ip4}, jobs.KindConfig, "has changed", "ssh-keygen -R "+v.ip4)
	s.write(s.known, "")
	s.know(v.ip4)
	fails("wrong key", jobs.SSHSpec{Host: v.ip4, Options: []string{"IdentityFile=" + other, "IdentitiesOnly=yes", "IdentityAgent=none"}, User: "bob"}, jobs.KindAuth, "let us in", "ssh-add")
	fails("no key file", jobs.SSHSpec{Host: v.ip4, User: "bob", Key: "/nowhere/key"}, jobs.KindAuth, "let us in", "/nowhere/key")
	fails("no such host", jobs.SSHSpec{Host: "no-such-host.invalid"}, jobs.KindInfra, "resolved", "")
	fails("refused", jobs.SSHSpec{Host: v.ip4, Port: 2}, jobs.KindInfra, "refuses connections", "-p 2")
	v.in("root", "iptables -A INPUT -p tcp --dport 22 -j DROP")
	fails("no answer", jobs.SSHSpec{Host: v.ip4, Options: []string{"ConnectTimeout=1"}}, jobs.KindInfra, "reached", "-v")
	v.in("root", "iptables -F INPUT")
	fails("bad option", jobs.SSHSpec{Host: v.ip4, Options: []string{"NoSuchOption=yes"}}, jobs.KindConfig, "configuration", "")
	fails("bad value", jobs.SSHSpec{Host: v.ip4, Options: []string{"ConnectTimeout=soon"}}, jobs.KindConfig, "configuration", "")
	if err := os.Chmod(s.key, 0o644); err != nil {
		t.Fatal(err)
	}
	fails("open key", jobs.SSHSpec{Host: v.ip4}, jobs.KindAuth, "others can read", "chmod 600")
	if err := os.Chmod(s.key, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := b.Host(jobs.SSHSpec{Host: v.ip4, User: "alice", Port: 22, Key: s.key})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), false); err != nil || !h.Connected(t.Context()) {
		t.Error(err)
	}
}

// TestConfig: the user's own configuration counts, jump hosts included.
func TestConfig(t *testing.T) {
	s := newSite(t)
	gate, inner := s.server("gate"), s.server("inner")
	_ = inner
	s.know(gate.ip4, "inner")
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	// "inner" is a name that only the gate can resolve.
	s.write(s.config, string(text)+"Host cluster\n  HostName inner\n  ProxyJump "+gate.ip4+"\n  RemoteCommand echo theirs\n  RequestTTY force\n  LocalForward 127.0.0.1:22 localhost:22\n  ForwardAgent yes\n  ControlMaster no\n")
	for name, spec := range map[string]jobs.SSHSpec{
		"alias":     {Host: "cluster"},
		"ProxyJump": {Host: "inner", Options: []string{"ProxyJump=" + gate.ip4}},
	} {
		out, err := run.Output(t.Context(), s.host(spec), jobs.Cmd{Argv: []string{"sh", "-c", `hostname; tty; echo "[$SSH_AUTH_SOCK]"; exit 0`}})
		if err != nil || string(out) != "inner\nnot a tty\n[]\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	// What goes wrong on the way is told as that, although ssh keeps to itself
	// what it says of a way that it means to hold open.
	err = s.host(jobs.SSHSpec{Host: "inner", Options: []string{"ProxyJump=bob@" + gate.ip4}}).Connect(t.Context(), false)
	if jobs.KindOf(err) != jobs.KindAuth || !strings.Contains(err.Error(), "bob@"+gate.ip4+": Permission denied") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	err = s.host(jobs.SSHSpec{Host: "nowhere", Options: []string{"ProxyJump=" + gate.ip4}}).Connect(t.Context(), false)
	if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "nowhere cannot be resolved") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
}

// TestMaster: one connection for all; a dead one is replaced; one that dies in
// mid-command is told as that.
func TestMaster(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	h := s.host(jobs.SSHSpec{Host: v.ip4})
	if h.Connected(t.Context()) {
		t.Error("connected before anything")
	}
	for range 3 {
		exitOf(t, h, "true")
	}
	one := s.masters()
	if len(one) != 1 || !h.Connected(t.Context()) {
		t.Fatalf("%d masters", len(one))
	}
	p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "echo $$ >/tmp/pid; sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	host(t, "kill", "-9", one[0])
	if e, err := wait(t, p); jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "what the command did is not known") {
		t.Errorf("%+v, %v", e, err)
	} else {
		t.Log(err)
	}
	if h.Connected(t.Context()) {
		t.Errorf("connected to a dead master: %s, now %s; %s", one, s.masters(), host(t, "ps", "axf"))
	}
	if e := exitOf(t, h, "true"); !e.OK() { // over the stale socket
		t.Errorf("%+v", e)
	}
	// The server's side of the session is killed.
	p, err = h.Start(t.Context(), jobs.Cmd{Argv: []string{"sleep", "61"}})
	if err != nil {
		t.Fatal(err)
	}
	v.in("root", "pkill -9 -f '^sshd(-session)?: alice'")
	if e, err := wait(t, p); jobs.KindOf(err) != jobs.KindInfra {
		t.Errorf("%+v, %v", e, err)
	}
	if e := exitOf(t, h, "true"); !e.OK() {
		t.Errorf("%+v", e)
	}
	v.in("root", "pkill sleep || true")
	// Many at once, more than a server allows on one connection.
	var many []jobs.Process
	for range 14 {
		p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"sleep", "1"}})
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, p)
	}
	for _, p := range many {
		if e, err := wait(t, p); err != nil || !e.OK() {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// TestSilence: a link through which nothing comes any more is noticed.
func TestSilence(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	h := s.host(jobs.SSHSpec{Host: v.ip4, Options: []string{"ServerAliveInterval=1"}})
	p, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	v.in("root", "iptables -A INPUT -p tcp --dport 22 -j DROP")
	begun := time.Now()
	if e, err := wait(t, p); jobs.KindOf(err) != jobs.KindInfra {
		t.Errorf("%+v, %v", e, err)
	}
	t.Logf("noticed after %v", time.Since(begun))
	v.in("root", "iptables -F INPUT")
	if e := exitOf(t, h, "true"); !e.OK() {
		t.Errorf("%+v", e)
	}
}

// TestSecrets: a variable is on no command line, here or there.
func TestSecrets(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	const secret = "s3cr3t-canary"
	p, err := s.host(jobs.SSHSpec{Host: v.ip4}).Start(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", `[ "$T" ] && exec sleep 1005`}, Env: []string{"T=" + secret, "PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the command, which runs with the secret", func() bool {
		here, err := exec.Command("sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").Output()
		if err != nil {
			t.Log(err)
		}
		there := v.in("root", `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done 2>/dev/null`)
		if strings.Contains(string(here), secret) || strings.Contains(there, secret) {
			t.Fatal("the secret is on a command line")
		}
		return strings.Contains(there, "\nsleep 1005 \n")
	})
	_ = p.Signal(syscall.SIGKILL)
	_, _ = wait(t, p)
}
