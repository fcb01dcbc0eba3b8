package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signals is called before anything else: from now on no signal kills the process,
// and its files are its user's alone. Those that matter come on the channel. The
// others do not: SIGCONT, which a scheduler sends before TERM; SIGHUP, since there is
// no terminal that could hang up; SIGPIPE, since who reads the output may leave.
func Signals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGCONT)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR2)
	syscall.Umask(0o077)
	return signals
}

// Asks reports whether a signal asks for the end.
func Asks(sig os.Signal) bool { return sig == syscall.SIGTERM || sig == syscall.SIGINT }

// Unshielded has a command run that leaves a process behind which is no part of the
// container: the job of a queue on this machine, which goes on when this process ends
// what is below it. Meanwhile orphans go to init. What runs in a PID namespace has an
// init of its own, and is not let out.
func Unshielded(do func() error) error {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }()
	return do()
}

// Shield makes this process the parent of the container's orphans, so that they can
// be found and ended; else they would go to init, out of reach. And no other process
// reads its memory: without a container, commands are processes of the same user,
// and could read the key of the conversation with the guest, or secrets, from here.
func Shield() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
