//go:build linux

package session_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// TestJoined has a guest in a PID namespace that is another's: whatever the
// client says, it touches nothing there but what it has started itself, and it
// holds no descriptor that it was started with.
func TestJoined(t *testing.T) {
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if os.Getuid() != 0 {
		unshare = append(unshare[:1:1], append([]string{"--map-root-user"}, unshare[1:]...)...)
	}
	if _, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: append(unshare[:len(unshare):len(unshare)], "true")}); err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(held) }()
	// The guest's parent is the namespace's first process, as that of a guest
	// that may kill everything there.
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	script := `sleep 301 <&- & other=$!; until [ "$(cat /proc/$other/comm)" = sleep ]; do sleep 0.02; done; (exec "$0" 7>"$1"); code=$?; kill -0 $other && echo the other lives >&2; exit $code`
	p, r := launch(ctx, t, append(unshare, "sh", "-c", script, os.Args[0], fifo), env(roleJoined))
	if p.s, err = session.Open(ctx, r, p.in, session.Options{OwnPIDNamespace: true, TellEnv: true, Env: []string{"PATH=/usr/bin:/bin", "ONLY=this"}}); err != nil {
		t.Fatalf("%v %s", err, p.stderr.String())
	}
	if g := p.s.Guest(); g.OwnPIDNamespace || !strings.Contains(strings.Join(g.Env, " "), "ONLY=this") {
		t.Errorf("%+v", g)
	}
	if n, err := unix.Read(held, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the descriptor it inherited is open: %d %v", n, err)
	}
	if _, out, _ := p.run(shell(`echo "$ONLY [$` + roleVar + `]"`)); out != "this []\n" {
		t.Errorf("the environment: %q", out)
	}
	// What it has started ends: at a time limit, and all that is left with it.
	if res, _, _ := p.run(session.StartRequest{Command: jobs.Command{Shell: "setsid sleep 302 & sleep 303"}, Session: "s", Timeout: 300 * time.Millisecond, Grace: 100 * time.Millisecond}); !res.TimedOut {
		t.Errorf("%+v", res)
	}
	count := func() string {
		_, out, _ := p.run(shell(`n=0; for f in /proc/[0-9]*/cmdline; do case $(tr '\0' ' ' <$f 2>/dev/null) in "sleep 30"*) n=$((n+1));; esac; done; echo $n`))
		return strings.TrimSpace(out)
	}
	if n := count(); n != "1" {
		t.Errorf("%s processes sleep, want the other's one", n)
	}
	if left, err := p.s.End(ctx, 0); left != 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	p.run(shell("setsid sleep 304 >&- 2>&- & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep 0.02; done"))
	if n := count(); n != "2" {
		t.Errorf("%s processes sleep, want the other's and ours", n)
	}
	if err := p.s.Quit(ctx); err != nil {
		t.Error(err)
	}
	if exit, err := p.proc.Wait(); err != nil || !exit.OK() || !strings.Contains(p.stderr.String(), "the other lives") {
		t.Errorf("%+v %v %s", exit, err, p.stderr.String())
	}
}
