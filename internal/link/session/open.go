package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"berth/internal/link/wire"
)

// Times when an option is not set.
const (
	defaultStart = 60 * time.Second
	defaultPing  = 30 * time.Second
	defaultGrace = 2 * time.Second
)

// Open begins a conversation over r and w, the guest's standard output and
// input. Whatever stands in r before the guest's first word, such as a banner
// of the site, is skipped up to a bound. When Open fails, it has closed w, and
// r when it is an io.Closer; so has the Session at its end. A reader that
// cannot be closed keeps a goroutine until the guest ends.
func Open(ctx context.Context, r io.Reader, w io.WriteCloser, o Options) (*Session, error) {
	s := &Session{
		r: r, w: w, in: wire.NewReader(r), out: wire.NewWriter(w),
		pings: make(chan struct{}, 1), gone: make(chan struct{}), closing: make(chan struct{}),
		ends: map[uint32]chan int{}, environ: make(chan wire.EnvironMessage, 1), pipes: o.Pipes,
	}
	s.net.open(o.Network)
	s.ask, s.asks = o.Ask, make(chan struct{}, mostAsks)
	wait := o.StartTimeout
	if wait == 0 {
		wait = defaultStart
	}
	silent := fmt.Errorf("no guest answered within %v", wait)
	ctx, stop := context.WithTimeoutCause(ctx, wait, silent)
	defer stop()
	greeted := make(chan error, 1)
	go func() { greeted <- s.greet(o) }()
	var err error
	select {
	case err = <-greeted:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = w.Close()
		closeReader(r)
		return nil, fmt.Errorf("open a session: %w", err)
	}
	go s.sendPings()
	go s.read()
	return s, nil
}

// First is a client's first word. Who dials may send it with its own request, so that it
// is on its way to the guest before that is answered; a connection that it was sent over
// has a method Sent, which returns it. Each conversation has one of its own.
type First struct {
	key   wire.Key
	hello wire.ClientHello
	word  wire.Word
}

// Ahead is a connection over which the first word was sent already.
type Ahead interface{ Sent() *First }

// NewFirst makes the first word of a conversation with these options.
func NewFirst(o Options) (*First, error) {
	f := &First{key: wire.NewKey()}
	f.hello = wire.ClientHello{
		Version: wire.Version, Key: f.key[:], PingTimeout: setting(o.PingTimeout, defaultPing), LeaveGrace: setting(o.LeaveGrace, defaultGrace),
		Login: o.Login, Dir: wire.Text(o.Dir), User: wire.Text(o.User), OwnPIDNamespace: o.OwnPIDNamespace, PIDNamespace: pidNamespace(),
		Env: wire.Texts(o.Env), TellEnv: o.TellEnv, WritableRoot: o.WritableRoot, Look: o.Look, Confine: o.Confine, Proof: o.Proof,
		Asks: o.Ask != nil,
	}
	for _, s := range o.Stubs {
		f.hello.Stubs = append(f.hello.Stubs, wire.Stub(s))
	}
	if o.Home != "" {
		f.hello.Home = append(f.hello.Home, wire.Text(o.Home))
	} else if len(o.HomeFallback) > 0 {
		f.hello.Home = append(f.hello.Home, "") // its own comes first
	}
	f.hello.Home = append(f.hello.Home, wire.Texts(o.HomeFallback)...)
	if o.Network != nil || o.NetworkWish.Visitor {
		f.hello.Network = &o.NetworkWish
	}
	var err error
	f.word, err = wire.NewWord(wire.ClientMagic, f.hello)
	return f, err
}

// Bytes are what is sent.
func (f *First) Bytes() []byte { return f.word.Bytes }

// first returns the first word, which it sends unless that was done.
func (s *Session) first(o Options) (*First, error) {
	if a, ok := s.r.(Ahead); ok {
		if f := a.Sent(); f != nil {
			return f, nil
		}
	}
	f, err := NewFirst(o)
	if err == nil {
		// The other side, when it ends at once, breaks this write, but what it said
		// first is the better explanation.
		_ = s.out.Say(f.word)
	}
	return f, err
}

// greet exchanges the hellos.
func (s *Session) greet(o Options) error {
	first, err := s.first(o)
	if err != nil {
		return err
	}
	var g wire.GuestHello
	if banner, err := first.word.Answered(s.in, wire.GuestMagic, &g); err != nil {
		return noAnswer(banner, err)
	}
	if g.Version != wire.Version {
		return fmt.Errorf("the guest speaks version %d of the protocol, this berth version %d: "+
			"stop the environment, and it is opened by this one", g.Version,
			wire.Version)
	}
	seen := clampSeen(g.Seen)
	if seen != nil && seen.WritableCgroups != "" {
		return &CgroupError{At: seen.WritableCgroups}
	}
	if g.NotWritable {
		return &NotWritableError{Why: text(g.Error)}
	}
	if g.Network != nil && g.Network.NoRoom != "" {
		return &NoRoomError{Why: text(g.Network.NoRoom)}
	}
	if g.Error != "" {
		return fmt.Errorf("the guest cannot work here: %s", text(g.Error))
	}
	if o.Look && seen == nil {
		return errors.New("the guest did not look at its place")
	}
	if o.Look && o.Proof != nil && !seen.Tried {
		return errors.New("the guest has not tried what must fail")
	}
	if o.Look && o.Confine && !seen.Filtered {
		return errors.New("the guest does not confine its commands") // its input was changed on the way
	}
	had, err := clampNetwork(g.Network, first.hello.Network)
	if err != nil {
		return err
	}
	if o.Ask != nil && !g.Asks {
		return errors.New("the guest passes on nothing that programs inside ask of berth")
	}
	s.in.Seal(first.key, wire.FromGuest)
	s.out.Seal(first.key, wire.FromClient)
	s.out.Takes(g.MaxStart)
	s.guest = Guest{
		Version: g.Version, PID: max(g.PID, 0), OwnPIDNamespace: g.OwnPIDNamespace, UID: g.UID, Kernel: text(g.Kernel),
		Home: string(g.Home), Path: string(g.Path), Shell: text(g.Shell), Env: wire.Strings(g.Env), Seen: seen, Network: had, AskDir: string(g.AskDir),
		NoKeys: g.NoKeys,
	}
	return nil
}

// noAnswer says why there was no hello, with the end of what came instead.
func noAnswer(banner []byte, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the guest ended before it spoke")
	}
	const most = 300
	said := strings.TrimSpace(strings.ToValidUTF8(string(banner[max(0, len(banner)-most):]), "?"))
	if said != "" {
		return fmt.Errorf("%w; its output ends with %q", err, said)
	}
	return err
}

// setting turns an option into what the protocol says: 0 is none.
func setting(d, usual time.Duration) time.Duration {
	switch {
	case d == 0:
		return usual
	case d < 0:
		return 0
	}
	return d
}
