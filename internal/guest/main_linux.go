package guest

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes of the guest itself; a container program passes them on.
const (
	codeQuit   = 0 // it was told to leave
	codeBroken = 1 // the protocol was broken, or a bug
	codeUsage  = 2
	codeClosed = 3 // the stream closed
	codeSilent = 4 // nobody pinged
)

// Main is `berth-node guest`. It speaks the protocol of package wire on stdin
// and stdout until it is told to leave, and returns its exit code.
func Main(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	if len(args) > 0 {
		_, _ = fmt.Fprintf(stderr, "berth guest: unknown argument %q\nusage: berth-node guest\nIt is started by berth inside an environment.\n", args[0])
		return codeUsage
	}
	// What berth keeps is private and is written so; what commands make is
	// theirs, with the modes that programs expect: package managers refuse
	// directories that others cannot enter.
	syscall.Umask(0o022)
	// It shares its memory with the task, and it has little to do.
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	debug.SetGCPercent(50)

	// A task has the guest's user, and could otherwise read the key of the
	// conversation in the guest's memory, or take the streams from its
	// descriptors. An exec undoes it, so that commands are as debuggable as ever.
	// It does not help against CAP_SYS_PTRACE in the guest's user namespace.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		_, _ = fmt.Fprintf(stderr, "berth guest: hide its memory: %v\n", err)
		return codeBroken
	}
	in, out, err := takeStreams(stdin, stdout)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth guest: take the control stream: %v\n", err)
		return codeBroken
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		_, _ = fmt.Fprintf(stderr, "berth guest: become a child subreaper: %v\n", err)
		return codeBroken
	}
	// Its stream and the pings decide on its life, not signals: some schedulers
	// send TERM to every process of a job at once, and then the runner is to
	// end things in order. They are caught and not ignored, because commands
	// would inherit that. SIGPIPE is caught so that a closed stream is an error
	// of a write on any descriptor.
	deaf := make(chan os.Signal, 1)
	signal.Notify(deaf, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU)
	return newServer(in, out, stderr).serve()
}

// takeStreams moves the control stream to descriptors that commands do not
// inherit, and puts /dev/null in its place. All other descriptors that came
// from outside are kept from commands, too: a container program hands the
// host's open files through.
func takeStreams(stdin, stdout *os.File) (in, out *os.File, err error) {
	closeOnExec()
	dup := func(f *os.File) (*os.File, error) {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), f.Name()), nil
	}
	if in, err = dup(stdin); err != nil {
		return nil, nil, err
	}
	if out, err = dup(stdout); err != nil {
		return nil, nil, err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/null: %w", err)
	}
	for _, f := range []*os.File{stdin, stdout} {
		if err := unix.Dup3(null, int(f.Fd()), 0); err != nil {
			return nil, nil, err
		}
	}
	return in, out, unix.Close(null)
}

// closeOnExec marks every descriptor but the three standard ones.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Linux before 5.11 cannot do it at once.
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd > 2 {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		}
	}
}
