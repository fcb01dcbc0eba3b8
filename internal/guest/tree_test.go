//go:build linux

package guest

import (
	"os"
	"slices"
	"testing"
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
