package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// request is something that a client asks of the keeper itself.
type request struct {
	c      *client
	stream uint32
	req    wire.KeepRequest
	ctx    context.Context
	cancel context.CancelCauseFunc
	stdin  *wire.Inbox // nil without one
	out    *wire.Sender
	done   chan struct{}
}

var (
	errClientGone = errors.New("the client has left")
	errCancelled  = errors.New("the request was cancelled")
)

// startKeep begins a request.
func (c *client) startKeep(stream uint32, m *wire.StartMessage) error {
	if c.k.life.Why() != nil {
		return c.refuse(stream, c.k.again())
	}
	if m.Keep.Op != wire.KeepBGStart && m.Keep.Op != wire.KeepKeys { // a command is about to follow keys
		c.k.life.answered(c)
	}
	r := &request{c: c, stream: stream, req: *m.Keep, out: wire.NewSender(c.w, wire.Stdout, stream), done: make(chan struct{})}
	// Its end is that of the client, the stream or the keeper.
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	if m.Stdin {
		r.stdin = wire.NewInbox(wire.Stdin)
	}
	c.streams.Put(stream, r)
	go r.run()
	return nil
}

func (r *request) frame(f wire.Frame) error {
	switch f.Type {
	case wire.Stdin:
		if r.stdin == nil {
			return wire.ErrFlow
		}
		return r.stdin.Put(f.Payload)
	case wire.Credit:
		var m wire.CreditMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		return r.out.Grant(m.Bytes)
	case wire.Signal, wire.Terminate:
		r.stop(errCancelled)
	}
	return nil
}

func (r *request) terminate(time.Duration) { r.stop(errCancelled) }
func (r *request) wait() <-chan struct{}   { return r.done }

func (r *request) abandon() {
	r.stop(errClientGone)
	<-r.done
}

// lose is the end of the keeper. A request to stop has the end as its answer.
func (r *request) lose(why string) {
	if r.req.Op != wire.KeepStop {
		r.stop(&jobs.Error{Kind: jobs.KindAgain, Msg: "the environment has ended: " + why, Hint: "the next command starts it again"})
	}
}

func (r *request) stop(why error) {
	r.cancel(why)
	r.out.Stop()
	if r.stdin != nil {
		r.stdin.Fail()
	}
}

// run serves the request and answers it.
func (r *request) run() {
	defer close(r.done)
	defer r.c.streams.Remove(r.stream)
	defer r.cancel(nil)
	a, err := r.serve()
	if errors.Is(err, errClientGone) {
		return
	}
	m := wire.ExitMessage{Exit: jobs.Exit{Started: true}}
	if err != nil {
		m.Exit.Code = codeFailed
		a = &wire.KeepAnswer{Error: err.Error(), Kind: jobs.KindOf(err), Hint: jobs.HintOf(err)}
		m.Again = errors.Is(err, errEnding)
	}
	if b, jerr := json.Marshal(a); jerr == nil {
		m.Keep = b
	}
	// After the bytes of the log, which went out the same way.
	_ = r.c.w.Message(wire.Exit, r.stream, m)
	_ = r.c.w.Data(wire.Stdout, r.stream, nil)
	_ = r.c.w.Data(wire.Stderr, r.stream, nil)
}

// errEnding says that nothing was begun because the keeper ends.
var errEnding = &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment is just ending", Hint: "try again"}

func one(v wire.BG) *wire.KeepAnswer { return &wire.KeepAnswer{BG: []wire.BG{v}} }

func (r *request) serve() (*wire.KeepAnswer, error) {
	k := r.c.k
	switch r.req.Op {
	case wire.KeepStatus:
		return &wire.KeepAnswer{State: k.state()}, nil
	case wire.KeepStop:
		k.life.stop(ending{text: "it was stopped", stopped: true})
		<-r.ctx.Done()
		return nil, errClientGone
	case wire.KeepKeys:
		return &wire.KeepAnswer{}, k.takeKeys(r.req.Keys)
	case wire.KeepBGStart:
		if !k.life.begin() {
			return nil, errEnding
		}
		k.life.answered(r.c)
		p, err := k.bg.begin(r.req.Start)
		if err != nil {
			k.life.end()
			if errors.Is(err, session.ErrAgain) { // the guest has just gone
				select {
				case <-k.life.Done():
				case <-r.ctx.Done():
				}
				err = errEnding
			}
			return nil, err
		}
		if r.req.Start.Session != "" {
			k.noteSession(r.req.Start)
		}
		// Its process id is wanted with the answer.
		select {
		case <-p.proc.Begun():
		case <-r.ctx.Done():
		}
		return one(p.view()), nil
	case wire.KeepBGList:
		all, err := k.bg.list()
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the background processes", Err: err}
		}
		return &wire.KeepAnswer{BG: all}, nil
	}
	p, v, err := k.bg.find(r.req.ID)
	if err != nil {
		return nil, err
	}
	switch r.req.Op {
	case wire.KeepBGLog:
		err = r.sendLog(p)
	case wire.KeepBGWait:
		if p != nil {
			select {
			case <-p.done:
			case <-r.ctx.Done():
				err = context.Cause(r.ctx)
			}
		}
	case wire.KeepBGWrite:
		err = r.feed(p)
	case wire.KeepBGKill:
		if p != nil {
			err = p.kill(r.ctx, r.req.Signal, r.req.Grace)
		}
	default:
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: "this environment's keeper does not know the request " + r.req.Op,
			Hint: "it may be older than this berth: stop the environment and open it again"}
	}
	if err != nil {
		return nil, err
	}
	if p != nil {
		v = p.view()
	}
	return one(v), nil
}

func (r *request) sendLog(p *process) error {
	var live *bgLog
	if p != nil && r.req.Follow {
		live = p.log
	}
	err := copyLog(r.ctx, filepath.Join(r.c.k.bg.path(r.req.ID), bgLogFile), r.req.Offset, live, r.out)
	if cause := context.Cause(r.ctx); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was lost before it had one
	}
	if live != nil && err == nil {
		<-p.done // the answer tells how it ended
	}
	return err
}

// feed writes the client's bytes to the process's standard input.
func (r *request) feed(p *process) error {
	if p == nil {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: r.req.ID + " does not run any more", Hint: "berth bg list"}
	}
	var err error
	if r.stdin != nil {
		err = r.stdin.Drain(writerFunc(func(b []byte) (int, error) {
			return len(b), p.stdin.write(r.ctx, b)
		}), func(n int) {
			_ = r.c.out.message(wire.Credit, r.stream, wire.CreditMessage{Channel: wire.Stdin, Bytes: n})
		})
	}
	if cause := context.Cause(r.ctx); cause != nil {
		return cause // what came is not all
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: r.req.ID + " does not read any more: its standard input was closed, or it has ended"}
	}
	if r.req.Close {
		p.stdin.end()
	}
	return err
}

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
