package guest

import "os"

// initialPIDNamespace is what the host's own PID namespace is called on every
// machine (PROC_PID_INIT_INO of the kernel's proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// ownPIDNamespace tells whether everything in the guest's PID namespace but
// its init may be killed: client is the client's namespace, and the client has
// said that the guest has one of its own. It is checked, because a mistake
// would kill all that the user runs on the machine: the namespace must be
// neither the client's nor the host's, its init must be an ancestor of the
// guest (not so after nsenter or docker exec), and /proc must show it.
func ownPIDNamespace(client string) bool {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || client == "" || ns == client || ns == initialPIDNamespace {
		return false
	}
	if init, err := os.Readlink("/proc/1/ns/pid"); err != nil || init != ns {
		return false
	}
	for pid := os.Getpid(); pid != 1; {
		p, ok := readProc(pid)
		if !ok || p.ppid == 0 || p.ppid == pid {
			return false
		}
		pid = p.ppid
	}
	return true
}
