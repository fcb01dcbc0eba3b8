package wayout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"berth/internal/link/trunk"
	"berth/internal/link/wire"
	"berth/internal/network/policy"
)

// Times of the relay, beside those that the supervisor has.
const (
	resolveTime = 30 * time.Second
	dialTime    = time.Minute
)

// maxAddrs bounds an answer.
const maxAddrs = 64

// Serve is the relay of the supervisor at the other end of a stream, which it closes, until
// that ends, is not heard any more, or ctx ends. It resolves and dials on w, on this machine.
// It returns nil when the supervisor has ended the stream.
func Serve(ctx context.Context, rw io.ReadWriteCloser, w Way) error {
	var once sync.Once
	shut := func() { once.Do(func() { _ = rw.Close() }) }
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	in, out := wire.NewReader(rw), wire.NewWriter(rw)
	h, err := greetSupervisor(in, out)
	if err != nil {
		shut()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("greet the supervisor: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	t := trunk.New(in, out, (&server{way: w, ctx: serving}).serve, shut)
	if h.Widens {
		t.Widen(maxGrowth)
	}
	t.Run(h.Interval)
	if err := t.Err(); ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return err
	}
	return context.Cause(ctx)
}

func greetSupervisor(in *wire.Reader, out *wire.Writer) (h hello, err error) {
	if _, err = in.Find(supervisorMagic, nil); err != nil {
		return h, err
	}
	nonce, err := in.Nonce()
	if err == nil {
		err = in.Hello(&h)
	}
	if err == nil && h.Version != version {
		err = fmt.Errorf("it speaks version %d of the protocol, and this relay version %d", h.Version, version)
	}
	if err != nil {
		return h, err
	}
	host, _ := os.Hostname()
	return h, out.Open(relayMagic, nonce, welcome{Version: version, Widens: h.Widens, Own: own(), RelayProcess: RelayProcess{Host: host, PID: os.Getpid()}})
}

// server is a relay.
type server struct {
	way Way
	ctx context.Context // until the stream ends
}

// serve does what the supervisor asks for.
func (s *server) serve(c *stream) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go func() {
		select {
		case <-c.Over():
		case <-ctx.Done():
		}
		cancel()
	}()
	if c.Request.Name != "" {
		s.lookup(ctx, c)
		return
	}
	s.dial(ctx, c)
}

func (s *server) lookup(ctx context.Context, c *stream) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	addrs, err := s.way.LookupNetIP(ctx, "ip", c.Request.Name)
	var d *net.DNSError
	switch {
	case errors.As(err, &d):
		c.Finish(answer{Error: d.Err, NotFound: d.IsNotFound, Timeout: d.IsTimeout})
	case err != nil:
		c.Finish(failed(err))
	default:
		_ = c.Accept(answer{Addrs: addrs[:min(len(addrs), maxAddrs)]})
		c.Finish(answer{})
	}
}

func failed(err error) answer { return answer{Error: err.Error()} }

// refused says why an address is not dialled, whatever the supervisor has allowed.
func refused(r request) error {
	a := r.To.Addr().Unmap()
	switch class := policy.Forbidden(a); {
	case !r.To.IsValid() || r.To.Port() == 0:
		return errors.New("the relay was given no address")
	case r.Opened:
		return nil
	case class != "":
		return fmt.Errorf("the relay does not dial %s (%s)", a, class)
	case slices.ContainsFunc(own(), func(o netip.Addr) bool { return o.Unmap() == a }):
		return fmt.Errorf("the relay does not dial %s (its machine's own)", a)
	}
	return nil
}

func (s *server) dial(ctx context.Context, c *stream) {
	if err := refused(c.Request); err != nil {
		c.Finish(failed(err))
		return
	}
	dialling, cancel := context.WithTimeout(ctx, dialTime)
	to, err := s.way.Dial(dialling, "tcp", c.Request.To)
	cancel()
	if err != nil {
		c.Finish(failed(err))
		return
	}
	defer context.AfterFunc(ctx, func() { _ = to.Close() })()
	defer func() { _ = to.Close() }()
	if c.Accept(answer{}) != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_ = c.Drain(to)
		if h, ok := to.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	})
	if err := c.Send(to); err != nil {
		c.Finish(failed(err)) // which ends the way up, too
		up.Wait()
		return
	}
	c.CloseWrite()
	up.Wait()
	c.Finish(answer{})
}
