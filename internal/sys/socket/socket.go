package socket

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener is a listening unix socket.
type Listener struct {
	f    *os.File
	path string
	dev  uint64
	ino  uint64
}

// Listen makes the socket at path. One that stands there is replaced: the
// caller holds a lease or a lock that says that it is a dead process's. It
// appears under its name only when it listens.
func Listen(path string) (*Listener, error) {
	fd, err := open()
	if err != nil {
		return nil, err
	}
	tmp := path + ".new"
	_ = os.Remove(tmp)
	err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: tmp}))
	if err == nil {
		err = os.Chmod(tmp, 0o600)
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, 128))
	}
	var st unix.Stat_t
	if err == nil {
		err = os.NewSyscallError("stat", unix.Stat(tmp, &st))
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		_ = unix.Close(fd)
		return nil, err
	}
	return &Listener{f: os.NewFile(uintptr(fd), path), path: path, dev: uint64(st.Dev), ino: st.Ino}, nil //nolint:unconvert // int32 on darwin
}

// Path is where it was made.
func (l *Listener) Path() string { return l.path }

// Close ends the listening; the name stays.
func (l *Listener) Close() error { return l.f.Close() }

// Accept waits for a client of this user. Others are turned away.
func (l *Listener) Accept() (*os.File, error) {
	rc, err := l.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		nfd, aerr := -1, error(nil)
		err := rc.Read(func(fd uintptr) bool {
			nfd, aerr = acceptNow(int(fd))
			return !errors.Is(aerr, unix.EAGAIN)
		})
		if err != nil {
			return nil, err
		}
		if f, again, err := admit(nfd, aerr); !again {
			return f, err
		}
	}
}

// Waiting returns one of the clients that wait at the moment, or nil.
func (l *Listener) Waiting() (f *os.File) {
	rc, err := l.f.SyscallConn()
	if err != nil {
		return nil
	}
	for {
		again := false
		if rc.Control(func(fd uintptr) {
			nfd, err := acceptNow(int(fd))
			f, again, _ = admit(nfd, err)
		}) != nil || !again {
			return f
		}
	}
}

// admit makes a file of what was accepted; again means to go on.
func admit(fd int, err error) (f *os.File, again bool, _ error) {
	switch {
	case errors.Is(err, unix.ECONNABORTED):
		return nil, true, nil
	case err != nil:
		return nil, false, os.NewSyscallError("accept", err)
	case !ownPeer(fd):
		_ = unix.Close(fd)
		return nil, true, nil
	}
	return os.NewFile(uintptr(fd), "client"), false, nil
}

// ownPeer tells whether the other side runs as this user.
func ownPeer(fd int) bool {
	uid, err := peer(fd)
	return err == nil && uid == os.Getuid()
}

// Stands tells whether the socket has its name, or another process has taken
// the name. One that cannot be looked at is taken to stand.
func (l *Listener) Stands() bool {
	var st unix.Stat_t
	return !errors.Is(unix.Lstat(l.path, &st), unix.ENOENT)
}

// Remove takes the name away, unless it is another process's by now.
func (l *Listener) Remove() {
	var st unix.Stat_t
	if unix.Lstat(l.path, &st) == nil && uint64(st.Dev) == l.dev && st.Ino == l.ino { //nolint:unconvert // int32 on darwin
		_ = os.Remove(l.path)
	}
}

// Dial connects to a socket, which must be in a private directory and be
// listened to by this user.
func Dial(ctx context.Context, path string) (*os.File, error) {
	if !Own(filepath.Dir(path), true) {
		return nil, os.ErrPermission
	}
	fd, err := open()
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		// Of a unix socket, EAGAIN is a full backlog (connect(2)).
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
		select {
		case <-ctx.Done():
			_ = unix.Close(fd)
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	if err == nil && !ownPeer(fd) {
		err = unix.EACCES
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ShutRead lets the other side write no more; what it has written can still be
// read.
func ShutRead(f *os.File) { shut(f, syscall.SHUT_RD) }

// ShutWrite tells the other side that nothing more comes; it can still answer.
func ShutWrite(f *os.File) { shut(f, syscall.SHUT_WR) }

func shut(f *os.File, how int) {
	if rc, err := f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), how) })
	}
}
