//go:build linux

package guest

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"berth/test/fakes/headless"
)

func TestReadProc(t *testing.T) {
	p, ok := readProc(os.Getpid())
	if !ok || p.pid != os.Getpid() || p.ppid != os.Getppid() || p.start == 0 || p.zombie {
		t.Errorf("got %+v %v", p, ok)
	}
	if _, ok := readProc(1 << 30); ok {
		t.Error("a process that cannot be")
	}
	if !slices.ContainsFunc(processes(), func(q proc) bool { return q.pid == os.Getpid() && q.start == p.start }) {
		t.Error("this process is not in the list")
	}
}

func TestBelow(t *testing.T) {
	all := []proc{{pid: 1}, {pid: 2, ppid: 1}, {pid: 3, ppid: 2}, {pid: 4, ppid: 3}, {pid: 5, ppid: 1}, {pid: 6, ppid: 5}, {pid: 7, ppid: 7}}
	pids := func(ps []proc) (out []int) {
		for _, p := range ps {
			out = append(out, p.pid)
		}
		slices.Sort(out)
		return out
	}
	for _, c := range []struct{ roots, want []int }{
		{[]int{2}, []int{3, 4}}, {[]int{1}, []int{2, 3, 4, 5, 6}}, {[]int{2, 5}, []int{3, 4, 6}}, {[]int{2, 3}, []int{4}}, {[]int{7}, nil}, {[]int{9}, nil},
	} {
		if got := pids(below(all, c.roots...)); !slices.Equal(got, c.want) {
			t.Errorf("below %v: %v", c.roots, got)
		}
	}
}

// TestNotItsOwnNamespace runs on a machine whose processes are not the
// guest's to kill.
func TestNotItsOwnNamespace(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{"", own} {
		if ownPIDNamespace(client) {
			t.Errorf("client in %q", client)
		}
	}
	if own == initialPIDNamespace && ownPIDNamespace("pid:[1]") {
		t.Error("the host's own namespace was taken")
	}
}

// TestKillHeadless: a process whose first thread has ended looks like a zombie,
// and is killed like any other.
func TestKillHeadless(t *testing.T) {
	cmd := headless.Start(t)
	left := killTree(false, func(all []proc) []proc {
		return slices.DeleteFunc(all, func(p proc) bool { return p.pid != cmd.Process.Pid })
	}, time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Log(err)
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
	if left != 0 {
		t.Errorf("%d are left", left)
	}
}

// TestKillLate: a time that was up before anybody looked, as for a process that
// stood still, leaves nothing.
func TestKillLate(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := killTree(false, func(all []proc) []proc {
		return slices.DeleteFunc(all, func(p proc) bool { return p.pid != cmd.Process.Pid })
	}, -time.Second)
	if left != 0 {
		t.Errorf("%d are left", left)
	}
	_ = cmd.Wait()
}

// TestKillBomb: of a fork bomb one process is always born while the others are being killed, as
// long as there is room for it. It ends because those that stand still leave no room.
func TestKillBomb(t *testing.T) {
	const room = 8
	members := map[int]bool{}
	fork := func() {
		cmd := exec.Command("sleep", "300")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		members[cmd.Process.Pid] = true
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	fork()
	left := killTree(false, func(all []proc) (out []proc) {
		living, running := 0, false
		for _, p := range all {
			if !members[p.pid] {
				continue
			}
			out = append(out, p)
			if !p.zombie {
				living++
				stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/stat")
				running = running || !bytes.Contains(stat, []byte(") T "))
			}
		}
		if running && living < room {
			fork() // after this look at the processes, before its signals
		}
		return out
	}, 10*time.Second)
	if left != 0 {
		t.Errorf("%d are left, of %d", left, len(members))
	}
}
