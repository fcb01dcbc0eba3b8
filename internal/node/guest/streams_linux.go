package guest

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// streams are the two sides of a command's standard streams.
type streams struct {
	child []*os.File // what the command gets
	ours  []*os.File // where its output comes: one where that is one stream, else two
}

// streams makes the command's standard streams.
func (c *command) streams(stdin *input) (*streams, error) {
	if c.msg.TTY != nil {
		return c.openTerminal(stdin)
	}
	outR, outW, err := pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if c.msg.Merge {
		return &streams{child: []*os.File{stdin.child, outW, outW}, ours: []*os.File{outR}}, nil
	}
	errR, errW, err := pipe()
	if err != nil {
		closeAll([]*os.File{outR, outW})
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return &streams{child: []*os.File{stdin.child, outW, errW}, ours: []*os.File{outR, errR}}, nil
}

// openTerminal makes a terminal the command's standard streams.
func (c *command) openTerminal(stdin *input) (*streams, error) {
	ours, theirs, err := terminal()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	stdin.terminal(ours)
	c.mu.Lock()
	c.terminal = ours
	c.mu.Unlock()
	c.resize(*c.msg.TTY)
	return &streams{child: []*os.File{theirs, theirs, theirs}, ours: []*os.File{ours}}, nil
}

// terminal opens a pair of pseudo-terminals, see pty(7). The guest's side can
// be polled, so that a read of it can be given up: a process that a command has
// left behind may hold the other side for ever. Not by creack/pty: it opens the
// other side by its path.
func terminal() (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	// By the pair itself where the kernel can (4.13): the directory of
	// terminals may be another one's in a container.
	other, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		slave := -1
		if err == nil {
			slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			_ = unix.Close(fd)
			return nil, nil, err
		}
		other = uintptr(slave)
	}
	return os.NewFile(uintptr(fd), "terminal"), os.NewFile(other, "terminal"), nil
}

// resize gives the command's terminal a size, of which the kernel tells the
// command; without one it is taken for 24 by 80.
func (c *command) resize(size wire.Size) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal == nil || c.over {
		return
	}
	fit := func(n, usual int) uint16 {
		if n <= 0 {
			return uint16(usual)
		}
		return uint16(min(n, 1<<16-1))
	}
	rc, err := c.terminal.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: fit(size.Rows, 24), Col: fit(size.Cols, 80)})
	})
}

// withTerm sets TERM for a command that has a terminal.
func withTerm(env []string) []string {
	if t := getEnv(env, "TERM"); t == "" || strings.ContainsRune(t, 0) {
		return setEnv(env, "TERM", "xterm-256color")
	}
	return env
}

// pipe returns a pipe whose read end can be polled and whose write end blocks,
// as programs expect of their output.
func pipe() (r, w *os.File, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fd[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd[0]), "pipe"), os.NewFile(uintptr(fd[1]), "pipe"), nil
}
