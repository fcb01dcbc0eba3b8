package run

import (
	"os"
	"runtime"
	"testing"
)

// The threads are there when it returns, and none of them ends.
func TestMakeThreads(t *testing.T) {
	const procs = 40 // more threads than the tests have made until here
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	for range 2 {
		MakeThreads()
		if all, err := os.ReadDir("/proc/self/task"); err != nil || len(all) < procs+spareThreads {
			t.Errorf("%d threads, want %d: %v", len(all), procs+spareThreads, err)
		}
	}
}
