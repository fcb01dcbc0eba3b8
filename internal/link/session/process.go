package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/link/wire"
)

// Process is a command in the environment.
type Process struct {
	s      *Session
	stream uint32
	input  *wire.Sender // of its prompt or standard input, or nil
	out    *pipe        // for much output, or nil
	in     *pipe        // for much input, or nil

	stdout, stderr *channel
	begun          chan struct{} // closed when the guest told the beginning, or exited is
	exited         chan struct{} // closed when the guest told the end, or is gone
	done           chan struct{} // closed when the output is out, too

	mu     sync.Mutex
	exit   *wire.ExitMessage
	lost   bool      // exited without an exit
	unsent error     // why not all of the input went through its pipe
	open   sync.Once // closes begun
	pid    atomic.Int64
}

// channel is one stream of output on its way to its writer.
type channel struct {
	typ   wire.Type
	inbox *wire.Inbox
	err   error
}

func newProcess(s *Session, stream uint32, stdout, stderr io.Writer, out, in *pipe) *Process {
	p := &Process{
		s: s, stream: stream, out: out, in: in, begun: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
		stdout: &channel{typ: wire.Stdout, inbox: wire.NewInbox(wire.Stdout)},
		stderr: &channel{typ: wire.Stderr, inbox: wire.NewInbox(wire.Stderr)},
	}
	var flushing sync.WaitGroup
	for _, c := range []struct {
		*channel
		w io.Writer
	}{{p.stdout, stdout}, {p.stderr, stderr}} {
		if c.w == nil {
			c.w = io.Discard
		}
		flushing.Go(func() {
			var err error
			if c.typ == wire.Stdout && out != nil {
				if <-p.begun; out.used.Load() {
					err = out.Receive(c.w)
				}
				out.close()
			}
			c.err = c.inbox.Drain(c.w, s.out.Credits(c.typ, stream))
			if err != nil {
				c.err = err
			}
		})
	}
	go func() {
		flushing.Wait()
		<-p.exited
		in.close()
		s.streams.Remove(stream)
		close(p.done)
	}()
	return p
}

// send begins to send what the command reads.
func (p *Process) send(from io.Reader, command bool) {
	if p.input == nil {
		return
	}
	go func() {
		// Of what never begins, the input is not touched: whoever asked can
		// ask again with the same.
		if command || p.in != nil {
			<-p.begun
		}
		if p.in != nil && p.in.used.Load() {
			if err := p.in.Send(from); err != nil {
				if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
					p.mu.Lock()
					p.unsent = err
					p.mu.Unlock()
					_ = p.Terminate(0)
				}
				<-p.exited // what broke off must not look ended
			}
			from = eof{} // what is left of it is not for the frames
		}
		// Stops when the command has ended, unless the reader itself blocks.
		_, _ = io.Copy(p.input, from)
		if !p.ended() {
			_ = p.input.Close()
		}
	}()
}

// frame serves a frame for this process. It must not block.
func (p *Process) frame(f wire.Frame) error {
	switch f.Type {
	case wire.Stdout:
		if len(f.Payload) == 0 {
			p.out.end()
		}
		return p.stdout.inbox.Put(f.Payload)
	case wire.Stderr:
		return p.stderr.inbox.Put(f.Payload)
	case wire.Started:
		var m wire.StartedMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		p.pid.Store(int64(max(m.PID, 0)))
		if p.out != nil {
			p.out.used.Store(m.Out)
		}
		if p.in != nil {
			p.in.used.Store(m.In)
		}
		p.begin()
	case wire.Exit:
		var m wire.ExitMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		clampExit(&m)
		p.end(&m)
	case wire.Credit:
		return wire.Granted(f, p.input)
	}
	return nil
}

// begin notes that the command has begun, or never will.
func (p *Process) begin() { p.open.Do(func() { close(p.begun) }) }

// end notes how the command ended; nil says that this is not known. The first
// answer counts.
func (p *Process) end(m *wire.ExitMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil || p.lost {
		return
	}
	p.exit, p.lost = m, m == nil
	p.begin()
	close(p.exited)
	if p.input != nil {
		p.input.Stop()
	}
	p.in.close()
}

// lose is called when the stream is gone.
func (p *Process) lose() {
	p.end(nil)
	p.out.close()
	p.stdout.inbox.Fail()
	p.stderr.inbox.Fail()
}

// notSent is why not all of the input went through its pipe, or nil.
func (p *Process) notSent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsent
}

// ended tells whether the end is known, one way or the other.
func (p *Process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// PID is the number inside of the command's main process, or 0 before it has
// begun.
func (p *Process) PID() int { return int(p.pid.Load()) }

// Begun is closed when the command has begun, which it may do late when its
// session is busy, and when its end is known.
func (p *Process) Begun() <-chan struct{} { return p.begun }

// Resize tells the command's terminal its new size.
func (p *Process) Resize(size wire.Size) error {
	if p.ended() {
		return nil
	}
	return p.s.send(wire.Resize, p.stream, size)
}

// Signal delivers a signal to the process group of the command's main
// process; after its end it does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.ended() {
		return nil
	}
	return p.s.send(wire.Signal, p.stream, wire.SignalMessage{Signal: int(sig), Scope: wire.ScopeMain})
}

// Terminate sends TERM to the main process' group, and SIGKILL to every
// process that the command started and that still lives when the main process
// has ended or after grace. It does not wait for that; Wait does.
func (p *Process) Terminate(grace time.Duration) error {
	if p.ended() {
		return nil
	}
	return p.s.send(wire.Terminate, p.stream, wire.EndMessage{Grace: grace})
}

// Wait waits for the command's end and for its output, and gives the same
// answer each time. A process left behind with the output open is not waited
// for. The error is ErrGuestGone when the stream broke before the guest told
// how the command ended, or a keeper says why this is not known; or ErrAgain;
// there is no other error.
func (p *Process) Wait() (Result, error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	res := Result{Output: p.stdout.err}
	if res.Output == nil {
		res.Output = p.stderr.err
	}
	if p.exit == nil {
		err := p.s.err()
		if err == nil {
			err = ErrGuestGone
		}
		if p.s.unread(p.stream) {
			return res, fmt.Errorf("%w: %w", ErrAgain, err)
		}
		return res, fmt.Errorf("wait for a command: %w", err)
	}
	e := p.exit
	switch {
	case e.Again:
		return res, fmt.Errorf("%w: %s", ErrAgain, e.Exit.Error)
	case e.Lost != "":
		return res, fmt.Errorf("wait for a command: %w: %s", ErrGuestGone, text(e.Lost))
	}
	res.Exit, res.MaxRSS, res.Started, res.Ended = e.Exit, e.MaxRSS, e.Started, e.Ended
	res.Dir, res.TimedOut, res.ShellEnded, res.Unpinged = string(e.Dir), e.TimedOut, e.ShellEnded, e.Unpinged
	res.Note = e.Note
	res.File, res.Keep = e.File, e.Keep
	return res, nil
}
