package mux

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/link/session"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// pipeRequest asks the far side to make a named pipe.
type pipeRequest struct {
	Into  bool   `json:"into,omitempty"` // for bytes that go into the environment
	Dir   string `json:"dir"`            // below the environment's directory
	Spool string `json:"spool"`          // names the transfer's files
}

// sharedRequest asks whether the far side sees a file.
type sharedRequest struct {
	Name string `json:"name"` // in the spool
	Text string `json:"text"` // that it holds
}

// Pipes makes ways for much data between this machine and the environment, for
// [session.Options]: here is the directory of named pipes below l.Dir that the
// guest sees as inside, as [jobs.Piper] has it. It is for a client whose machine
// shares the environment's directory with the far one; on others the bytes go
// in frames, as they do without it. nil is that here is not below l.Dir.
func (l Link) Pipes(here, inside string) session.Pipes {
	return newPipes(l.Dir, here, inside, func(ctx context.Context, req request) (io.ReadWriteCloser, *answer, error) {
		c, a, err := l.ask(ctx, req, false)
		if err != nil {
			return nil, nil, err
		}
		return c, a, nil
	})
}

func newPipes(dir, here, inside string, ask asker) session.Pipes {
	rel, err := filepath.Rel(dir, here)
	if here == "" || err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	return &pipes{dir: dir, rel: rel, inside: inside, ask: ask}
}

type asker func(context.Context, request) (io.ReadWriteCloser, *answer, error)

// pipes makes named pipes on the far side.
type pipes struct {
	dir, rel, inside string
	ask              asker

	mu    sync.Mutex
	off   bool     // there are none
	made  int      // for output
	spare *farPipe // for output, made beforehand
}

// lastWordTime is how long the far side may take to say why it takes no more.
const lastWordTime = time.Second

// makeTime bounds the making of one.
const makeTime = 20 * time.Second

// Make asks the far side for one. Most commands want one for their output: the
// second such gets one that was made while the first ran, and so on.
func (p *pipes) Make(into bool) session.Pipe {
	p.mu.Lock()
	var spare *farPipe
	if !into {
		spare, p.spare = p.spare, nil
		if p.made++; p.made > 1 && !p.off {
			go p.prepare()
		}
	}
	off := p.off
	p.mu.Unlock()
	if spare != nil {
		return spare
	}
	if off {
		return nil
	}
	if made := p.demand(into); made != nil {
		return made
	}
	return nil
}

// prepare makes the spare one.
func (p *pipes) prepare() {
	made := p.demand(false)
	p.mu.Lock()
	if p.spare == nil && !p.off {
		made, p.spare = nil, made
	}
	p.mu.Unlock()
	if made != nil {
		made.Close()
	}
}

// Close makes no more, when the session has ended.
func (p *pipes) Close() error {
	p.mu.Lock()
	p.off = true
	spare := p.spare
	p.spare = nil
	p.mu.Unlock()
	if spare != nil {
		spare.Close()
	}
	return nil
}

// demand asks for one; nil is that there are none.
func (p *pipes) demand(into bool) *farPipe {
	ctx, cancel := context.WithTimeout(context.Background(), makeTime)
	defer cancel()
	sp := &spool{dir: filepath.Join(p.dir, dirSpool), id: newSpoolID()}
	conn, a, err := p.ask(ctx, request{Kind: kindPipe, Pipe: &pipeRequest{Into: into, Dir: p.rel, Spool: sp.id}})
	if err == nil && (a.Pipe == "" || a.Pipe != filepath.Base(a.Pipe)) {
		_ = conn.Close()
		err = errors.New("the far side names no pipe")
	}
	if err != nil {
		p.mu.Lock()
		p.off = true
		p.mu.Unlock()
		return nil
	}
	return &farPipe{
		inside: filepath.Join(p.inside, a.Pipe), here: filepath.Join(p.dir, p.rel, a.Pipe),
		conn: conn, out: &records{w: conn}, spool: sp, gone: make(chan struct{}),
	}
}

// farPipe is a named pipe at which the far side stands in for this process.
type farPipe struct {
	inside string
	conn   io.ReadWriteCloser
	out    *records
	spool  *spool
	here   string      // the named pipe, as it is seen here
	whole  atomic.Bool // all went as it should
	once   sync.Once
	gone   chan struct{}
}

func (p *farPipe) Inside() string { return p.inside }

// Receive takes what comes: bytes, and files.
func (p *farPipe) Receive(w io.Writer) error {
	if err := p.out.put(recGo, 0, nil); err != nil {
		return p.failed(err)
	}
	in := receiving{spool: p.spool}
	buf := make([]byte, chunkBuffer)
	for {
		kind, n, err := take(p.conn)
		if err != nil {
			return p.failed(err)
		}
		switch kind {
		case recBytes:
			b := buf[:n]
			if _, err := io.ReadFull(p.conn, b); err != nil {
				return p.failed(err)
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		case recChunk:
			if err := in.chunk(w, n, buf); err != nil {
				return err
			}
			if err := p.out.put(recTaken, 0, nil); err != nil {
				return p.failed(err)
			}
		case recOver:
			p.whole.Store(true)
			return nil
		case recTrouble:
			return takeTrouble(p.conn, n)
		}
	}
}

// failed explains a broken way. What was closed by this side is no error, as
// with a named pipe here.
func (p *farPipe) failed(err error) error {
	select {
	case <-p.gone:
		return nil
	default:
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the link for much data to the environment broke", Err: err}
}

// Send puts in what r holds.
func (p *farPipe) Send(r io.Reader) error {
	defer func() {
		p.Close()
		if !p.whole.Load() {
			p.spool.clean() // what was still being written when the pipe was closed
		}
	}()
	if err := p.out.put(recGo, 0, nil); err != nil {
		return p.failed(err)
	}
	taken := make(chan struct{}, maxChunks)
	gone := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		defer close(gone)
		for {
			kind, n, err := take(p.conn)
			switch {
			case err != nil:
				over <- p.failed(err)
				return
			case kind == recTaken:
				select {
				case taken <- struct{}{}:
				default:
				}
			case kind == recOver:
				over <- nil
				return
			case kind == recTrouble:
				over <- takeTrouble(p.conn, n)
				return
			}
		}
	}()
	s := &sending{spool: p.spool, out: p.out, taken: taken, gone: gone}
	err := s.run(plainSource{r})
	if err == nil {
		err = <-over
		p.whole.Store(err == nil)
		return err
	}
	select {
	case ferr := <-over:
		if ferr == nil {
			return syscall.EPIPE // the guest has taken as much as it wanted
		}
		return ferr
	case <-time.After(lastWordTime): // the error is this side's
		return err
	}
}

// plainSource is a reader that never pauses.
type plainSource struct{ r io.Reader }

func (s plainSource) read(p []byte, _ bool) (int, error) { return s.r.Read(p) }

// End tells the far side that the guest has closed its end.
func (p *farPipe) End() {
	go func() { _ = p.out.put(recEnd, 0, nil) }() // must not wait for anybody
}

// Close ends it, on both sides.
func (p *farPipe) Close() {
	p.once.Do(func() {
		close(p.gone)
		_ = p.conn.Close()
		if !p.whole.Load() {
			// The far side does this, unless it was killed.
			p.spool.used.Store(true)
			p.spool.clean()
			_ = os.Remove(p.here)
		}
	})
}

// sharing is whether both sides see the same files; it is asked once.
type sharing struct {
	mu    sync.Mutex
	asked bool
	err   error
}

// shares asks the far side whether it sees a file that is made in dir here.
func (m *Mux) shares(ctx context.Context, dir string) error {
	m.probe.mu.Lock()
	defer m.probe.mu.Unlock()
	if m.probe.asked {
		return m.probe.err
	}
	name, text := newSpoolID()+".try", rand.Text()
	at := filepath.Join(dir, dirSpool)
	_ = os.Mkdir(at, 0o700)
	err := error(nil)
	if !socket.Own(at, true) {
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: at + " is not a private directory of this user"}
	} else if err = os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err == nil {
		var s *stream
		if s, _, err = m.ask(ctx, request{Kind: kindShared, Shared: &sharedRequest{Name: name, Text: text}}, nil); err == nil {
			s.Terminate()
		}
	}
	_ = os.Remove(filepath.Join(at, name))
	if ctx.Err() == nil {
		m.probe.asked, m.probe.err = true, err
	}
	return err
}

// checkBelow makes a path of one that is below dir.
func checkBelow(dir, rel string) (string, error) {
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: rel + " is no path below the environment's directory"}
	}
	return filepath.Join(dir, rel), nil
}
