package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

const (
	insideName = "berth-room" // argv[0] of the room's first process: no image says it
	outsideFD  = 3            // its stream to the process outside
	doorsFD    = 4            // another one, of a room with doors
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
	// Own gives the room files of its own; nil is those of the process outside.
	Own *Own
	// SameNetwork has the room in the network namespace of the process outside. A room
	// with files of its own has a bare loopback otherwise, or Doors.
	SameNetwork bool
	// Doors are those of a room with files of its own; nil is none.
	Doors *Doors
}

// Room is the room whose first process this one is.
type Room struct {
	Resolvers []netip.Addr // the name servers of /etc/resolv.conf, which are to be answered for
	IPv6      bool         // the kernel has it

	most uint64 // capabilities of the process outside, where the room has all of its ids
}

// letter is what the first process hears of the one outside.
type letter struct {
	Options

	Most uint64
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
		r, code = inside()
		return r, code, nil
	}
	code, err = outside(o)
	return nil, code, err
}

func outside(o Options) (code int, err error) {
	// The kernel ends the room with this thread.
	runtime.LockOSThread()
	pid, stream, err := begin(o, os.Args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{}}, run.Fork, -1)
	if err != nil {
		if pid != 0 {
			wait(pid)
		}
		return 0, err
	}
	word := make([]byte, 4<<10)
	n, err := retry(func() (int, error) { return unix.Read(stream, word) })
	if err != nil || string(word[:max(0, n)]) != ready {
		_ = unix.Close(stream)
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

// Fork starts a program, and returns its number once that runs.
type Fork func(path string, argv []string, a *syscall.ProcAttr) (pid int, err error)

// begin starts this program again with words as the first process of a room, and returns
// this side of the stream to it. The caller waits for a pid that is not 0, also with an error.
// doors is the other side of that of its doors, or -1.
func begin(o Options, words []string, a *syscall.ProcAttr, fork Fork, doors int) (pid, stream int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, -1, fmt.Errorf("make a stream to the room: %w", err)
	}
	ids, most, err := namespaces(o, a.Sys)
	if err == nil {
		a.Files = append(a.Files[:outsideFD:outsideFD], uintptr(pair[1]))
		if doors >= 0 {
			a.Files = append(a.Files, uintptr(doors))
		}
		if pid, err = fork("/proc/self/exe", append([]string{insideName}, words...), a); err != nil {
			pid, err = 0, fmt.Errorf("make the namespaces of a room: %w", err)
		}
	}
	_ = unix.Close(pair[1])
	if err == nil {
		if err = ids.give(pid); err != nil {
			err = fmt.Errorf("give the room its user ids: %w", err)
		}
	}
	if err == nil {
		var b []byte
		if b, err = json.Marshal(letter{o, most}); err == nil {
			_, err = unix.Write(pair[0], b)
		}
	}
	if err != nil {
		_ = unix.Close(pair[0]) // the first process sees it, and ends
		return pid, -1, err
	}
	return pid, pair[0], nil
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

// namespaces adds to how the room's first process is started: with the same ids as this
// one, and all capabilities in the new user namespace. These have to be ambient, or
// the exec of a program by a user other than root would lose them. With all ids, commands
// of root in there may have most of them.
func namespaces(o Options, a *syscall.SysProcAttr) (ids idMaps, most uint64, err error) {
	a.Cloneflags, a.Pdeathsig = unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWNET, syscall.SIGKILL
	if o.SameNetwork {
		a.Cloneflags &^= unix.CLONE_NEWNET
	}
	if o.Own != nil {
		a.Cloneflags |= unix.CLONE_NEWIPC
	}
	if o.SameUser {
		a.Cloneflags &^= unix.CLONE_NEWUSER
		return ids, 0, nil
	}
	for c := range capabilities() {
		a.AmbientCaps = append(a.AmbientCaps, uintptr(c))
	}
	ids.users, ids.groups = fmt.Sprintf("%d %[1]d 1\n", os.Getuid()), fmt.Sprintf("%d %[1]d 1\n", os.Getgid())
	effective, err := effectiveCapabilities()
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if err != nil || effective&needed != needed {
		return ids, 0, err
	}
	// An extent must not cross two of the parent's, so they are the same ones.
	ids.all = true
	if ids.users, err = extents("/proc/self/uid_map"); err != nil {
		return ids, 0, err
	}
	ids.groups, err = extents("/proc/self/gid_map")
	return ids, effective, err
}

// idMaps are the ids of a room, as the kernel takes them.
type idMaps struct {
	users, groups string // "" is that there are none to give
	all           bool   // of a namespace with many
}

// give gives them to the room's first process, which waits for it. That runs the program by
// now: before, the kernel would refuse it to a process that is undumpable, as a guest is.
func (m idMaps) give(pid int) error {
	if m.users == "" {
		return nil
	}
	dir := "/proc/" + strconv.Itoa(pid)
	if !m.all {
		if err := writeFile(dir+"/setgroups", "deny"); err != nil && !errors.Is(err, os.ErrNotExist) { // Linux before 3.19 has none
			return err
		}
	}
	if err := writeFile(dir+"/gid_map", m.groups); err != nil {
		return err
	}
	return writeFile(dir+"/uid_map", m.users)
}

func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// extents reads the ids that a user namespace has, each mapped to itself.
func extents(file string) (all string, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			return "", fmt.Errorf("%s: %q: %w", file, line, err)
		}
		all += fmt.Sprintf("%d %[1]d %d\n", first, size)
	}
	return all, nil
}

// inside is the first process of the room; without a Room it is to end with code.
func inside() (r *Room, code int) {
	r, err := furnished()
	if r == nil {
		return nil, codeUnmade
	}
	word := ready
	if err != nil {
		word = err.Error()
	}
	if tell(word) != nil || err != nil || attend() != nil {
		return nil, codeUnmade
	}
	return r, 0
}

// furnished is the room that the letter of the process outside describes. No room is that there
// was none; an error is for that process.
func furnished() (*Room, error) {
	unix.CloseOnExec(outsideFD)
	b := make([]byte, maxLetter)
	n, err := retry(func() (int, error) { return unix.Read(outsideFD, b) })
	var l letter
	if err != nil || json.Unmarshal(b[:max(0, n)], &l) != nil {
		return nil, errors.New("no word of the process outside")
	}
	if l.Doors != nil {
		unix.CloseOnExec(doorsFD)
	}
	r := &Room{most: l.Most}
	return r, r.furnish(l.Options)
}

// maxLetter bounds a word to the first process or of it.
const maxLetter = 128 << 10

// tell says something to the process outside.
func tell(word string) error {
	_, err := unix.Write(outsideFD, []byte(word))
	return err
}

// attend ends this process with the one outside. The kernel does; where it does not, the
// end of the stream does.
func attend() error {
	if err := unix.SetNonblock(outsideFD, true); err != nil {
		return err
	}
	out := os.NewFile(outsideFD, "outside")
	go func() {
		_, _ = out.Read(make([]byte, 1))
		unix.Exit(codeAlone)
	}()
	return nil
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
	if o.Own != nil {
		if err := o.Own.furnish(!o.SameNetwork); err != nil {
			return err
		}
		switch {
		case o.SameNetwork:
			return nil
		case o.Doors != nil:
			return r.open(o.Doors)
		}
		return loopbackUp()
	}
	if err := freshProc("/proc"); err != nil {
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
	for _, s := range []syscall.Signal{syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS,
		syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS} {
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
