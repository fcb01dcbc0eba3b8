package container

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// A container is known by the scratch directory that is mounted in it, also when
// that was removed, and ends with its first process. Containers inside of it, and
// what has a directory of that name without being one, are none.
func TestOrphans(t *testing.T) {
	base := t.TempDir()
	s, err := NewScratch(base, "0123456789ab", lease.Self(), base)
	if err != nil {
		t.Fatal(err)
	}
	inside := `mount --bind "$1" /mnt && (unshare -Upf sh -c 'sleep 60' &) && echo ready && sleep 61; true`
	cmd := tree(t, "unshare", "-Urmpf", "--kill-child", "--mount-proc", "sh", "-c", inside, "sh", s.Workdir())
	beside := tree(t, "sh", "-c", "cd "+s.Dir+"; echo ready; sleep 60; true")
	find := func(mark string) []Orphan { return Orphans(func(m string) bool { return m == mark }) }
	check := func() Orphan {
		t.Helper()
		found := find("0123456789ab")
		if len(found) != 1 {
			t.Fatalf("found %+v", found)
		}
		if p, ok := run.ReadProc(found[0].PID); !ok || p.PPID != cmd.Process.Pid {
			t.Errorf("%+v is not the first process of the container: %+v", found[0], p)
		}
		return found[0]
	}
	check()
	if found := find("0123456789ac"); len(found) != 0 {
		t.Errorf("another's: %+v", found)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	o := check()
	later := o
	later.Start += "1"
	if later.Kill() {
		t.Error("a later process of that number was ended")
	}
	below := run.Below(o.PID)
	if len(below) == 0 || !o.Kill() {
		t.Fatalf("it has %d processes, and could not be ended", len(below))
	}
	for _, p := range below {
		eventually(t, "all in it ends", func() bool {
			_, err := os.Stat(filepath.Join("/proc", fmt.Sprint(p.PID)))
			return err != nil
		})
	}
	if p, ok := run.ReadProc(beside.Process.Pid); !ok || p.Zombie {
		t.Error("what is beside it has ended, too")
	}
}
