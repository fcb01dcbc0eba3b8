package room

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

const (
	insideName = "berth-room" // argv[0] of the room's first process: no image says it
	outsideFD  = 3            // its stream to the process outside
	ready      = "+"          // what it says there; all else is an error

	codeUnmade = 125 // of a first process that has said why there is no room
	codeAlone  = 124 // of one whose process outside has ended
)

// Options are what a room is made with.
type Options struct {
	Literals []netip.Prefix // addresses of rules: the room has routes to them
	// SameUser has the room in the user namespace of the process outside, which is root
	// there. Programs that ask whose ids they have are told the machine's.
	SameUser bool
}

// Room is the room whose first process this one is.
type Room struct {
	Resolvers []netip.Addr // the name servers of /etc/resolv.conf, which are to be answered for
	IPv6      bool         // the kernel has it

	most uint64 // capabilities of the process outside, where the room has all of its ids
}

// Enter makes a room and starts this program again in it, with the same arguments,
// environment and standard streams. It returns three times:
//
//   - in the room a Room: the program goes on there;
//   - in the process outside, which only waits, the exit code of the room's first
//     process once that has ended, and with it everything in the room;
//   - an error, where no room can be made. Nothing has changed then, and nothing was read
//     from the standard input.
//
// It has to be called by the main goroutine, before the process makes itself
// undumpable: the kernel would refuse the mapping of ids.
func Enter(o Options) (r *Room, code int, err error) {
	if os.Args[0] == insideName && os.Getpid() == 1 {
		r, code = inside(o)
		return r, code, nil
	}
	code, err = outside(o)
	return nil, code, err
}

func outside(o Options) (code int, err error) {
	// The kernel ends the room with this thread.
	runtime.LockOSThread()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make a stream to the room: %w", err)
	}
	attr, most, err := namespaces(o)
	if err == nil {
		_, err = unix.Write(pair[0], binary.NativeEndian.AppendUint64(nil, most))
	}
	if err != nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
		return 0, err
	}
	pid, err := run.Fork("/proc/self/exe", append([]string{insideName}, os.Args[1:]...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2, uintptr(pair[1])}, Sys: attr,
	})
	_ = unix.Close(pair[1])
	if err != nil {
		_ = unix.Close(pair[0])
		return 0, fmt.Errorf("make the namespaces of a room: %w", err)
	}
	word := make([]byte, 4<<10)
	n, err := retry(func() (int, error) { return unix.Read(pair[0], word) })
	if err != nil || string(word[:max(0, n)]) != ready {
		_ = unix.Close(pair[0])
		ended := wait(pid)
		switch {
		case err == nil && n > 0:
			err = errors.New(string(word[:n]))
		case err == nil:
			err = fmt.Errorf("the first process of the room ended with %d", ended)
		}
		return 0, err
	}
	// From now on the streams are the room's: they close when it ends. What ends this
	// process ends the room, and schedulers send TERM to all processes of a job at once.
	deaf()
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
		_ = unix.Close(null)
	}
	return wait(pid), nil
}

// deaf has signals that end a process caught. They are not ignored: commands would
// inherit that.
func deaf() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU, syscall.SIGABRT)
}

// wait returns the exit code of a child, as a shell has it.
func wait(pid int) int {
	var status unix.WaitStatus
	_, err := retry(func() (int, error) { return unix.Wait4(pid, &status, 0, nil) })
	switch {
	case err != nil:
		return codeUnmade
	case status.Signaled():
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// namespaces is how the room's first process is started: with the same ids as this
// one, and all capabilities in the new user namespace. These have to be ambient, or
// the exec of a program by a user other than root would lose them. With all ids, commands
// of root in there may have most of them.
func namespaces(o Options) (a *syscall.SysProcAttr, most uint64, err error) {
	a = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if o.SameUser {
		a.Cloneflags &^= unix.CLONE_NEWUSER
		return a, 0, nil
	}
	for c := range capabilities() {
		a.AmbientCaps = append(a.AmbientCaps, uintptr(c))
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	effective, err := effectiveCapabilities()
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if err != nil || effective&needed != needed {
		return a, 0, err
	}
	// An extent must not cross two of the parent's, so they are the same ones.
	if a.UidMappings, err = extents("/proc/self/uid_map"); err != nil {
		return nil, 0, err
	}
	a.GidMappings, err = extents("/proc/self/gid_map")
	a.GidMappingsEnableSetgroups = true
	return a, effective, err
}

// extents reads the ids that a user namespace has, each mapped to itself.
func extents(file string) (all []syscall.SysProcIDMap, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return all, nil
}

// inside is the first process of the room; without a Room it is to end with code.
func inside(o Options) (r *Room, code int) {
	unix.CloseOnExec(outsideFD)
	r = &Room{}
	var most [8]byte
	n, err := retry(func() (int, error) { return unix.Read(outsideFD, most[:]) })
	if err != nil || n < len(most) {
		return nil, codeUnmade
	}
	r.most = binary.NativeEndian.Uint64(most[:])
	err = r.furnish(o)
	word := ready
	if err != nil {
		word = err.Error()
	}
	if _, failed := unix.Write(outsideFD, []byte(word)); err != nil || failed != nil {
		return nil, codeUnmade
	}
	// The kernel ends this process with the one outside; where it does not, the end
	// of the stream does.
	if err := unix.SetNonblock(outsideFD, true); err != nil {
		return nil, codeUnmade
	}
	out := os.NewFile(outsideFD, "outside")
	go func() {
		_, _ = out.Read(make([]byte, 1))
		unix.Exit(codeAlone)
	}()
	return r, 0
}

// furnish makes a room of fresh namespaces.
func (r *Room) furnish(o Options) (err error) {
	deaf()
	if err := ignoreFaults(); err != nil {
		return fmt.Errorf("keep signals from the room's first process: %w", err)
	}
	if err := keepAmbient(); err != nil {
		return fmt.Errorf("keep capabilities from commands: %w", err)
	}
	if err := freshProc(); err != nil {
		return err
	}
	if r.Resolvers, err = resolvers(); err != nil {
		return err
	}
	return r.connect(o.Literals)
}

// ignoreFaults has the kernel drop the signals of faults which a command sends: for
// those Go has handlers, which end the program where the signal says that
// kill(2) has not sent it, and a first process of a PID namespace is spared only
// what it has no handler for. A fault of its own still ends it.
func ignoreFaults() error {
	var byDefault [4]uint64 // struct sigaction, SIG_DFL
	for _, s := range []syscall.Signal{syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS} {
		if _, _, errno := unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0); errno != 0 {
			return errno
		}
	}
	return nil
}

// keepAmbient keeps the capabilities of this process from what it starts, but for
// root's: these come with each exec, see [DropCapabilities].
func keepAmbient() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if errno == syscall.ENOTSUP { // a program with cgo, as tests are: this thread alone
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
