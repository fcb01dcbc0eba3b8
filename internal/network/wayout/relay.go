package wayout

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"berth/internal/link/trunk"
	"berth/internal/link/wire"
	"berth/internal/network/judge"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// Times of the supervisor's side.
const (
	waitTime  = 30 * time.Second // of look-ups and connections for a relay
	greetTime = 10 * time.Second // for a relay to say who it is
	interval  = 4 * time.Second  // of pings
	lookTime  = time.Minute      // between looks at the socket's name
)

// maxGreeting bounds who may be about to say who they are.
const maxGreeting = 8

// noRelay is the error while there is none.
type noRelay struct{}

func (noRelay) Error() string { return "no relay: run berth network relay start on the login node" }

// Is has a judge take it for one that may be over later.
func (noRelay) Is(target error) bool { return target == judge.ErrNoWay }

// A Relay is the way by a process on another machine, which comes to this one. It is safe
// for concurrent use.
type Relay struct {
	dir, secret string
	path        string
	self        lease.Process
	wait        time.Duration
	interval    time.Duration

	mu       sync.Mutex
	listener *socket.Listener
	now      *relayLink    // nil while there is none
	changed  chan struct{} // closed when now is another one
	closed   bool
	done     chan struct{} // closed by Close

	recording sync.Mutex
	working   sync.WaitGroup
	greeting  chan struct{}
}

// relayLink is a relay that is there.
type relayLink struct {
	*link
	said welcome
}

// Listen makes the way of the attempt or environment in dir. Its caller is its only supervisor.
func Listen(dir string) (*Relay, error) { return listen(dir, interval) }

func listen(dir string, interval time.Duration) (*Relay, error) {
	at, err := socket.Dir()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		dir: dir, secret: rand.Text(), path: filepath.Join(at, socket.Name("way", filepath.Base(dir), dir)),
		self: lease.Self(), wait: waitTime, interval: interval,
		changed: make(chan struct{}), done: make(chan struct{}), greeting: make(chan struct{}, maxGreeting),
	}
	if r.listener, err = socket.Listen(r.path); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "listen for a relay in " + at, Err: err}
	}
	if err := r.record(); err != nil {
		_ = r.listener.Close()
		r.listener.Remove()
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record where a relay is to come to", Err: err, Hint: "is there space left? df -h " + dir}
	}
	r.working.Go(func() { r.accept(r.listener) })
	r.working.Go(r.look)
	return r, nil
}

// record writes which relay is there.
func (r *Relay) record() error {
	r.recording.Lock()
	defer r.recording.Unlock()
	r.mu.Lock()
	now, closed := r.now, r.closed
	r.mu.Unlock()
	if closed {
		return nil
	}
	s := State{Version: version, Process: r.self, Socket: r.path, Secret: r.secret, Since: time.Now().UTC()}
	if now != nil {
		s.Relay = &now.said.RelayProcess
	}
	return s.write(r.dir)
}

// Close ends all connections.
func (r *Relay) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	close(r.done)
	l, now := r.listener, r.now
	r.mu.Unlock()
	_ = l.Close()
	l.Remove()
	if now != nil {
		now.Fail(io.EOF)
	}
	r.working.Wait()
	(&State{Secret: r.secret}).remove(r.dir)
	return nil
}

// look makes the socket again when its name is gone: what cleans /tmp takes it after a while.
func (r *Relay) look() {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if !r.closed && !r.listener.Stands() {
			if dir, err := socket.Dir(); err == nil && dir == filepath.Dir(r.path) {
				if l, err := socket.Listen(r.path); err == nil {
					_ = r.listener.Close()
					r.listener = l
					r.working.Go(func() { r.accept(l) })
				}
			}
		}
		r.mu.Unlock()
	}
}

// accept takes relays until the listener is closed.
func (r *Relay) accept(l *socket.Listener) {
	for {
		f, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case r.greeting <- struct{}{}:
		case <-r.done:
			_ = f.Close()
			return
		}
		r.working.Go(func() {
			now, err := r.greet(f)
			<-r.greeting
			if err != nil {
				_ = f.Close()
				return
			}
			r.serve(now)
		})
	}
}

// greet finds out who has come. An error is that it is not to be the relay.
func (r *Relay) greet(f *os.File) (*relayLink, error) {
	_ = f.SetDeadline(time.Now().Add(greetTime))
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-r.done:
			_ = f.SetDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	if err := proveSecond(f, r.secret); err != nil {
		return nil, err
	}
	taken := r.another()
	if _, err := f.WriteString(taken + "\n"); err != nil || taken != "" {
		return nil, errors.Join(err, errors.New(taken))
	}
	in, out := wire.NewReader(f), wire.NewWriter(f)
	now := &relayLink{}
	if _, err := wire.Hail(in, out, supervisorMagic, relayMagic, hello{Version: version, Widens: true, Interval: r.interval}, &now.said); err != nil {
		return nil, err
	}
	if now.said.Version != version {
		return nil, fmt.Errorf("a relay of version %d", now.said.Version)
	}
	_ = f.SetDeadline(time.Time{})
	now.link = trunk.New[request, answer](in, out, nil, func() { _ = f.Close() })
	if now.said.Widens {
		now.Widen(maxGrowth)
	}
	return now, nil
}

// another says why a second relay is not taken: the first is there, and is heard.
func (r *Relay) another() string {
	r.mu.Lock()
	now := r.now
	r.mu.Unlock()
	if now == nil {
		return ""
	}
	before := now.Heard()
	t := time.NewTimer(r.interval * 3 / 2)
	defer t.Stop()
	select {
	case <-now.Gone():
		return ""
	case <-t.C:
	case <-r.done:
	}
	if now.Heard() == before {
		now.Fail(trunk.ErrSilent)
		<-now.Gone()
		return ""
	}
	return fmt.Sprintf("there is a relay: process %d on %s", now.said.PID, now.said.Host)
}

// serve has a relay be the one, until it is gone.
func (r *Relay) serve(now *relayLink) {
	r.mu.Lock()
	if r.closed || r.now != nil {
		r.mu.Unlock()
		now.Fail(io.EOF)
		return
	}
	r.turn(now)
	r.mu.Unlock()
	r.working.Go(func() { _ = r.record() }) // the next change writes it, too
	now.Run(r.interval)
	r.mu.Lock()
	r.turn(nil)
	r.mu.Unlock()
	_ = r.record()
}

// turn wakes who waits. The caller holds r.mu.
func (r *Relay) turn(now *relayLink) {
	r.now = now
	close(r.changed)
	r.changed = make(chan struct{})
}

// Ready waits until there is a relay, or ctx ends.
func (r *Relay) Ready(ctx context.Context) error {
	_, err := r.link(ctx)
	return err
}

func (r *Relay) link(ctx context.Context) (*relayLink, error) {
	for {
		r.mu.Lock()
		now, changed := r.now, r.changed
		r.mu.Unlock()
		if now != nil {
			return now, nil
		}
		select {
		case <-changed:
		case <-r.done:
			return nil, noRelay{}
		case <-ctx.Done():
			return nil, noRelay{}
		}
	}
}

// Own are the addresses of the node, and those of the relay's machine.
func (r *Relay) Own() []netip.Addr {
	all := own()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		all = slices.Concat(all, r.now.said.Own)
	}
	return all
}

// LookupNetIP asks the relay.
func (r *Relay) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	s, a, err := r.ask(ctx, request{Name: host})
	if err != nil {
		return nil, err
	}
	s.Terminate()
	if a.NotFound || a.Timeout {
		return nil, &net.DNSError{Err: a.Error, Name: host, IsNotFound: a.NotFound, IsTimeout: a.Timeout}
	}
	return a.Addrs, a.Err()
}

// Dial has the relay connect to an address.
func (r *Relay) Dial(ctx context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	s, a, err := r.ask(ctx, request{To: to, Opened: judge.Opened(ctx)})
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		if s != nil {
			s.Terminate()
		}
		return nil, err
	}
	return &conn{s.Conn(), to}, nil
}

// ask waits for a relay, and for its answer.
func (r *Relay) ask(ctx context.Context, req request) (*stream, answer, error) {
	wait, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	now, err := r.link(wait)
	if err != nil {
		return nil, answer{}, err
	}
	s, err := now.Open(req, nil)
	if err != nil {
		return nil, answer{}, noRelay{}
	}
	select {
	case <-s.Answered():
	case <-ctx.Done():
		s.Terminate()
		return nil, answer{}, context.Cause(ctx)
	}
	a, err := s.Answer()
	if err != nil {
		s.Terminate()
		select {
		case <-now.Gone():
			err = noRelay{}
		default:
		}
		return nil, answer{}, err
	}
	return s, a, nil
}

// conn is a connection by way of the relay.
type conn struct {
	*trunk.Conn[request, answer]
	to netip.AddrPort
}

func (*conn) LocalAddr() net.Addr    { return &net.TCPAddr{} }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

var errNoDeadline = errors.New("a connection by way of a relay has no deadlines")

func (*conn) SetDeadline(time.Time) error      { return errNoDeadline }
func (*conn) SetReadDeadline(time.Time) error  { return errNoDeadline }
func (*conn) SetWriteDeadline(time.Time) error { return errNoDeadline }
