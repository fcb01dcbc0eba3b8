package queue

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Without locks of files one at a time is still one at a time, and one that is
// given back leaves little.
func TestLockByLease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lock.d")
	var in, turns atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5 {
				unlock, err := lockByLease(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if n := in.Add(1); n != 1 {
					t.Errorf("%d at a time", n)
				}
				turns.Add(1)
				in.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > 2 || turns.Load() != 30 {
		t.Errorf("%d turns, left %q, %v", turns.Load(), left, err)
	}
}

// A child has what its parent has open until it is another program, which takes
// a while on a busy machine: the lock is given back all the same.
func TestUnlockBesideChild(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(file)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	child := -1
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != file {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(fd))
		if err == nil {
			child, err = unix.Dup(n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if child < 0 {
		t.Fatal("the file is not open")
	}
	defer func() { _ = unix.Close(child) }()
	unlock()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("it is still locked: %v", err)
	}
}
