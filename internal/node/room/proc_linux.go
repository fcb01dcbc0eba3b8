package room

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What a place's /proc has of its machine, besides processes. It is covered for
// all, because a container of root's has root's rights on it: the room's /proc has
// none of the covers of the container's.
var (
	hidden = []string{"keys", "key-users", "kcore", "kmsg", "timer_list", "sched_debug", "latency_stats"}
	fixed  = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"}
)

// freshProc gives the room, at a directory, a /proc that shows its own processes.
func freshProc(at string) error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", at, "proc", safe, ""); err != nil {
		err = fmt.Errorf("mount a /proc for the room: %w", err)
		if at := covered(); at != "" && errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: the container's own has a mount over %s, and the kernel would not show what that hides", err, at)
		}
		return err
	}
	for _, name := range hidden {
		name = at + "/" + name
		if _, err := os.Lstat(name); err != nil {
			continue
		}
		if err := unix.Mount("/dev/null", name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	for _, name := range fixed {
		name = at + "/" + name
		if err := unix.Mount(name, name, "", unix.MS_BIND|unix.MS_REC, ""); err == unix.ENOENT {
			continue
		} else if err != nil {
			return fmt.Errorf("bind %s: %w", name, err)
		}
		if err := unix.Mount("", name, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|safe, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", name, err)
		}
	}
	return nil
}

// covered is a place below the container's /proc that something is mounted over.
func covered() string {
	b, _ := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/") {
			return f[4]
		}
	}
	return ""
}
