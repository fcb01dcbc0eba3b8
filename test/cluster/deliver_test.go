//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A repository that is renamed while the job runs strands nothing: the job
// completes, status says what is missing, and the next look brings the branch in
// when the repository is back.
func TestRepositoryAway(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.ok(t, fmt.Sprintf(`d=$HOME/away-%d; mkdir "$d" && echo "$d"`, time.Now().UnixNano()))
		t.Cleanup(func() { s.sh(t, "rm -rf "+d) })
		s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo")
		id := s.submit(t, "--workspace "+d+"/repo", `echo ready; until [ -e /work/go ]; do sleep 0.2; done; rm /work/go; echo hello >new`)
		s.state(t, id, "running")
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
		s.ok(t, "mv "+d+"/repo "+d+"/moved")
		s.ok(t, "berth exec --job "+id+" --wait 5m -- touch /work/go")
		st := s.wait(t, id, 0)
		if st.State != "completed" {
			t.Errorf("%+v", st)
		}
		gone := `the repository at "` + d + `/repo/.git" is gone`
		if got := s.ok(t, "berth status "+id); !strings.Contains(got, gone) {
			t.Errorf("status does not say what is missing:\n%s", got)
		}
		if a := s.want(t, "berth collect "+id, 5); !strings.Contains(a.err, gone) {
			t.Errorf("collect: %s", a.err)
		}
		s.ok(t, "mv "+d+"/moved "+d+"/repo")
		s.ok(t, "berth ps")
		if got := s.ok(t, "git -C "+d+"/repo show "+st.Branch+":new"); got != "hello" {
			t.Errorf("the branch has %q", got)
		}
		if got := s.ok(t, "berth status "+id); strings.Contains(got, "not in the repository") {
			t.Errorf("after that:\n%s", got)
		}
		if got := s.ok(t, "ls "+d+"/repo/.git/objects"); strings.Contains(got, "tmp_") {
			t.Errorf("left in the repository: %s", got)
		}
	})
}
