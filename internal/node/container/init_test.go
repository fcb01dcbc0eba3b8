package container

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// The init of a container is found by its namespace; what runs inside makes
// deeper ones, and they do not count.
func TestInit(t *testing.T) {
	if _, _, ok := Init(os.Getpid()); ok {
		t.Error("found where there is none")
	}
	inner := `(unshare -Upf --mount-proc sh -c 'sleep 60' &) ; sleep 0.3; echo ready; sleep 61`
	outer := tree(t, "sh", "-c", `unshare -Urmpf --mount-proc sh -c "$1" & wait`, "sh", inner)
	var pid int
	var start string
	eventually(t, "it is found", func() (ok bool) {
		pid, start, ok = Init(outer.Process.Pid)
		return ok
	})
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(b), "sleep 61") || strings.Contains(string(b), "unshare -Urmpf") || start != lease.StartTime(pid) {
		t.Errorf("process %d, started %q: %q %v", pid, start, b, err)
	}
	// Two containers are no answer.
	two := tree(t, "sh", "-c", `unshare -Urpf sh -c 'sleep 60' & unshare -Urpf sh -c 'sleep 60' & sleep 0.3; echo ready; wait`)
	eventually(t, "both stand", func() bool { return len(run.Below(two.Process.Pid)) >= 4 })
	if pid, _, ok := Init(two.Process.Pid); ok {
		t.Errorf("took %d of two", pid)
	}
	for _, p := range []int{outer.Process.Pid, two.Process.Pid} {
		KillContainer(p)
	}
}
