package mux

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/sys/socket"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// seenTime is how long a file of the other machine may take to be seen.
const seenTime = 2 * time.Second

// shared tells whether a file of the near side is seen here.
func (f *farSide) shared(r *sharedRequest) answer {
	if r == nil || strings.ContainsRune(r.Name, '/') {
		return refusal(&jobs.Error{Kind: jobs.KindUsage, Msg: "no file is named"})
	}
	path := filepath.Join(f.dir, dirSpool, r.Name)
	for until := time.Now().Add(seenTime); ; time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil && string(b) == r.Text {
			return opened()
		}
		if time.Now().After(until) {
			return refusal(&jobs.Error{Kind: jobs.KindConfig, Msg: f.dir + " is not the same directory on both machines"})
		}
	}
}

// pipe makes a named pipe and stands at it in the client's place.
func (f *farSide) pipe(s *stream) {
	f.work.Add(1)
	defer f.work.Done()
	p, err := f.makePipe(s.Request.Pipe)
	if err != nil {
		s.Finish(refusal(err))
		return
	}
	defer p.close()
	go func() { // wakes who writes to a guest that does not read
		<-s.Over()
		p.close()
	}()
	if s.Accept(answer{Report: opened().Report, Pipe: filepath.Base(p.path)}) != nil {
		return
	}
	c := s.Conn()
	p.out = &records{w: c}
	if p.into {
		err = p.fill(c)
	} else {
		err = p.empty(c)
	}
	if err != nil {
		_ = p.out.trouble(err)
	}
	p.shut()
	// The last words are taken before the conversation ends, and with them the
	// files that were sent in front of them.
	s.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	s.Finish(opened())
}

// standIn is a named pipe of which the client's end is here.
type standIn struct {
	path  string
	into  bool
	spool *spool
	out   *records
	ended atomic.Bool // the guest has closed its end

	mu     sync.Mutex
	file   *os.File
	closed bool
}

// makePipe makes one and opens it, for reading or for both.
func (f *farSide) makePipe(r *pipeRequest) (*standIn, error) {
	if r == nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "no directory is named"}
	}
	if err := checkSpoolID(r.Spool); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Err: err}
	}
	dir, err := checkBelow(f.dir, r.Dir)
	if err != nil {
		return nil, err
	}
	if !socket.Own(dir, true) {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: dir + " is not a private directory of this user, so no named pipe can be in it"}
	}
	p := &standIn{into: r.Into, path: filepath.Join(dir, rand.Text()), spool: &spool{dir: filepath.Join(f.dir, dirSpool), id: r.Spool}}
	flag := unix.O_RDONLY
	if p.into {
		flag = unix.O_RDWR // the guest's open finds a writer, and its reads no end
	}
	if err := unix.Mkfifo(p.path, 0o600); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a named pipe", Err: err}
	}
	if p.file, err = openFIFO(p.path, flag); err != nil {
		_ = os.Remove(p.path)
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "open a named pipe", Err: err}
	}
	return p, nil
}

func openFIFO(path string, flag int) (*os.File, error) {
	fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s is no named pipe", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// close ends it, and removes what is left; it may be called more than once.
func (p *standIn) close() {
	p.shut()
	p.spool.clean()
}

// shut ends the named pipe.
func (p *standIn) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		_ = os.Remove(p.path)
		_ = p.file.Close()
	}
}

// write makes the pipe one for writing. This end is closed for reading first:
// the guest may go away.
func (p *standIn) write() error {
	w, err := openFIFO(p.path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_ = os.Remove(p.path)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = w.Close()
		return os.ErrClosed
	}
	_ = p.file.Close()
	p.file = w
	return nil
}

// empty sends what comes out of the pipe to the near side.
func (p *standIn) empty(c io.Reader) error {
	begun, gone := make(chan struct{}), make(chan struct{})
	taken := make(chan struct{}, maxChunks)
	go func() {
		defer close(gone)
		defer func() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) }()
		defer p.ended.Store(true)
		for first := true; ; {
			kind, _, err := take(c)
			if err != nil {
				return
			}
			switch kind {
			case recGo:
				if first {
					first = false
					close(begun)
				}
			case recEnd:
				p.ended.Store(true)
				_ = p.file.SetReadDeadline(time.Unix(1, 0))
			case recTaken:
				select {
				case taken <- struct{}{}:
				default:
				}
			}
		}
	}()
	select {
	case <-begun:
	case <-gone:
		return nil
	}
	_ = os.Remove(p.path) // both ends are open: no other process comes in
	s := &sending{spool: p.spool, out: p.out, taken: taken, gone: gone}
	err := s.run(&fifoSource{p: p})
	if err == nil {
		<-gone // the files are the near side's until it leaves
	}
	return err
}

// fifoSource is what comes out of a named pipe, up to the guest's end.
type fifoSource struct {
	p    *standIn
	left int // that may still be read when the guest has closed its end
}

// mostInPipe is what a named pipe can hold here: a process that goes on writing
// into it does not keep it from ending.
const mostInPipe = 1 << 20

func (s *fifoSource) read(b []byte, idle bool) (int, error) {
	var until time.Time
	if idle {
		until = time.Now().Add(idleTime)
	}
	_ = s.p.file.SetReadDeadline(until)
	if s.p.ended.Load() {
		_ = s.p.file.SetReadDeadline(time.Unix(1, 0))
	}
	n, err := s.p.file.Read(b)
	switch {
	case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
		return n, err
	case !s.p.ended.Load():
		return 0, errIdle
	}
	return s.rest(b)
}

// rest takes what is in the pipe, and does not wait for a writer.
func (s *fifoSource) rest(b []byte) (n int, err error) {
	if s.left >= mostInPipe {
		return 0, io.EOF
	}
	rc, err := s.p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	err = rc.Control(func(fd uintptr) {
		for {
			if n, rerr = unix.Read(int(fd), b); !errors.Is(rerr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil || rerr != nil || n <= 0 {
		return 0, io.EOF // it is empty, or was closed
	}
	s.left += n
	return n, nil
}

// fill puts what the near side sends into the pipe.
func (p *standIn) fill(c io.Reader) error {
	in := receiving{spool: p.spool}
	buf := make([]byte, chunkBuffer)
	for {
		kind, n, err := take(c)
		if err != nil {
			return nil // it has left: the guest waits for the end of the channel
		}
		switch kind {
		case recGo:
			if err := p.write(); err != nil {
				return err
			}
		case recBytes:
			b := buf[:n]
			if _, err := io.ReadFull(c, b); err != nil {
				return nil
			}
			if _, err := p.file.Write(b); err != nil {
				return p.refused(err)
			}
		case recChunk:
			if err := in.chunk(p.file, n, buf); err != nil {
				return p.refused(err)
			}
			if err := p.out.put(recTaken, 0, nil); err != nil {
				return nil
			}
		case recOver:
			_ = p.file.Close()
			return p.out.put(recOver, 0, nil)
		}
	}
}

// refused explains why the pipe takes no more: a guest that has closed it has
// its own reasons, and tells them.
func (p *standIn) refused(err error) error {
	if errors.Is(err, unix.EPIPE) {
		return p.out.put(recOver, 0, nil)
	}
	return err
}
