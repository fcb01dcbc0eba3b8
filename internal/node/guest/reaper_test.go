//go:build linux

package guest

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReaperLives looks at a child that has just been killed, before the
// kernel's signal about it has been seen: that goroutine does not run here.
func TestReaperLives(t *testing.T) {
	r := newReaper()
	pid, end, err := r.start(func() (int, error) {
		return syscall.ForkExec("/bin/sleep", []string{"sleep", "300"}, &syscall.ProcAttr{Env: os.Environ()})
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.lives(pid) {
		t.Fatal("it has ended by itself")
	}
	if left := killTree(false, func(all []proc) (out []proc) {
		for _, p := range all {
			if p.pid == pid {
				out = append(out, p)
			}
		}
		return out
	}, time.Minute); left != 0 {
		t.Fatal("it does not end")
	}
	if r.lives(pid) {
		t.Error("a dead child lives")
	}
	if e := <-end; e.status.Signal() != unix.SIGKILL {
		t.Errorf("it ended by %v", e.status)
	}
}
