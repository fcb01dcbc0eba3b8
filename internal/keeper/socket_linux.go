package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The sockets are made by hand: package net would add its resolver, and a MiB,
// to a program that stays in memory.

// listener is a listening unix socket.
type listener struct {
	f    *os.File
	path string
	dev  uint64
	ino  uint64
}

// listen makes the socket at path. One that stands there is replaced: the
// caller holds the environment's lease, so it is a dead keeper's. It appears
// under its name only when it listens.
func listen(path string) (*listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
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
	return &listener{f: os.NewFile(uintptr(fd), path), path: path, dev: st.Dev, ino: st.Ino}, nil
}

// accept waits for a client of this user. Others are turned away.
func (l *listener) accept() (*os.File, error) {
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

// waiting returns one of the clients that wait at the moment, or nil.
func (l *listener) waiting() (f *os.File) {
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

func acceptNow(fd int) (int, error) {
	for {
		nfd, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return nfd, err
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
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(c.Uid) == os.Getuid()
}

// stands tells whether the socket has its name, or the name is somebody else's
// by now. One that cannot be looked at is taken to stand.
func (l *listener) stands() bool {
	var st unix.Stat_t
	return !errors.Is(unix.Lstat(l.path, &st), unix.ENOENT)
}

// remove takes the name away, unless it is another keeper's by now.
func (l *listener) remove() {
	var st unix.Stat_t
	if unix.Lstat(l.path, &st) == nil && st.Dev == l.dev && st.Ino == l.ino {
		_ = os.Remove(l.path)
	}
}

// dial connects to a keeper's socket, which must be in a private directory and
// be listened to by this user.
func dial(ctx context.Context, path string) (*os.File, error) {
	if !ownDir(filepath.Dir(path), true) {
		return nil, os.ErrPermission
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
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

// shutRead lets the other side write no more; what it has written can still be
// read.
func shutRead(f *os.File) {
	if rc, err := f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), syscall.SHUT_RD) })
	}
}
