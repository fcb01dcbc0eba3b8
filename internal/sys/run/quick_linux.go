package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/jobs"
)

// Quick runs short commands one after the other, with little around the fork and
// exec of each: no goroutine, no timer. Each has a process group of its own, which
// is killed when the command has ended. It is for one goroutine.
type Quick struct {
	null *os.File
	buf  []byte
}

// QuickCmd is one of them.
type QuickCmd struct {
	Path  string // of the program
	Argv  []string
	Env   []string
	Dir   string
	Limit time.Duration // after which it is ended; 0 is none
	Grace time.Duration // between TERM and KILL
	// CPUs are those on which it may run; none is where this process may.
	CPUs []int
	// Over, if not nil, is asked now and then whether the processes of its group take too
	// much: then they are killed.
	Over func(group int) bool
	// Output takes what it writes: 1 is the standard output, 2 the error. The bytes
	// are valid until it returns. After an error nothing more is read.
	Output func(stream int, b []byte) error
}

// QuickEnd is how one ended.
type QuickEnd struct {
	Exit     jobs.Exit
	CPU      time.Duration
	Memory   int64 // bytes, the most of its largest process; no less than this one has, whose memory a child shares until its exec
	TimedOut bool
	Over     bool  // because [QuickCmd.Over] has said so
	Stopped  bool  // because the context ended
	Err      error // of Output
}

// NewQuick makes one.
func NewQuick() (*Quick, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	return &Quick{null: null, buf: make([]byte, 64<<10)}, nil
}

// Close gives back what it holds.
func (q *Quick) Close() { _ = q.null.Close() }

// quickLook is how often a command that runs for long is looked at for the end of
// the context.
const quickLook = 200 * time.Millisecond

// Run runs a command to its end. An error is that it could not be started.
func (q *Quick) Run(ctx context.Context, c QuickCmd) (QuickEnd, error) {
	var pipes [2][2]int
	for i := range pipes {
		if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			if i > 0 {
				closeAll(pipes[0][:])
			}
			return QuickEnd{}, fmt.Errorf("make a pipe: %w", err)
		}
		_ = unix.SetNonblock(pipes[i][0], true)
	}
	pidfd := -1
	back := bindThread(c.CPUs) // a child has the CPUs of the thread that forks, from its first instruction on
	pid, err := syscall.ForkExec(c.Path, c.Argv, &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []uintptr{q.null.Fd(), uintptr(pipes[0][1]), uintptr(pipes[1][1])},
		// Without this process, who would record its end? (The kernel means the thread
		// that forks; Go ends no thread that is not locked to a goroutine.)
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd, Pdeathsig: syscall.SIGKILL},
	})
	back()
	closeAll([]int{pipes[0][1], pipes[1][1]})
	reads := []int{pipes[0][0], pipes[1][0]}
	defer func() { closeAll(reads) }()
	if err != nil {
		return QuickEnd{}, err
	}
	if pidfd >= 0 {
		defer func() { _ = unix.Close(pidfd) }()
	}
	return q.follow(ctx, c, pid, pidfd, reads), nil
}

// bindThread has this thread run on some CPUs only, until what it returns is called.
func bindThread(cpus []int) (back func()) {
	var before, only unix.CPUSet
	for _, c := range cpus {
		only.Set(c)
	}
	if len(cpus) == 0 {
		return func() {}
	}
	runtime.LockOSThread()
	if unix.SchedGetaffinity(0, &before) != nil || unix.SchedSetaffinity(0, &only) != nil {
		runtime.UnlockOSThread()
		return func() {}
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread()
		} // else it ends with its goroutine: nothing else is to run there
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// follow reads what the command writes until it has ended.
func (q *Quick) follow(ctx context.Context, c QuickCmd, pid, pidfd int, reads []int) QuickEnd {
	var end QuickEnd
	begun := time.Now()
	var killAt time.Time // once it was told to end
	stop := func() {
		_ = unix.Kill(-pid, unix.SIGTERM)
		killAt = time.Now().Add(c.Grace)
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(reads[0]), Events: unix.POLLIN}, {Fd: int32(reads[1]), Events: unix.POLLIN}}
	for gone := false; !gone; {
		if c.Over != nil && killAt.IsZero() && c.Over(pid) {
			end.Over = true
			_ = unix.Kill(-pid, unix.SIGKILL)
			killAt = time.Now().Add(time.Second)
		}
		wait := quickLook
		switch {
		case pidfd < 0:
			wait = 5 * time.Millisecond // Linux before 5.3
		case !killAt.IsZero():
			wait = min(wait, time.Until(killAt))
		case c.Limit > 0:
			wait = min(wait, time.Until(begun.Add(c.Limit)))
		}
		_, err := unix.Poll(fds, max(int(wait.Milliseconds()), 1))
		for i := range reads {
			if fds[1+i].Revents != 0 && !q.read(c, i, reads[i], &end) {
				fds[1+i].Fd = -1
			}
		}
		if err == nil && fds[0].Revents != 0 || pidfd < 0 && isZombie(pid) {
			gone = true
			continue
		}
		now := time.Now()
		switch {
		case killAt.IsZero() && c.Limit > 0 && now.Sub(begun) >= c.Limit:
			end.TimedOut = true
			stop()
		case killAt.IsZero() && ctx.Err() != nil:
			end.Stopped = true
			stop()
		case !killAt.IsZero() && !now.Before(killAt):
			_ = unix.Kill(-pid, unix.SIGKILL)
			killAt = now.Add(time.Second)
		}
	}
	// Its number, and so its group's, is its own until it is waited for.
	_ = unix.Kill(-pid, unix.SIGKILL)
	var ws unix.WaitStatus
	var usage unix.Rusage
	for {
		if _, err := unix.Wait4(pid, &ws, 0, &usage); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	for i, fd := range reads { // what it has left in the pipes
		if fds[1+i].Fd >= 0 {
			q.read(c, i, fd, &end)
		}
	}
	end.Exit = jobs.Exit{Started: true, Code: ws.ExitStatus()}
	if ws.Signaled() {
		end.Exit.Signal = int(ws.Signal())
		end.Exit.Code = 128 + end.Exit.Signal
	}
	end.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	end.Memory = usage.Maxrss << 10
	return end
}

// mostAtOnce bounds what is read of one stream before the other is looked at.
const mostAtOnce = 1 << 20

// read reads what is there of a stream; false is that there will be no more.
func (q *Quick) read(c QuickCmd, i, fd int, end *QuickEnd) bool {
	for got := 0; got < mostAtOnce; {
		n, err := unix.Read(fd, q.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return true
		case err != nil || n <= 0:
			return false
		}
		got += n
		if end.Err == nil && c.Output != nil {
			end.Err = c.Output(i+1, q.buf[:n])
		}
		if n < len(q.buf) {
			return true
		}
	}
	return true
}

func isZombie(pid int) bool {
	p, ok := ReadProc(pid)
	return !ok || p.Zombie
}
