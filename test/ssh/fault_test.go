//go:build cluster

package ssh

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// TestCutForAMinute: nothing comes through in either direction, under a command
// and a background process, with the times that users have.
func TestCutForAMinute(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	b := s.withNode()
	e := s.env("cut", v.ip4)
	one, first := open(t, b, e, nil)
	bg := keep(t, one, wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "while :; do echo tick; echo tick >>/tmp/ticks; sleep 0.1; done"}}).BG[0]
	p, err := one.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"sleep", "777"}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Begun()
	pings := time.NewTicker(10 * time.Second) // as the engine does
	defer pings.Stop()
	go func() {
		for one.Ping() == nil {
			select {
			case <-pings.C:
			case <-one.Gone():
			}
		}
	}()
	cut := time.Now()
	v.in("root", "iptables -A INPUT -p tcp --dport 22 -j DROP; iptables -A OUTPUT -p tcp --sport 22 -j DROP")
	if _, err := p.Wait(); !errors.Is(err, session.ErrGuestGone) || !strings.Contains(err.Error(), "the link to "+v.ip4+" broke") {
		t.Errorf("the command in flight: %v", err)
	}
	t.Logf("noticed after %v", time.Since(cut))
	if _, _, err := b.Dial(t.Context(), e, keeper.OpenOptions{}); jobs.KindOf(err) != jobs.KindInfra || jobs.HintOf(err) == "" {
		t.Errorf("while it is cut: %v", err)
	}
	time.Sleep(time.Until(cut.Add(time.Minute)))
	// The background process goes on meanwhile.
	size := func() (n int64) {
		_, _ = fmt.Sscan(v.in("root", "stat -c %s /tmp/ticks 2>/dev/null || echo 0"), &n)
		return n
	}
	before := size()
	s.eventually("more of the background process", func() bool { return size() > before+5 })
	ticks := size()
	v.in("root", "iptables -F")
	two, rep := open(t, b, e, nil)
	if !rep.Opened.Equal(first.Opened) || rep.Rebuilt != "" {
		t.Errorf("another environment: %+v", rep)
	}
	now := keep(t, two, wire.KeepRequest{Op: wire.KeepBGList}).BG
	if len(now) != 1 || !now[0].Running || now[0].PID != bg.PID || now[0].Log < ticks {
		t.Errorf("the background process: %+v", now)
	}
	s.eventually("the end of the command", func() bool { return v.in("root", "pgrep -fc '^sleep 77[7]' || true") == "0" })
	keep(t, two, wire.KeepRequest{Op: wire.KeepStop})
}

// TestFull: the disk of the host is full under a log, a record, and the start.
func TestFull(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.server("one", "--tmpfs", "/home/alice:size=48m,mode=755,exec")
	s.know(v.ip4)
	b := s.withNode()
	e := s.env("full", v.ip4)
	one, _ := open(t, b, e, nil)
	fill := func(left string) {
		v.in("alice", "cd; rm -f fill; cat /dev/zero >fill 2>/dev/null; truncate -s -"+left+" fill")
	}
	fill("256K")
	bg := keep(t, one, wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "head -c 3000000 /dev/zero; exit 4"}}).BG[0]
	if got := keep(t, one, wire.KeepRequest{Op: wire.KeepBGWait, ID: bg.ID}).BG[0]; got.Running || got.Exit == nil || got.Exit.Code != 4 || got.Log == 0 || got.Log >= 3000000 {
		t.Errorf("a log without space: %+v", got)
	}
	if got := keep(t, one, wire.KeepRequest{Op: wire.KeepBGList}).BG; len(got) != 1 || got[0].Running || got[0].Exit == nil || got[0].Exit.Code != 4 {
		t.Errorf("its record: %+v", got)
	}
	if notes := strings.Join(keep(t, one, wire.KeepRequest{Op: wire.KeepStatus}).State.Notes, "; "); !strings.Contains(notes, bg.ID+": some output was lost") {
		t.Errorf("that the log is not whole is not said: %q", notes)
	}
	fill("0")
	if got := sh(t, one, "seq 100000 | tail -n 1"); got != "100000\n" {
		t.Errorf("a command: %q", got)
	}
	p, err := one.Do(wire.StartMessage{Keep: &wire.KeepRequest{Op: wire.KeepBGStart, Start: &wire.StartMessage{Shell: "true"}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if a, err2 := answer(r); err != nil || err2 != nil || !strings.Contains(a.Hint, "df -h") {
		t.Errorf("a background process without a record: %v, %v, %+v", err, err2, a)
	}
	keep(t, one, wire.KeepRequest{Op: wire.KeepStop})
	if _, _, err := b.Dial(t.Context(), e, keeper.OpenOptions{}); err == nil || !strings.Contains(jobs.HintOf(err), "df -h") {
		t.Errorf("a start without space: %v, hint %q", err, jobs.HintOf(err))
	}
	v.in("alice", "rm ~/fill")
	two, rep := open(t, b, e, nil)
	t.Logf("%+v", rep)
	if got := sh(t, two, "echo on"); got != "on\n" {
		t.Errorf("%q", got)
	}
	if got := keep(t, two, wire.KeepRequest{Op: wire.KeepBGList}).BG; len(got) != 1 || got[0].Running {
		t.Errorf("afterwards: %+v", got)
	}
	keep(t, two, wire.KeepRequest{Op: wire.KeepStop})
}
