//go:build cluster

package cluster

import (
	"strings"
	"testing"
	"time"
)

// A runner that stands still for longer than its guest waits, as one does whose
// state directory is away: the end of a command that its guest saw before it left
// is the job's, and is not run again; a command that its guest has ended is no end
// of the task's.
func TestRunnerStoodStill(t *testing.T) {
	s := standard
	s.need(t)
	for name, c := range map[string]struct {
		command, state, reason string
		code                   int
	}{
		"ended before":   {"until test -e /d/go; do sleep 0.1; done; echo over", "completed", "", 0},
		"ended by it":    {"sleep 300", "error", "no ping reached it", 5},
		"failed before":  {"until test -e /d/go; do sleep 0.1; done; exit 9", "failed", "exit code 9", 1},
		"a short moment": {"until test -e /d/back; do sleep 0.1; done; echo over", "completed", "", 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			d := s.dir(t)
			flags := "--profile " + d + "/fast.toml --bind " + d + ":/d:rw"
			beat := "1s"
			if name == "a short moment" {
				beat = "4s" // a busy machine makes any moment longer
			}
			s.ok(t, `echo 'beat = "`+beat+`"' >`+d+`/fast.toml`)
			retry := " --retry off "
			if c.code != 5 {
				retry = " " // as usual: a second attempt would be seen
			}
			id := s.ok(t, "berth submit --image "+s.image+retry+flags+" -- "+quote("echo ready; echo x >>/d/began; "+c.command))
			waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
			st := s.status(t, id)
			runner := s.runner(t, st)
			guests := func() bool {
				return s.on(t, st.Node, "root", "bash", "-c", `for p in $(pgrep -f '^/.berth/node guest'); do
  grep -q 'job_`+st.NativeID+`/' /proc/$p/cgroup && exit 0; done; exit 1`).code == 0
			}
			if !guests() {
				t.Fatal("its guest is not found")
			}
			began := time.Now()
			s.on(t, st.Node, "root", "kill", "-STOP", runner)
			s.ok(t, "touch "+d+"/go")
			if name == "a short moment" { // for which it was ended before
				time.Sleep(14 * time.Second)
				if !guests() {
					t.Error("its guest has left")
				}
			} else {
				waitFor(t, patience, func() bool { return !guests() })
				if took := time.Since(began); took < 9*time.Second {
					t.Errorf("its guest has left after %s", took)
				}
			}
			s.on(t, st.Node, "root", "kill", "-CONT", runner)
			s.ok(t, "touch "+d+"/back")
			got := s.wait(t, id, c.code)
			if got.State != c.state || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%+v", got)
			}
			if began := s.ok(t, "cat "+d+"/began"); began != "x" {
				t.Errorf("it began %d times", strings.Count(began, "x"))
			}
		})
	}
}
