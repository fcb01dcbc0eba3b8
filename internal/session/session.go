package session

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// ErrGuestGone says that the stream to the guest broke before the answer came:
// what happened to the command is not known.
var ErrGuestGone = errors.New("the guest is gone")

// Session is a conversation with one guest. It is safe for concurrent use.
type Session struct{}

// Open begins a conversation over r and w, the guest's standard output and
// input. Whatever stands in r before the guest's first word, such as a banner
// of the site, is skipped up to a bound. When Open fails, it has closed w, and
// r when it is an io.Closer.
func Open(ctx context.Context, r io.Reader, w io.WriteCloser, o Options) (*Session, error) {
	return nil, errors.New("open a session: not built")
}

// Guest returns what the guest said of itself.
func (s *Session) Guest() Guest { return Guest{} }

// Start begins a command. It does not wait until the command runs: that it
// could not be started is told by Wait, as an Exit with Started false. A nil
// writer discards.
func (s *Session) Start(req StartRequest, stdout, stderr io.Writer) (*Process, error) {
	return nil, ErrGuestGone
}

// Ping tells the guest that its owner still stands. It never blocks: when an
// earlier ping is still on its way, that one counts. The error says that the
// guest is gone.
func (s *Session) Ping() error { return ErrGuestGone }

// LastPong returns when the guest last answered a ping; zero is never.
func (s *Session) LastPong() time.Time { return time.Time{} }

// End ends all commands and all that they left behind: TERM to each main
// process' group, SIGKILL to everything that is left when it has ended or
// after grace. The session stays usable. left counts what could not be killed.
func (s *Session) End(ctx context.Context, grace time.Duration) (left int, err error) {
	return 0, ErrGuestGone
}

// Quit ends everything as End does, without grace, and waits until the guest
// has left or ctx ends. The session is closed after it.
func (s *Session) Quit(ctx context.Context) error { return ErrGuestGone }

// Close closes the stream. The guest, when it is alive, ends everything and
// leaves. It may be called more than once.
func (s *Session) Close() error { return nil }

// Gone is closed when the guest has left or the stream has broken.
func (s *Session) Gone() <-chan struct{} { return nil }

// Process is a command in the environment.
type Process struct{}

// Signal delivers a signal to the process group of the command's main
// process; after its end it does nothing.
func (p *Process) Signal(sig syscall.Signal) error { return ErrGuestGone }

// Terminate sends TERM to the main process' group, and SIGKILL to every
// process that the command started and that still lives when the main process
// has ended or after grace. It does not wait for that; Wait does.
func (p *Process) Terminate(grace time.Duration) error { return ErrGuestGone }

// Wait waits for the command's end and for its output, and gives the same
// answer each time. A process left behind with the output open is not waited
// for. The error is ErrGuestGone when the stream broke before the guest told
// how the command ended; there is no other error.
func (p *Process) Wait() (Result, error) { return Result{}, ErrGuestGone }
