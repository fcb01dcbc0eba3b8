package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"berth/internal/link/wire"
	"berth/internal/node/room"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// inOwn is the argument of the first process of a room for one command; behind it stand
// the command's words. Its environment is the command's.
const inOwn = "--own"

// ownRoom is a room for one command.
type ownRoom struct {
	options room.Options
	stream  uint32     // of the command
	stay    *room.Stay // nil before it was begun
}

// ownFits remembers what [room.Fits] has found.
var ownFits = sync.OnceValues(room.Fits)

// inOwn turns a request into a program in a room of its own. Whether that is there, is
// seen in the room.
func (c *command) inOwn() (*program, *jobs.Exit) {
	s, m := c.s, c.msg
	if len(m.Argv) == 0 || m.Session != "" || m.TTY != nil || m.Prompt || m.Port != 0 || m.Out != "" || m.In != "" {
		return nil, notStarted(codeCannot, "a room of its own is for a program with arguments, and nothing else")
	}
	if s.conf == nil {
		return nil, c.noRoom(errors.New("commands are not confined here"))
	}
	image, err := ownFits()
	if err == nil {
		err = room.Hides(ownScratch, wire.Strings(m.Own.Binds))
	}
	if err != nil {
		return nil, c.noRoom(err)
	}
	env, err := addEnv(s.place.env, wire.Strings(m.Env))
	if err != nil {
		return nil, notStarted(codeCannot, "%v", err)
	}
	p := &program{path: "/proc/self/exe", argv: wire.Strings(m.Argv), dir: "/"}
	for _, a := range p.argv {
		if strings.ContainsRune(a, 0) {
			return nil, notStarted(codeCannot, "an argument holds a NUL byte")
		}
	}
	dir := string(m.Dir)
	if dir == "" {
		dir = s.place.startDir()
	}
	p.env = setEnv(env, "PWD", dir)
	scratch, err := s.rooms.scratch()
	if err != nil {
		return nil, c.noRoom(err)
	}
	p.own = &ownRoom{stream: c.stream, options: room.Options{
		SameNetwork: s.net.doors == nil && !s.net.bare(), Doors: s.net.doors,
		Own: &room.Own{Scratch: scratch, Image: image, Home: s.place.get("HOME"), Binds: wire.Strings(m.Own.Binds), CPUs: m.Own.CPUs},
	}}
	return p, nil
}

// ownScratch is where rooms have what is written in them.
const ownScratch = "/tmp"

// rooms is the directory of rooms there, made when one is needed.
type rooms struct {
	mu  sync.Mutex
	dir string
}

// scratch makes a directory for what is written in one room.
func (r *rooms) scratch() (dir string, err error) {
	const each = "room-"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != "" {
		dir, err = os.MkdirTemp(r.dir, each)
	}
	if r.dir == "" || errors.Is(err, os.ErrNotExist) { // a command that has no room has the same rights there
		if r.dir, err = os.MkdirTemp(ownScratch, ".berth-rooms-"); err == nil {
			scatter(r.dir)
			dir, err = os.MkdirTemp(r.dir, each)
		}
	}
	return dir, err
}

// remove removes it when there are no rooms.
func (r *rooms) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != "" {
		_ = os.Remove(r.dir)
	}
}

// scatter asks the file system to put what is made in the directories below dir far from each other.
// ext4 does not give the inode of a removed file to a new one for some seconds: each that a
// room makes would be searched for behind all that the rooms before have left. Others refuse.
func scatter(dir string) {
	const topdir = 0x20000 // FS_TOPDIR_FL
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topdir))
	}
}

// noOwn begins the words of who could not have a room.
const noOwn = "make a room for the command"

// noRoom notes, and tells, that the command has no room.
func (c *command) noRoom(err error) *jobs.Exit {
	c.unmade = true
	return notStarted(codeCannot, "%s: %v", noOwn, err)
}

// bare tells whether commands have nothing but a loopback, on which nothing of berth's
// listens.
func (n *network) bare() bool {
	return n.room == nil && len(n.env) == 0 && !n.ports && onlyLoopback()
}

// onlyLoopback tells whether there is no other network device.
func onlyLoopback() bool { return len(devices("/proc/self/net/dev")) == 0 }

// forkProgram starts a program, in its room if it has one.
func (s *server) forkProgram(p *program, attr *syscall.ProcAttr) (pid int, end <-chan reaped, err error) {
	if p.own == nil {
		return s.fork(func() (int, error) { return run.Fork(p.path, p.argv, attr) })
	}
	fork := func(path string, argv []string, a *syscall.ProcAttr) (pid int, err error) {
		pid, end, err = s.fork(func() (int, error) { return run.Fork(path, argv, a) })
		return pid, err
	}
	pid, p.own.stay, err = room.Begin(p.own.options, slices.Concat(s.words, []string{inOwn}, p.argv), attr, fork)
	switch {
	case err == nil:
		s.guard(func() { p.own.stay.Judge(s.net.judge(p.own.stream)) })
	case end != nil:
		<-end
	}
	return pid, end, err
}

// refused explains why a program that was found has not begun.
func (c *command) refused(p *program, err error) jobs.Exit {
	// Its words are arguments of the room's first process.
	if p.own == nil || errors.Is(err, unix.E2BIG) || errors.Is(err, errStopped) {
		return refused(p.argv[0], err)
	}
	return *c.noRoom(err)
}

// ownBegun waits until the command has begun in its room, if it has one, or says why it has not.
func (c *command) ownBegun(o *ownRoom) *jobs.Exit {
	if o == nil {
		return nil
	}
	switch n, err := o.stay.Next(); {
	case err != nil:
		return c.noRoom(fmt.Errorf("its first process was ended: %w", err))
	case n.Trouble != "":
		return c.noRoom(errors.New(n.Trouble))
	case n.Why != "":
		return notStarted(n.Code, "%s", n.Why)
	}
	return nil
}

// ended puts how the command ended in the place of how its room did.
func (o *ownRoom) ended(how *reaped) {
	if o == nil {
		return
	}
	if n, err := o.stay.Next(); err == nil && n.Ended {
		how.status, how.usage.Maxrss = unix.WaitStatus(n.Status), n.MaxRSS
	}
}

// close removes what the command has written to its room.
func (o *ownRoom) close() {
	if o == nil || o.options.Own == nil {
		return
	}
	if o.stay != nil {
		o.stay.Close()
	}
	_ = disk.RemoveTree(o.options.Own.Scratch) // it goes with the container at the latest
	o.options.Own = nil
}

// passedOn are the signals that the first process of a room hands to the command.
var passedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT,
}

// runOwn is the first process of a room for one command. It reaps what loses its parent there,
// and all of the room ends with it.
func runOwn(argv []string) int {
	runtime.LockOSThread() // commands are started by this thread, which has less than the others
	r, code := room.Arrive()
	if r == nil {
		return code
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return codeBroken
	}
	signals := make(chan os.Signal, len(passedOn))
	signal.Notify(signals, passedOn...)
	pid, no := startOwn(r, argv)
	if no != nil {
		_ = r.Tell(room.News{Code: no.Code, Why: no.Error})
		return codeBroken
	}
	if r.Tell(room.News{}) != nil {
		return codeBroken
	}
	go func() {
		for s := range signals {
			_ = unix.Kill(-pid, s.(syscall.Signal))
		}
	}()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		switch got, err := unix.Wait4(-1, &status, 0, &usage); {
		case got == pid:
			_ = r.Tell(room.News{Ended: true, Status: uint32(status), MaxRSS: usage.Maxrss})
			return 0
		case err != nil && err != unix.EINTR:
			return codeBroken
		}
	}
}

// startOwn starts the command in the room.
func startOwn(r *room.Room, argv []string) (pid int, no *jobs.Exit) {
	env := os.Environ()
	dir := getEnv(env, "PWD")
	if err := usableDir(dir); err != nil {
		return 0, notStarted(codeCannot, "working directory %s: %v", dir, reason(err))
	}
	path, no := find(argv[0], getEnv(env, "PATH"), dir)
	if no != nil {
		return 0, no
	}
	if _, err := room.DropCapabilities(r.CommandCapabilities(keptMask())); err != nil {
		return 0, notStarted(codeCannot, "%s: %v", noOwn, fmt.Errorf("take capabilities from commands: %w", err))
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, notStarted(codeCannot, "%s: set NoNewPrivs: %v", noOwn, err)
	}
	syscall.Umask(0o022)
	pid, err := run.Fork(path, argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		e := refused(argv[0], err)
		return 0, &e
	}
	return pid, nil
}
