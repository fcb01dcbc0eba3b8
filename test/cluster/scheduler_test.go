//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// The suite that every scheduler passes, on each version of Slurm and on the
// strict site. Its binary is built by scripts/test and runs on the login node.
func TestSchedulerSuite(t *testing.T) {
	each(t, []site{standard, old, newer, strict}, func(t *testing.T, s site) {
		env := "BERTH_TEST_CLUSTER=1"
		if s.profile == "strict" {
			env += " BERTH_TEST_NOMEM=1"
		}
		a := s.sh(t, "cd && "+env+" slurm.test -test.v -test.timeout 900s -test.run 'TestCluster$'")
		if a.code != 0 || !strings.Contains(a.out, "--- PASS: TestCluster") {
			t.Errorf("exit code %d\n%s\n%s", a.code, failures(a.out), a.err)
		}
	})
}
