package container

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"berth/internal/sys/socket"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// peer is who listens on a socket, as this machine numbers users: inside of a
// user namespace root and strangers look alike.
type peer struct {
	uid   int
	apart bool // it is in a user namespace other than this process's
}

// listeners connects to a socket of each kind and asks the kernel who listens
// there. The connections are closed at once.
func listeners(name string) (all []peer) {
	if name == "" {
		return nil
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		if socket.Connect(fd, name) == nil {
			if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				own, _ := os.Readlink("/proc/self/ns/user")
				theirs, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(int(cred.Pid)), "ns/user"))
				all = append(all, peer{uid: int(cred.Uid), apart: cred.Pid > 0 && err == nil && theirs != own})
			}
		}
		_ = unix.Close(fd)
	}
	return all
}

// stranger tells whether what listens can do nothing for this user, and is no
// daemon of the machine's.
func (p peer) stranger(s jobs.Socket) bool {
	switch {
	case p.uid == os.Getuid():
		// A task of the user's own can take any abstract name, and is in a user
		// namespace of its own; so is a container daemon without root, but that
		// has a path.
		return s.Abstract() && p.apart
	case s.Own:
		return true
	}
	return !isDaemon(p.uid)
}

// isDaemon tells whether a user is root or a daemon's: by the number (SYS_UID_MAX
// of login.defs), by the names that sites give Slurm's, or because the number says
// nothing here.
func isDaemon(uid int) bool {
	const systemMax, overflow = 999, 65534
	if uid <= systemMax || uid == overflow {
		return true
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	return err == nil && (u.Username == "slurm" || u.Username == "munge")
}
