package queue

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/sys/lease"
	"berth/jobs"
)

// place is this host, its boot and the namespace of this process.
func place() (location, error) {
	host, err := os.Hostname()
	if err != nil {
		return location{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return location{}, err
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return location{}, err
	}
	return location{Host: host, Boot: strings.TrimSpace(string(boot)), NS: strings.Trim(ns, "pid:[]")}, nil
}

// processStart returns when a process started, in clock ticks since boot. A
// zombie counts as gone.
func processStart(pid int) (uint64, error) {
	at := lease.StartTime(pid)
	if at == "" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(at, 10, 64)
}

func processAlive(pid int, started uint64) bool {
	at := lease.StartTime(pid)
	return at == lease.UnknownStart || at == strconv.FormatUint(started, 10)
}

// terminate sends TERM to exactly that process: the pidfd holds on to it, and
// its start time is read again behind the pidfd, so a pid that was used again
// is never hit. A process that is gone is no error.
func terminate(pid int, started uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		if processAlive(pid, started) {
			err = unix.Kill(pid, unix.SIGTERM)
		}
		return ignoreGone(err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !processAlive(pid, started) {
		return nil
	}
	return ignoreGone(unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0))
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// lock takes the queue's lock, waiting for it. It only ever stands between
// processes of one host, so flock(2) is enough on a shared file system too.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
			return lockByLease(file + ".d")
		}
		return nil, err
	}
	return func() {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // a child that is just made has the file, too
		_ = f.Close()
	}, nil
}

// lockByLease is [lock] where the file system has no locks (Lustre without the
// mount option flock): for all processes of the host, or for none.
func lockByLease(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	self := lease.Self()
	for {
		me := self.Owner(dir)
		me.Verb = "queue"
		l, err := lease.Acquire(dir, me, func(o lease.Owner) bool { return o.Process().Gone(self) })
		if err == nil {
			return func() { _ = l.Release() }, nil
		}
		var held *lease.HeldError
		if !errors.As(err, &held) && jobs.KindOf(err) != jobs.KindAgain {
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// become replaces this process by the command (execve(2)).
func become(argv []string) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", program, unix.Exec(program, argv, os.Environ()))
}

// machineMemory is MemTotal of /proc/meminfo.
func machineMemory() jobs.Bytes {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 53)
			if err == nil {
				return jobs.Bytes(n) * jobs.KiB
			}
		}
	}
	return 0
}
