//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// Neither a job's runner nor its guest runs from the file system that the nodes
// share: where it goes away for a moment, the kernel ends who wants a page of a
// program from there (SIGBUS).
func TestPagesOfTheNode(t *testing.T) {
	each(t, []site{standard, strict}, func(t *testing.T, s site) {
		id := s.submit(t, "", "echo ready; sleep 30; echo done")
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
		st := s.status(t, id)
		job := s.runner(t, st)
		// The guest is below its runner.
		guest := s.on(t, st.Node, "root", "bash", "-c", `for p in $(pgrep -f '^/.berth/node guest'); do
  up=$p; while [ "${up:-1}" != 1 ]; do up=$(ps -o ppid= -p $up | tr -d ' '); [ "$up" = `+job+` ] && echo $p && exit 0; done; done; exit 1`)
		if guest.code != 0 {
			t.Fatalf("no guest: %+v", guest)
		}
		for what, pid := range map[string]string{"runner": job, "guest": strings.TrimSpace(guest.out)} {
			maps := s.on(t, st.Node, "root", "cat", "/proc/"+pid+"/maps").out
			if !strings.Contains(maps, "r-xp") {
				t.Fatalf("%s: %s", what, maps)
			}
			for line := range strings.Lines(maps) {
				// Pages that are written are the process's own.
				if strings.Contains(line, "/bin/berth-node-") && !strings.Contains(line, " rw-p ") {
					t.Errorf("%s: %s", what, line)
				}
			}
		}
		if s.profile == "strict" { // its nodes see the state directory through sshfs
			if a := s.on(t, st.Node, "root", "pkill", "-9", "-x", "ssh"); a.code != 0 {
				t.Errorf("no connection of sshfs: %+v", a)
			}
		}
		s.wait(t, id, 0)
		if out := s.ok(t, "berth logs "+id); !strings.Contains(out, "ready") {
			t.Errorf("%q", out)
		}
	})
}
