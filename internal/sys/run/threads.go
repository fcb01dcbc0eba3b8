package run

import (
	"runtime"
	"sync"
)

// spareThreads are more than a guest was seen to have in system calls at once.
const spareThreads = 8

// MakeThreads makes the threads that this process may want, which Go's runtime then keeps:
// as many as run at once, and some that wait in system calls. One that it cannot make when
// it wants it ends the process, and a task's fork bomb leaves its user no process and no
// thread.
func MakeThreads() {
	var made, done sync.WaitGroup
	all := make(chan struct{})
	for range runtime.GOMAXPROCS(0) + spareThreads {
		made.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // two such are never on one thread
			defer runtime.UnlockOSThread()
			made.Done()
			<-all
		})
	}
	made.Wait()
	close(all)
	done.Wait()
}
