package queue

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	state, start, ok := parseStat(string(data))
	if !ok {
		return 0, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	if state == 'Z' || state == 'X' {
		return 0, os.ErrProcessDone
	}
	return start, nil
}

// parseStat reads fields 3 and 22 of /proc/PID/stat (proc(5)); the second
// field, the program's name, may hold blanks and parentheses.
func parseStat(stat string) (state byte, start uint64, ok bool) {
	_, rest, found := cutLast(stat, ")")
	f := strings.Fields(rest)
	if !found || len(f) < 20 {
		return 0, 0, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return f[0][0], start, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func processAlive(pid int, started uint64) bool {
	start, err := processStart(pid)
	return err == nil && start == started
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
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
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
