//go:build linux

package session_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/jobs"
)

// A command that takes more memory than it may, in a process of its own, is killed with all that
// it has started. One that has less goes on, and what it had is told.
func TestMaxMemory(t *testing.T) {
	p := open(t, session.Options{})
	var out buffer
	req := session.StartRequest{MaxMemory: 48 * jobs.MiB,
		Command: jobs.Command{Shell: "sleep 301 & echo $!; head -c 70000000 /dev/zero | tail -c 69000000 | sleep 302 & echo $!; wait"}}
	proc := p.start(req, &out, nil)
	res, err := wait(t, proc)
	if err != nil || !res.OverMemory || res.TimedOut || res.Exit != (jobs.Exit{Started: true, Code: 137, Signal: 9}) || res.MaxRSS < 48*jobs.MiB {
		t.Errorf("%+v %v", res, err)
	}
	for _, text := range strings.Fields(out.String()) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		dead(t, pid)
	}
	req = session.StartRequest{Command: jobs.Command{Argv: []string{"sh", "-c", "head -c 30000000 /dev/zero | tail -c 29000000 | sleep 2.5"}}, MaxMemory: 200 * jobs.MiB,
		Timeout: time.Minute}
	if res, _, _ := p.run(req); res.OverMemory || !res.Exit.OK() || res.MaxRSS < 29_000_000 {
		t.Errorf("%+v", res)
	}
}
