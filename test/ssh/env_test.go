//go:build cluster

package ssh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/ssh"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/node/nodebin"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"
)

// node is a berth-node of this checkout, or the one that BERTH_TEST_NODE names.
var node = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("BERTH_TEST_NODE"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "bssh-node")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "berthnode", "-o", filepath.Join(dir, "berth-node"), "../../cmd/berth-node")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", errors.New(string(out))
	}
	return filepath.Join(dir, "berth-node"), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := node(); err == nil && path != os.Getenv("BERTH_TEST_NODE") {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// withNode is a backend that carries this checkout's program.
func (s *site) withNode() ssh.Backend {
	s.t.Helper()
	path, err := node()
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	b := s.backend()
	b.Node = func(goos, goarch string) (nodebin.Program, bool) {
		return nodebin.Of(data), goos+goarch == "linuxamd64"
	}
	return b
}

func (s *site) env(name, host string) *jobs.EnvSpec {
	s.t.Helper()
	id, err := ids.New()
	if err != nil {
		s.t.Fatal(err)
	}
	return &jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: id, Name: name, Persistent: true, Lifetime: 15 * time.Minute, Home: "/nowhere", Created: time.Now(), User: "alice", Host: "here",
		Place: jobs.Place{
			Backend: jobs.BackendSSH, Level: jobs.LevelNone, SSH: &jobs.SSHSpec{Host: host},
		},
	}
}

// open is a conversation with an environment.
func open(t *testing.T, b ssh.Backend, e *jobs.EnvSpec, progress func(string)) (*session.Session, *keeper.Report) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	conn, rep, err := b.Dial(ctx, e, keeper.OpenOptions{Progress: progress})
	if err != nil {
		t.Fatalf("%v (%s)", err, jobs.HintOf(err))
	}
	s, err := session.Open(ctx, conn, conn, session.Options{PingTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, rep
}

// sh runs a shell text in an environment.
func sh(t *testing.T, s *session.Session, text string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: text}}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil || !r.Exit.OK() {
		t.Fatalf("%s: %+v, %v: %s", text, r.Exit, err, out.String())
	}
	return out.String()
}

// programs are the inodes of berth's programs on a server.
func (v *server) programs() string {
	return v.in("alice", "cd; ls -ai .local/state/berth/bin")
}

// TestEnvironment: made with the first use, found again, its work goes on when
// the link is cut, in each way that it can be.
func TestEnvironment(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	b := s.withNode()
	e := s.env("first", v.ip4)
	e.SSH.Options = []string{"ServerAliveInterval=1"}
	if _, _, err := b.Dial(t.Context(), e, keeper.OpenOptions{NoStart: true}); !errors.Is(err, keeper.ErrNotRunning) {
		t.Errorf("%v", err)
	}
	var said []string
	one, rep := open(t, b, e, func(text string) { said = append(said, text) })
	if rep == nil || !rep.Ready {
		t.Errorf("%+v", rep)
	}
	t.Logf("said %q, %+v", said, rep)
	if got := sh(t, one, `id -un; hostname; cd; pwd; echo "[$SSH_AUTH_SOCK]"`); got != "alice\none\n/home/alice\n[]\n" {
		t.Errorf("%q", got)
	}
	before := v.programs()
	if n := strings.Count(before, "berth-node-"); n != 1 || strings.Contains(before, ".new-") {
		t.Errorf("%d programs: %s", n, before)
	}

	// A second environment on the same connection; the end of one is not the
	// other's.
	other := s.env("second", v.ip4)
	other.SSH = e.SSH
	said = nil
	two, _ := open(t, b, other, func(text string) { said = append(said, text) })
	if len(said) > 0 && slices.ContainsFunc(said, func(l string) bool { return strings.Contains(l, "copying") }) {
		t.Errorf("copied again: %q", said)
	}
	if m := s.masters(); len(m) != 1 {
		t.Errorf("%d connections", len(m))
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if got := sh(t, two, "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	if now := v.programs(); now != before {
		t.Errorf("the program was put there again: %s, %s", before, now)
	}

	// Background work, while the link is cut.
	one, rep = open(t, b, e, nil)
	bg := keep(t, one, wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "while :; do echo tick; sleep 0.1; done"}})
	if len(bg.BG) != 1 || !bg.BG[0].Running {
		t.Fatalf("%+v", bg)
	}
	opened := rep.Opened
	for what, cut := range map[string][2]func(){
		"the connection here is killed": {func() {
			var pids []string // one that the last cut has ended may still be there
			s.eventually("one connection", func() bool { pids = s.masters(); return len(pids) == 1 })
			host(t, "kill", "-9", pids[0])
		}, func() {}},
		"the session there is killed": {func() { v.in("root", "pkill -9 -f '^sshd(-session)?: alice'") }, func() {}},
		"nothing comes through any more": {
			func() { v.in("root", "iptables -A INPUT -p tcp --dport 22 -j DROP") }, func() { v.in("root", "iptables -F INPUT") },
		},
	} {
		p, err := one.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"sleep", "55"}}}, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		cut[0]()
		if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) || !strings.Contains(err.Error(), "the link to "+v.ip4+" broke") {
			t.Errorf("%s: %v", what, err)
		}
		cut[1]()
		one, rep = open(t, b, e, nil)
		if !rep.Opened.Equal(opened) || rep.Rebuilt != "" {
			t.Errorf("%s: another environment: %+v", what, rep)
		}
		s.eventually("more of the background process", func() bool {
			now := keep(t, one, wire.KeepRequest{Op: wire.KeepBGList})
			if len(now.BG) != 1 || !now.BG[0].Running || now.BG[0].PID != bg.BG[0].PID {
				t.Fatalf("%s: %+v", what, now.BG)
			}
			return now.BG[0].Log > bg.BG[0].Log
		})
	}
	// The commands of clients that went are ended.
	s.eventually("the end of the cut commands", func() bool { return v.in("root", "pgrep -fc '^sleep 5[5]' || true") == "0" })

	for _, gone := range []*jobs.EnvSpec{e, other} {
		c, _ := open(t, b, gone, nil)
		keep(t, c, wire.KeepRequest{Op: wire.KeepStop})
		if err := b.Remove(t.Context(), gone, run.Local{}); err != nil {
			t.Error(err)
		}
		if err := b.Remove(t.Context(), gone, run.Local{}); err != nil {
			t.Errorf("a second time: %v", err)
		}
	}
	v.ended()
	if left := v.in("root", "ls -A /home/alice/.local/state/berth/ssh"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// keep asks the keeper.
func keep(t *testing.T, s *session.Session, req wire.KeepRequest) wire.KeepAnswer {
	t.Helper()
	p, err := s.Do(wire.StartMessage{Keep: &req}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if req.Op == wire.KeepStop {
		return wire.KeepAnswer{}
	}
	a, err2 := answer(r)
	if err != nil || err2 != nil || a.Error != "" {
		t.Fatalf("%s: %v, %v, %s", req.Op, err, err2, a.Error)
	}
	return a
}

// TestUpload: once by its hash, whole or not at all.
func TestUpload(t *testing.T) {
	s := newSite(t)
	v := s.server("one", "--tmpfs", "/noexec:noexec,mode=1777", "--tmpfs", "/small:size=1m,mode=1777,exec")
	s.know(v.ip4)
	b := s.withNode()
	h, err := b.Host(jobs.SSHSpec{Host: v.ip4})
	if err != nil {
		t.Fatal(err)
	}
	// Several at once.
	names := make([]string, 4)
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			name, err := h.Install(t.Context(), true, func(string) {})
			if err != nil {
				t.Error(err)
			}
			names[i] = name
		})
	}
	all.Wait()
	if n := slices.Compact(names); len(n) != 1 {
		t.Errorf("%q", n)
	}
	first := v.programs()
	if !strings.Contains(first, names[0]) || strings.Contains(first, ".new-") {
		t.Error(first)
	}
	// A damaged one is replaced, one that is gone is put there again, both by
	// whoever meets it.
	for what, spoil := range map[string]string{"cut off": "truncate -s 1000 ", "gone": "rm ", "not executable": "chmod 600 "} {
		v.ended() // a program that runs cannot be cut off
		v.in("alice", spoil+"/home/alice/.local/state/berth/bin/"+names[0])
		e := s.env("x", v.ip4)
		c, _ := open(t, b, e, nil)
		if got := sh(t, c, "echo here"); got != "here\n" {
			t.Errorf("%s: %q", what, got)
		}
		keep(t, c, wire.KeepRequest{Op: wire.KeepStop})
	}
	fails := func(what, setup string, kind jobs.Kind, msg, hint string) {
		t.Helper()
		v.ended() // nor can its directory be removed while it writes there
		v.in("alice", "cd; rm -rf .local/state/berth; mkdir -p .local/state; "+setup)
		_, _, err := b.Dial(t.Context(), s.env("y", v.ip4), keeper.OpenOptions{})
		if jobs.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), msg) || !strings.Contains(jobs.HintOf(err), hint) {
			t.Errorf("%s: %v (%s)", what, err, jobs.HintOf(err))
		}
		t.Logf("%s: %v\n  hint: %s", what, err, jobs.HintOf(err))
		if left := v.in("alice", "cd; ls -A .local/state/berth/bin/ 2>/dev/null || true"); left != "" {
			t.Errorf("%s left %s", what, left)
		}
	}
	fails("noexec", "mkdir /noexec/b; ln -s /noexec/b .local/state/berth", jobs.KindConfig, "cannot run in", "noexec")
	fails("full", "mkdir /small/b; ln -s /small/b .local/state/berth", jobs.KindInfra, "put berth's program", "df -h")
	fails("read-only", "mkdir .local/state/berth; chmod 500 .local/state/berth", jobs.KindInfra, "put berth's program", "ls -ld")
	b.Node = func(string, string) (nodebin.Program, bool) { return nodebin.Program{}, false }
	v.in("alice", "cd; chmod -R u+w .local; rm -rf .local")
	fails("no program", "", jobs.KindConfig, "carries no program", "scripts/build")
}

func answer(r session.Result) (a wire.KeepAnswer, err error) {
	return a, json.Unmarshal(r.Keep, &a)
}
