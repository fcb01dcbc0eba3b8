package mux

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/link/trunk"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Options say how a far command is used.
type Options struct {
	// Interval is the time between pings; 0 is 4 s. A link over which nothing
	// was heard for four of them is dead.
	Interval time.Duration
	// Progress is told, for people, what takes long; it may be nil.
	Progress func(string)
}

// Mux is a far command of this process with many conversations over it. It is
// safe for concurrent use.
type Mux struct {
	t       *conversations
	far     *run.Piped
	said    *reports
	name    string // of the command's program
	closing sync.Once

	r        *wire.Reader // of await, then of t
	word     wire.Word    // the first one
	interval time.Duration

	probe sharing
}

// endTime is how long a far command may take to end by itself.
const endTime = 2 * time.Second

// begin starts a far command. What is asked of it before [Mux.await] has returned is on its
// way to the far side all the same.
func begin(ctx context.Context, on jobs.Starter, cmd jobs.Cmd, o Options) (*Mux, error) {
	m := &Mux{said: newReports(o.Progress), interval: o.Interval}
	cmd.Stderr = m.said
	var err error
	if m.far, err = run.StartPiped(ctx, on, cmd, false); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start the connection to the environment's keeper", Err: err}
	}
	m.name = filepath.Base(cmd.Argv[0])
	m.r = wire.NewReader(m.far.Out)
	w := wire.NewWriter(m.far.In)
	m.t = trunk.New[request, answer](m.r, w, nil, m.hangUp)
	if m.word, err = wire.NewWord(nearMagic, nearHello{Version: version, Interval: o.Interval}); err == nil {
		_ = w.Say(m.word) // of a far side that ends at once, its own words say more
	}
	return m, err
}

// await waits until the far side has reached the keeper. When it has not, the link is over.
func (m *Mux) await(ctx context.Context) (*keeper.Report, error) {
	rep, err := m.greet(ctx)
	if err != nil {
		m.t.Fail(err)
		m.finish(endTime / 8)
		return nil, err
	}
	go m.t.Run(m.interval)
	go func() {
		select {
		case <-m.t.Leaves():
			m.t.Fail(m.t.Left().Err())
		case <-m.t.Gone():
		}
		m.finish(endTime)
	}()
	return rep, nil
}

// greet waits for the answer to the first word.
func (m *Mux) greet(ctx context.Context) (*keeper.Report, error) {
	type greeting struct {
		hello  farHello
		banner []byte
		err    error
	}
	greeted := make(chan greeting, 1)
	go func() {
		var g greeting
		g.banner, g.err = m.word.Answered(m.r, farMagic, &g.hello)
		greeted <- g
	}()
	var g greeting
	select {
	case g = <-greeted:
	case <-ctx.Done():
		return nil, fmt.Errorf("reach the environment's keeper: %w", context.Cause(ctx))
	}
	if g.err != nil {
		// Whoever closed the stream ends, and says why.
		late := time.NewTimer(endTime)
		defer late.Stop()
		select {
		case <-m.far.Ended:
		case <-late.C:
		case <-ctx.Done():
		}
		return nil, m.noHello(g.err, string(g.banner))
	}
	if g.hello.Version != version {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("berth on the far side speaks version %d of the protocol, this one version %d", g.hello.Version, version),
			Hint: "stop the environment and open it again"}
	}
	if err := g.hello.Report.Err(); err != nil {
		return nil, err
	}
	return &g.hello.Report, nil
}

// noHello says why the far side did not answer.
func (m *Mux) noHello(err error, banner string) error {
	if ferr := m.said.failure(); ferr != nil {
		return ferr
	}
	msg := "the connection to the environment's keeper"
	select {
	case <-m.far.Ended:
		switch {
		case m.far.Err != nil:
			err = m.far.Err
		case m.far.Exit.Signal != 0:
			msg += fmt.Sprintf(" ended before it was open: %s, signal %d", m.name, m.far.Exit.Signal)
			err = nil
		default:
			msg += fmt.Sprintf(" ended before it was open: %s, exit code %d", m.name, m.far.Exit.Code)
			err = nil
		}
	default:
		msg += " broke before it was open"
	}
	said := m.said.rest()
	if said == "" {
		said = strings.TrimSpace(jobs.Printable(banner[max(0, len(banner)-maxSaid):]))
	}
	if said != "" {
		msg += ": " + said
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err}
}

// hangUp closes the streams of the far command.
func (m *Mux) hangUp() {
	_ = m.far.In.Close()
	_ = m.far.Out.Close()
}

// finish makes sure that the far command ends. One that does not when its input
// ends is told to: a step then ends what it has started, too, which it does not
// when it is killed.
func (m *Mux) finish(patience time.Duration) {
	for _, force := range []func(){func() {}, func() { _ = m.far.Proc.Signal(syscall.SIGTERM) }, m.far.Kill} {
		force()
		t := time.NewTimer(patience)
		select {
		case <-m.far.Ended:
			t.Stop()
			return
		case <-t.C:
		}
	}
	<-m.far.Ended
}

// ask sends a request, with the first bytes that follow it, and waits for its answer.
func (m *Mux) ask(ctx context.Context, req request, first []byte) (*stream, *answer, error) {
	s, err := m.begin(req, first)
	if err != nil {
		return nil, nil, err
	}
	return m.answered(ctx, s)
}

// begin sends a request, with the first bytes that follow it.
func (m *Mux) begin(req request, first []byte) (*stream, error) {
	s, err := m.t.Open(req, first)
	if err != nil {
		select { // it may just be saying why
		case <-m.t.Gone():
		case <-time.After(2 * trunk.LastWords):
		}
		return nil, m.broken(err)
	}
	return s, nil
}

// answered waits for the answer to a request.
func (m *Mux) answered(ctx context.Context, s *stream) (*stream, *answer, error) {
	select {
	case <-s.Answered():
	case <-ctx.Done():
		s.Terminate()
		return nil, nil, context.Cause(ctx)
	}
	a, err := s.Answer()
	if err != nil {
		s.Terminate()
		return nil, nil, m.broken(err)
	}
	if err := a.Err(); err != nil {
		return nil, nil, err
	}
	return s, &a, nil
}

// broken explains an error of the link.
func (m *Mux) broken(err error) error {
	var e *jobs.Error
	if errors.As(err, &e) || errors.Is(err, keeper.ErrNotRunning) {
		return err
	}
	if why := m.t.Err(); why != nil {
		err = why
		if errors.As(err, &e) || errors.Is(err, keeper.ErrNotRunning) {
			return err
		}
	}
	msg := "the link to the environment's keeper is broken"
	if said := m.said.rest(); said != "" {
		msg += ": " + said
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err}
}

// Gone is closed when the link is broken or the far side has left.
func (m *Mux) Gone() <-chan struct{} { return m.t.Gone() }

// Err says why the link is gone; nil is that it stands. It is
// [keeper.ErrNotRunning] when the keeper has ended.
func (m *Mux) Err() error {
	if err := m.t.Err(); err != nil {
		return m.broken(err)
	}
	return nil
}

// errClosed is a link that this side has closed.
var errClosed = errors.New("the link was closed")

// Close ends all conversations and the far command, and waits for that, at most
// some seconds.
func (m *Mux) Close() error {
	m.closing.Do(func() {
		m.t.Fail(errClosed)
		m.finish(endTime)
	})
	<-m.far.Ended
	return nil
}
