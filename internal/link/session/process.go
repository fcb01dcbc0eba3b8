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
	room   Room
	input  *wire.Sender // of its prompt or standard input, or nil
	out    *pipe        // for much output, or nil; once that comes, of a command
	in     *pipe        // for much input, or nil

	stdout, stderr *channel
	report         *channel      // or nil
	begun          chan struct{} // closed when the guest told the beginning, or exited is
	exited         chan struct{} // closed when the guest told the end, or is gone
	done           chan struct{} // closed when the output is out, too

	mu     sync.Mutex
	exit   *wire.ExitMessage
	lost   bool      // exited without an exit
	unsent error     // why not all of the input went through its pipe
	taken  bool      // all of the standard output
	past   bool      // the rest of the output is in the pipe; of the reading goroutine until its inbox ends
	open   sync.Once // closes begun
	pid    atomic.Int64
}

// channel is one stream of output on its way to its writer.
type channel struct {
	typ   wire.Type
	inbox *wire.Inbox
	err   error
}

// manyBytes are those of the standard output after which it is worth a pipe of its own.
const manyBytes = wire.Window

func newProcess(s *Session, stream uint32, to outputs, reports, much bool, out, in *pipe) *Process {
	p := &Process{
		s: s, stream: stream, out: out, in: in, begun: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
		stdout: &channel{typ: wire.Stdout, inbox: wire.NewInbox(wire.Stdout)},
		stderr: &channel{typ: wire.Stderr, inbox: wire.NewInbox(wire.Stderr)},
	}
	type taker struct {
		*channel
		w io.Writer
	}
	all := []taker{{p.stdout, to.stdout}, {p.stderr, to.stderr}}
	if reports {
		p.report = &channel{typ: wire.Report, inbox: wire.NewInbox(wire.Report)}
		all = append(all, taker{p.report, to.report})
	}
	var flushing sync.WaitGroup
	for _, c := range all {
		if c.w == nil {
			c.w = io.Discard
		}
		flushing.Go(func() {
			if c.typ == wire.Stdout {
				c.err = p.takeOutput(c.w, much)
			} else {
				c.err = c.inbox.Drain(c.w, s.out.Credits(c.typ, stream))
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

// takeOutput writes the standard output to w.
func (p *Process) takeOutput(w io.Writer, much bool) (err error) {
	if out := p.pipe(); out != nil { // of an operation on files
		if <-p.begun; out.used.Load() {
			err = out.Receive(w)
		}
		out.close()
	}
	credits := p.s.out.Credits(wire.Stdout, p.stream)
	grant := credits
	if came := 0; much {
		grant = func(n int) {
			if before := came; before < manyBytes && before+n >= manyBytes {
				go p.divert()
			}
			came += n
			credits(n)
		}
	}
	if derr := p.stdout.inbox.Drain(w, grant); err == nil {
		err = derr
	}
	p.mu.Lock()
	out, past := p.out, p.past
	p.taken = !past
	p.mu.Unlock()
	if past {
		if err == nil {
			err = out.Receive(w)
		}
		out.close() // else the guest would wait for one who reads
	} else if much {
		out.close() // the guest has not taken it
	}
	return err
}

func (p *Process) pipe() *pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

// divert makes a pipe for the rest of the output, and has the guest take it.
func (p *Process) divert() {
	out, inside := p.s.newPipe(false)
	if out == nil {
		return
	}
	p.mu.Lock()
	late := p.taken || p.lost
	if !late {
		p.out = out
	}
	p.mu.Unlock()
	if late {
		out.close()
		return
	}
	_ = p.s.send(wire.Divert, p.stream, wire.DivertMessage{Out: wire.Text(inside)}) // where it does not, all comes in frames
}

// diverted notes that the rest of the output is in the pipe.
func (p *Process) diverted() error {
	p.mu.Lock()
	bad := p.out == nil || p.past
	p.past = true
	p.mu.Unlock()
	if bad {
		return wire.ErrFlow
	}
	return p.stdout.inbox.Put(nil)
}

// output takes a frame of the standard output.
func (p *Process) output(b []byte) error {
	p.mu.Lock()
	out, past := p.out, p.past
	p.mu.Unlock()
	if len(b) == 0 {
		out.end()
	}
	if !past {
		return p.stdout.inbox.Put(b)
	}
	if len(b) > 0 {
		return wire.ErrFlow
	}
	return nil
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
		return p.output(f.Payload)
	case wire.Divert:
		return p.diverted()
	case wire.Stderr:
		return p.stderr.inbox.Put(f.Payload)
	case wire.Report:
		if p.report != nil {
			return p.report.inbox.Put(f.Payload)
		}
	case wire.Started:
		var m wire.StartedMessage
		if err := f.Decode(&m); err != nil {
			return err
		}
		p.pid.Store(int64(max(m.PID, 0)))
		if out := p.pipe(); out != nil {
			out.used.Store(m.Out)
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
	p.pipe().close()
	p.stdout.inbox.Fail()
	p.stderr.inbox.Fail()
	if p.report != nil {
		p.report.inbox.Fail()
	}
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
	if res.Output == nil && p.report != nil {
		res.Output = p.report.err
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
	res.Dir, res.TimedOut, res.OverMemory, res.ShellEnded, res.Unpinged = string(e.Dir), e.TimedOut, e.OverMemory, e.ShellEnded, e.Unpinged
	res.Note, res.Left = e.Note, e.Left
	res.File, res.Keep, res.NoRoom = e.File, e.Keep, e.NoRoom
	return res, nil
}
