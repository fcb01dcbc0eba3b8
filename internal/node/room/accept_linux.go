package room

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is how many connections to an address wait to be taken.
const backlog = 128

// Conn is a connection of a command's. The name is that whose address it was made
// to; the address is a literal one otherwise.
type Conn struct {
	*os.File
	Name string
	Addr netip.Addr
	Port uint16
	Door string // the name of the port that it was made to, of [Doors]; "" is none of these
}

// CloseWrite tells the other side that no more comes; reading goes on.
func (c *Conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }); failed != nil {
		return failed
	}
	return err
}

// Descriptor is its number in this process, as long as it is open.
func (c *Conn) Descriptor() (number int) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { number = int(fd) })
	}
	return number
}

// acceptor takes the connections of all listeners in one goroutine: a name has
// some, and a room thousands of names.
type acceptor struct {
	poll *os.File // of the kernel: says which listeners have a connection

	mu   sync.Mutex
	by   map[int32]listener // by descriptor
	most int                // of by
}

type listener struct {
	name string
	free chan struct{} // has an element for each connection that is open
	take func(*Conn)
}

func newAcceptor() (*acceptor, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime waits for it
		_ = unix.Close(fd)
		return nil, err
	}
	a := &acceptor{poll: os.NewFile(uintptr(fd), "listeners"), by: map[int32]listener{}, most: 20_000}
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		a.most = int(min(uint64(a.most), l.Cur/2)) // the rest is for connections and files
	}
	go a.run()
	return a, nil
}

// maxLoopback bounds the connections to one port of [Loopback] at once.
const maxLoopback = 256

// Loopback takes connections to n ports of the loopback that nothing else has. It needs
// no room. take has each connection, with the number of its port, until it returns.
func Loopback(n int, take func(i int, c *Conn)) (ports []uint16, err error) {
	a, err := newAcceptor()
	if err != nil {
		return nil, err
	}
	for i := range n {
		port, err := a.open(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0),
			listener{free: make(chan struct{}, maxLoopback), take: func(c *Conn) { take(i, c) }})
		if err != nil {
			return nil, fmt.Errorf("listen on the loopback: %w", err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// listen begins to take connections to an address, of which at most cap(free) are
// open at once.
func (a *acceptor) listen(to netip.AddrPort, l listener) error {
	_, err := a.open(to, l)
	return err
}

// open is listen that tells the port, which the kernel chooses where it is 0.
func (a *acceptor) open(to netip.AddrPort, l listener) (port uint16, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.by) >= a.most {
		return 0, unix.EMFILE
	}
	fd, err := Bind(to, unix.SOCK_STREAM)
	if err != nil {
		return 0, err
	}
	conn, err := a.poll.SyscallConn()
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil {
		failed := conn.Control(func(poll uintptr) {
			err = unix.EpollCtl(int(poll), unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		})
		if err == nil {
			err = failed
		}
	}
	if err == nil {
		port, err = portOf(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	a.by[int32(fd)] = l
	return port, nil
}

func portOf(fd int) (uint16, error) {
	at, err := unix.Getsockname(fd)
	switch s := at.(type) {
	case *unix.SockaddrInet4:
		return uint16(s.Port), err
	case *unix.SockaddrInet6:
		return uint16(s.Port), err
	}
	return 0, err
}

// Bind makes a socket, which commands do not inherit, with an address of the room.
func Bind(to netip.AddrPort, kind int) (fd int, err error) {
	family, addr := unix.AF_INET, unix.Sockaddr(nil)
	if to.Addr().Is4() {
		addr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		family, addr = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		if err == nil { // a local route does not make an address of this version one to bind to
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		}
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// run takes connections for ever.
func (a *acceptor) run() {
	conn, err := a.poll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := conn.Read(func(poll uintptr) bool {
			n, _ = retry(func() (int, error) { return unix.EpollWait(int(poll), events, 0) })
			return n != 0
		})
		if err != nil || n < 0 {
			return
		}
		waits := true
		for _, e := range events[:n] {
			if a.accept(e.Fd) {
				waits = false
			}
		}
		if waits { // all of them have as many as they may, or there are no descriptors
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// accept takes one connection, if another one may be open.
func (a *acceptor) accept(fd int32) bool {
	a.mu.Lock()
	l := a.by[fd]
	a.mu.Unlock()
	select {
	case l.free <- struct{}{}:
	default:
		return false
	}
	got, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		<-l.free
		return err == unix.ECONNABORTED || err == unix.EAGAIN || err == unix.EINTR
	}
	// What it was made to, and not what the listener has: that may have all addresses.
	to, _ := unix.Getsockname(got)
	c := &Conn{File: os.NewFile(uintptr(got), "connection"), Name: l.name}
	switch s := to.(type) {
	case *unix.SockaddrInet4:
		c.Addr, c.Port = netip.AddrFrom4(s.Addr), uint16(s.Port)
	case *unix.SockaddrInet6:
		c.Addr, c.Port = netip.AddrFrom16(s.Addr), uint16(s.Port)
	}
	go func() {
		defer func() { <-l.free }()
		defer c.Close()
		l.take(c)
	}()
	return true
}
