//go:build cluster

package cluster

import (
	"regexp"
	"strings"
	"testing"
)

// passed is what a program of tests, told to be verbose, says of those that did
// not fail.
var passed = regexp.MustCompile(`(?m)^\s*(=== |--- (PASS|SKIP)).*\n`)

// failures leaves of that what tells why one has.
func failures(out string) string { return passed.ReplaceAllString(out, "") }

// Environments on real Apptainer: every overlay driver, images converted and
// unpacked, what a killed one leaves. The binary is built by scripts/test and
// runs on the login node, and in a job for what only a job has.
func TestContainers(t *testing.T) {
	each(t, []site{standard, newer}, func(t *testing.T, s site) {
		run := "cd /tmp && BERTH_TEST_IMAGE=" + s.image + " apptainer.test -test.v -test.timeout 900s "
		a := s.sh(t, run)
		check := func(a answer, names ...string) {
			t.Helper()
			if a.code != 0 {
				t.Errorf("exit code %d\n%s\n%s", a.code, failures(a.out), a.err)
			}
			for _, name := range names {
				if !strings.Contains(a.out, "--- PASS: "+name+" (") {
					t.Errorf("%s did not pass", name)
				}
			}
		}
		check(a, "TestDrivers/kernel", "TestDrivers/fuse", "TestDrivers/ext3", "TestGuest/kernel", "TestGuest/fuse", "TestGuest/ext3", "TestAuto", "TestSandbox",
			"TestUnpackTogether", "TestUnpackKilled", "TestConvert", "TestLost", "TestMounts", "TestNoNetwork", "TestFakeroot", "TestImageErrors", "TestLimits")
		inJob := func(mem, name string) {
			check(s.sh(t, strings.Replace(run, "BERTH_TEST_IMAGE", "srun --mem="+mem+" env BERTH_TEST_IMAGE", 1)+"-test.run '"+name+"$'"), name)
		}
		inJob("1G", "TestLimitsInJob")
		inJob("300M", "TestSmallJob")
	})
}
