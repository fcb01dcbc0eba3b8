package door

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/node/room"

	"golang.org/x/sys/unix"
)

const (
	maxConns   = 1000 // at once; more wait to be taken
	backlog    = 128
	beginTime  = 30 * time.Second // until a program has said what it wants
	lingerTime = time.Second      // that a program may take to read why it is refused
)

// Door is a proxy on the loopback.
type Door struct {
	port      uint16
	listeners []*os.File
	free      chan struct{} // has an element for each connection
	beginTime time.Duration

	closing sync.Once
	closed  chan struct{}
	mu      sync.Mutex
	conns   map[*conn]bool
	running sync.WaitGroup
}

// Listen makes a door, on a port that nothing else has. Connections wait until it
// is served.
func Listen() (*Door, error) {
	d := &Door{free: make(chan struct{}, maxConns), beginTime: beginTime, closed: make(chan struct{}), conns: map[*conn]bool{}}
	for range 16 { // the port may be taken in the other version
		four, port, err := listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
		if err != nil {
			return nil, fmt.Errorf("listen on the loopback: %w", err)
		}
		six, _, err := listen(netip.AddrPortFrom(netip.IPv6Loopback(), port))
		if errors.Is(err, unix.EADDRINUSE) {
			_ = four.Close()
			continue
		}
		d.port, d.listeners = port, []*os.File{four}
		if err == nil { // else there is no IPv6
			d.listeners = append(d.listeners, six)
		}
		return d, nil
	}
	return nil, fmt.Errorf("listen on the loopback: %w", unix.EADDRINUSE)
}

func listen(at netip.AddrPort) (*os.File, uint16, error) {
	fd, err := room.Bind(at, unix.SOCK_STREAM)
	if err != nil {
		return nil, 0, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		_ = unix.Close(fd)
		return nil, 0, err
	}
	port := at.Port()
	if name, err := unix.Getsockname(fd); err == nil {
		if four, ok := name.(*unix.SockaddrInet4); ok {
			port = uint16(four.Port)
		}
	}
	return os.NewFile(uintptr(fd), "proxy door"), port, nil
}

// Addr is where the door is, over IPv4.
func (d *Door) Addr() string { return "127.0.0.1:" + strconv.Itoa(int(d.port)) }

// AddrVar is the variable with the address of the door.
const AddrVar = "BERTH_PROXY"

// Env are the variables by which programs find the door. Where there is a transparent
// door, ssh needs none.
//
// all_proxy is HTTP, too: with SOCKS there, Python's HTTP libraries end with an error where
// their part for SOCKS is not installed. What a JVM could be told, in
// JAVA_TOOL_OPTIONS, it says on each program's standard error, and that breaks programs.
func (d *Door) Env(transparent bool) []string {
	url := "http://" + d.Addr()
	env := []string{AddrVar + "=" + d.Addr(), "NODE_USE_ENV_PROXY=1", "CARGO_HTTP_PROXY=" + url, "YARN_HTTP_PROXY=" + url, "YARN_HTTPS_PROXY=" + url}
	for _, v := range [][2]string{{"http_proxy", url}, {"https_proxy", url}, {"all_proxy", url}, {"no_proxy", "localhost,127.0.0.1,::1"}} {
		env = append(env, v[0]+"="+v[1], strings.ToUpper(v[0])+"="+v[1])
	}
	if self := program(); self != "" && !transparent {
		env = append(env, "GIT_SSH_COMMAND=ssh -o 'ProxyCommand="+self+" dial %h %p'")
	}
	return env
}

// program is the path of this program where commands can run it, and no shell
// could read anything else in it.
func program() string {
	self, err := os.Executable()
	odd := func(r rune) bool { return r != '/' && !isPlain(string(r)) }
	if err != nil || strings.ContainsFunc(self, odd) || unix.Access(self, unix.X_OK) != nil {
		return ""
	}
	return self
}

// Serve takes connections until the door is closed, and returns when all have ended.
// Each is given to flow, in a goroutine of its own, once the program has said what it
// wants.
func (d *Door) Serve(flow func(Request, Conn)) {
	var accepting sync.WaitGroup
	for _, l := range d.listeners {
		accepting.Go(func() { d.accept(l, flow) })
	}
	accepting.Wait()
	d.running.Wait()
}

// Close ends the door and its connections.
func (d *Door) Close() {
	d.closing.Do(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(d.closed)
		for _, l := range d.listeners {
			_ = l.Close()
		}
		for c := range d.conns {
			_ = c.sock.Close()
		}
	})
}

func (d *Door) accept(l *os.File, flow func(Request, Conn)) {
	raw, err := l.SyscallConn()
	if err != nil {
		return
	}
	for {
		select {
		case d.free <- struct{}{}:
		case <-d.closed:
			return
		}
		fd := -1
		ended := raw.Read(func(s uintptr) bool {
			fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(err, unix.EAGAIN)
		})
		if ended != nil {
			<-d.free
			return
		}
		if err != nil {
			<-d.free
			if !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EINTR) { // there are no descriptors
				time.Sleep(5 * time.Millisecond)
			}
			continue
		}
		d.take(&conn{sock: &room.Conn{File: os.NewFile(uintptr(fd), "connection")}}, flow)
	}
}

// take serves a connection, unless the door is closed.
func (d *Door) take(c *conn, flow func(Request, Conn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
		_ = c.sock.Close()
		<-d.free
		return
	default:
	}
	d.conns[c] = true
	d.running.Go(func() {
		defer func() {
			d.mu.Lock()
			delete(d.conns, c)
			d.mu.Unlock()
			<-d.free
		}()
		defer c.end()
		_ = c.sock.SetReadDeadline(time.Now().Add(d.beginTime))
		r, ok := c.open()
		if !ok {
			return
		}
		_ = c.sock.SetReadDeadline(time.Time{})
		flow(r, c)
	})
}
