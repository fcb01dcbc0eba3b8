package guest

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"berth/internal/link/ttystream"
	"berth/internal/node/room"
	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// Exit codes of the guest itself; a container program passes them on.
const (
	codeQuit   = 0 // it was told to leave
	codeBroken = 1 // the protocol was broken, or a bug
	codeUsage  = 2
	codeClosed = 3 // the stream closed
	codeSilent = 4 // no ping came
)

// Joined is the argument of a guest that comes into a place which another guest
// holds, see [Main].
const Joined = "--joined"

// Locked is the argument of a guest that holds a shared lock on its own program
// as long as it lives. Who has put the program there sees by it that the guest
// has left, whatever else is said of its container.
const Locked = "--locked"

// Terminal is the argument of a guest whose standard streams are a terminal, over
// which it is to make an exact stream first, see package ttystream; after it stands
// the nonce.
const Terminal = "--terminal"

// InRoom is an argument before the others: the guest makes a room, see package room,
// and serves in it; where it can make none, it serves where it is, and says so.
const InRoom = "--room"

// InRoomOfRoot is the same in the user namespace of this process, which is root there, see
// [room.Options].
const InRoomOfRoot = "--room-of-root"

// Main is `berth-node guest [--room] [--joined|--locked|--terminal NONCE]`. It speaks the protocol of package
// wire on stdin and stdout until it is told to leave, and returns its exit code.
//
// A guest with --joined is a visitor: most of what it sees is not its own, and
// must not notice it. It signals and ends only what descends from itself; all of
// that ends with it.
func Main(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	if len(args) == 1 && args[0] == environ {
		return sendEnviron(stdout)
	}
	if len(args) > 1 && args[0] == inOwn {
		return runOwn(args[1:])
	}
	words := os.Args[1:max(1, len(os.Args)-len(args))]
	ofRoot := len(args) > 0 && args[0] == InRoomOfRoot
	inRoom := ofRoot || len(args) > 0 && args[0] == InRoom
	if inRoom {
		args = args[1:]
	}
	joined := len(args) == 1 && args[0] == Joined
	locked := len(args) == 1 && args[0] == Locked
	terminal := len(args) == 2 && args[0] == Terminal
	if len(args) > 0 && !joined && !locked && !terminal {
		_, _ = fmt.Fprintf(stderr, "berth guest: unknown argument %q\n"+
			"usage: berth-node guest [--room] [--joined|--locked|--terminal NONCE]\n"+
			"It is started by berth inside an environment.\n", args[0])
		return codeUsage
	}
	var own *room.Room
	var noRoom error
	if inRoom {
		var code int
		if own, code, noRoom = enterRoom(ofRoot); noRoom == nil && own == nil {
			return code
		}
	}
	// What berth keeps is private and is written so; what commands make is
	// theirs, with the modes that programs expect: package managers refuse
	// directories that others cannot enter.
	syscall.Umask(0o022)
	noCore()
	// It shares its memory with the task, and it has little to do. A second thread would
	// wake up with every frame and every end of a stream, just when the command wants the
	// processors.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	run.MakeThreads()

	// A task has the guest's user, and could otherwise read the key of the
	// conversation in the guest's memory, or take the streams from its
	// descriptors. An exec undoes it, so that commands are as debuggable as ever.
	// It does not help against CAP_SYS_PTRACE in the guest's user namespace.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		_, _ = fmt.Fprintf(stderr, "berth guest: hide its memory: %v\n", err)
		return codeBroken
	}
	if joined {
		closeInherited()
	}
	if locked {
		lockProgram()
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
	if terminal {
		return serveTerminal(in, out, stderr, args[1])
	}
	s := newServer(in, out, stderr)
	s.joined, s.words = joined, words
	s.net.room, s.net.noRoom = own, noRoom
	return s.serve()
}

// serveTerminal is the guest on a terminal, which signals must not reach it from:
// they are caught already.
func serveTerminal(in, out *os.File, stderr io.Writer, nonce string) int {
	link, err := ttystream.Inside(in, out, nonce)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth guest: %v\n", err)
		return codeBroken
	}
	// What Go writes when it dies would end up in the midst of a frame.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 2, 0)
		_ = unix.Close(null)
	}
	code := newServer(link, link, link.People()).serve()
	_ = link.CloseWrite()
	return code
}

// noCore keeps the memory of commands, and so what was passed to them, out of the
// host's core dumps: where the kernel hands those to a program of the host, that
// reads this limit (core(5), systemd-coredump(8)). A command may raise it.
func noCore() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &l) == nil {
		l.Cur = 0
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &l)
	}
}

// lockProgram takes the lock of [Locked], which ends with the process. Where there
// are no locks, no process can look at it either.
func lockProgram() {
	if fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	}
}

// closeInherited closes all descriptors but the standard ones that this process
// was started with: its own program is among them. What it has opened by itself
// is marked to be closed by an exec, which nothing can be that came through one.
func closeInherited() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
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
