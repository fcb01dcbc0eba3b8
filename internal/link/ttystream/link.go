package ttystream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// Window is how much of one direction may be on its way, in bytes of frames.
	Window = 128 << 10
	// piece is the least that a frame counts: less than what a terminal hands
	// over at once when there is more.
	piece  = 1 << 10
	header = 3
	// most is the payload of a frame: with its header a multiple of what the
	// kernel passes through a terminal at once.
	most = 16<<10 - header
)

// The types of frames.
const (
	typeData   = 'D'
	typeErr    = 'E' // what the side inside says to people
	typeCredit = 'C' // 4 bytes: the size of frames that were taken
	typeEnd    = 'X' // no more data will come from that side
)

// ErrBroken is a stream that is not what the other side has sent.
var ErrBroken = errors.New("the terminal did not carry the stream as it was sent")

// Link is one side of a stream. Read is for one goroutine, Write for any.
type Link struct {
	out io.Writer
	wmu sync.Mutex // one frame after the other

	mu     sync.Mutex
	change sync.Cond
	credit int
	chunks []chunk // arrived, not yet taken
	done   int     // size of what was taken and not yet told
	last   bool    // the other side has said that no more data comes
	broken error   // what carries the stream has ended
	said   bool    // CloseWrite was called
	people io.Writer
}

type chunk struct {
	data []byte
	size int
}

func newLink(out, people io.Writer) *Link {
	l := &Link{out: out, credit: Window, people: people}
	l.change.L = &l.mu
	return l
}

func sizeOf(payload int) int { return max(payload+header, piece) }

// Write sends p, waiting for credit.
func (l *Link) Write(p []byte) (int, error) { return l.send(typeData, p) }

func (l *Link) send(typ byte, p []byte) (written int, err error) {
	for len(p) > 0 {
		n := min(len(p), most)
		if err := l.take(sizeOf(n)); err != nil {
			return written, err
		}
		if err := l.frame(typ, p[:n]); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// take waits for credit and spends it.
func (l *Link) take(size int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.credit < size && l.broken == nil && !l.said {
		l.change.Wait()
	}
	if l.said || l.broken != nil {
		return io.ErrClosedPipe
	}
	l.credit -= size
	return nil
}

func (l *Link) frame(typ byte, p []byte) error {
	b := make([]byte, header, header+len(p))
	b[0] = typ
	binary.BigEndian.PutUint16(b[1:], uint16(len(p)))
	b = append(b, p...)
	l.wmu.Lock()
	defer l.wmu.Unlock()
	_, err := l.out.Write(b)
	return err
}

// CloseWrite tells the other side that no more data comes.
func (l *Link) CloseWrite() error {
	l.mu.Lock()
	again := l.said
	l.said = true
	l.change.Broadcast()
	l.mu.Unlock()
	if again {
		return nil
	}
	return l.frame(typeEnd, nil)
}

// Read takes what has arrived.
func (l *Link) Read(p []byte) (int, error) {
	l.mu.Lock()
	for len(l.chunks) == 0 && !l.last && l.broken == nil {
		l.change.Wait()
	}
	if len(l.chunks) == 0 {
		defer l.mu.Unlock()
		if l.last {
			return 0, io.EOF
		}
		return 0, l.broken
	}
	c := &l.chunks[0]
	n := copy(p, c.data)
	c.data = c.data[n:]
	if len(c.data) == 0 {
		l.done += c.size
		l.chunks[0] = chunk{}
		l.chunks = l.chunks[1:]
	}
	tell := 0
	if l.done >= Window/4 && !l.last && l.broken == nil {
		tell, l.done = l.done, 0
	}
	l.mu.Unlock()
	if tell > 0 {
		// A side that cannot be told will find no more to read, either.
		_ = l.frame(typeCredit, binary.BigEndian.AppendUint32(nil, uint32(tell)))
	}
	return n, nil
}

// fail ends the stream: Read returns err after what has arrived.
func (l *Link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
	l.change.Broadcast()
}

// run reads frames until what carries them ends: after the other side's last
// data, its credit still comes.
func (l *Link) run(r *bufio.Reader) {
	for {
		if err := l.next(r); err != nil {
			l.fail(err)
			return
		}
	}
}

func (l *Link) next(r *bufio.Reader) error {
	var h [header]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return cut(err)
	}
	switch h[0] {
	case typeData, typeErr, typeCredit, typeEnd:
	default:
		return fmt.Errorf("%w: a frame of type %#x", ErrBroken, h[0])
	}
	p := make([]byte, binary.BigEndian.Uint16(h[1:]))
	if len(p) > most {
		return fmt.Errorf("%w: a frame of %d bytes", ErrBroken, len(p))
	}
	if _, err := io.ReadFull(r, p); err != nil {
		return cut(err)
	}
	switch h[0] {
	case typeData:
		return l.arrived(p)
	case typeErr:
		return l.heard(p)
	case typeCredit:
		return l.granted(p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = true
	l.change.Broadcast()
	return nil
}

// cut is the end of what carries the stream, which is no end of the stream.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (l *Link) arrived(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.done
	for _, c := range l.chunks {
		waiting += c.size
	}
	if len(p) == 0 || l.last || waiting+sizeOf(len(p)) > Window {
		return fmt.Errorf("%w: more than was allowed", ErrBroken)
	}
	l.chunks = append(l.chunks, chunk{p, sizeOf(len(p))})
	l.change.Broadcast()
	return nil
}

// heard passes on what the side inside says to people. It is little, and is
// taken at once.
func (l *Link) heard(p []byte) error {
	if l.people != nil {
		_, _ = l.people.Write(p)
	}
	return l.frame(typeCredit, binary.BigEndian.AppendUint32(nil, uint32(sizeOf(len(p)))))
}

func (l *Link) granted(p []byte) error {
	if len(p) != 4 {
		return fmt.Errorf("%w: a credit of %d bytes", ErrBroken, len(p))
	}
	n := binary.BigEndian.Uint32(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > Window || int(n) > Window-l.credit {
		return fmt.Errorf("%w: credit for what was never sent", ErrBroken)
	}
	l.credit += int(n)
	l.change.Broadcast()
	return nil
}
