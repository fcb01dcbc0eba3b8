package guest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper waits for all children: the commands it was asked to start, and the
// orphans that the kernel gives to a child subreaper.
type reaper struct {
	mu      sync.Mutex // held from a fork until its answer is expected
	waiting map[int]chan<- reaped
	sigchld chan os.Signal
}

// reaped is how a child ended.
type reaped struct {
	status unix.WaitStatus
	usage  unix.Rusage
	at     time.Time
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan<- reaped{}, sigchld: make(chan os.Signal, 1)}
	signal.Notify(r.sigchld, syscall.SIGCHLD)
	return r
}

// start forks a child and returns where its end will be told.
func (r *reaper) start(fork func() (int, error)) (pid int, end <-chan reaped, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pid, err = fork(); err != nil {
		return 0, nil, err
	}
	ch := make(chan reaped, 1)
	r.waiting[pid] = ch
	return pid, ch, nil
}

// signalGroup signals the process group of a child that was not reaped yet; no
// other process can have its number until then.
func (r *reaper) signalGroup(pid int, sigs ...syscall.Signal) error { return r.signal(pid, -pid, sigs) }

// signalOne signals such a child alone.
func (r *reaper) signalOne(pid int, sigs ...syscall.Signal) error { return r.signal(pid, pid, sigs) }

func (r *reaper) signal(pid, whom int, sigs []syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[pid] == nil {
		return nil
	}
	for _, sig := range sigs {
		if err := unix.Kill(whom, sig); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// lives tells whether a child has not ended. It does not wait until the kernel's
// signal has arrived: who has just seen that a child is dead must not be told
// otherwise.
func (r *reaper) lives(pid int) bool {
	for r.one() {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[pid] != nil
}

// run reaps for ever.
func (r *reaper) run() {
	for range r.sigchld {
		for r.one() {
		}
	}
}

// one reaps one child, if one has ended.
func (r *reaper) one() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e reaped
	pid, err := unix.Wait4(-1, &e.status, unix.WNOHANG, &e.usage)
	if err == unix.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if ch := r.waiting[pid]; ch != nil {
		e.at = time.Now()
		delete(r.waiting, pid)
		ch <- e
	}
	return true
}
