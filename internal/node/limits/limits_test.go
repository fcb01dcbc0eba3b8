package limits

import (
	"strings"
	"testing"

	"berth/jobs"
)

func TestScopeArgv(t *testing.T) {
	got := scopeArgv("/usr/bin/systemd-run", jobs.Resources{Memory: 2 * jobs.GiB, CPUs: 3}, []string{"/n", "overlay-mount"})
	want := "/usr/bin/systemd-run --user --scope --quiet --collect -p TasksMax=8192 -p MemoryMax=2147483648 -p MemorySwapMax=0 -p CPUQuota=300% -- /n overlay-mount"
	if strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}
