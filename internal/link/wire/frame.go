package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Type says what a frame is.
type Type uint8

// The types of frames. Their numbers never change.
const (
	Hello       Type = 1  // both ways, first
	Ping        Type = 2  // client: its owner still stands
	Pong        Type = 3  // guest: its answer
	Start       Type = 4  // client: begin a command on this stream
	Exit        Type = 5  // guest: how the command of this stream ended
	Signal      Type = 6  // client: to the command of this stream
	Terminate   Type = 7  // client: end the command of this stream
	End         Type = 8  // client: end all commands
	Ended       Type = 9  // guest: its answer, on the same stream number
	Quit        Type = 10 // client: end all commands and leave. keeper: it leaves, and has read no stream after this one
	Credit      Type = 11 // both ways: bytes of a channel are done with
	Resize      Type = 12 // client: the new size of the command's terminal
	Started     Type = 13 // guest: the command of this stream has begun
	Environ     Type = 14 // client: what sets the environment of commands, before the first. guest: its answer, on the same stream number
	Query       Type = 15 // guest: may a name be reached? client: its answer, on the same stream
	Flow        Type = 16 // guest: a connection that was made inside. client: what was decided, where that was asked for
	FlowEnd     Type = 17 // both ways: nothing more of a flow passes
	Literals    Type = 18 // client: addresses that are allowed from now on, for the room
	Divert      Type = 19 // client: a named pipe for the rest of this stream's output. guest: here it goes on in that
	FlowRefused Type = 20 // client: it has not taken a connection that was offered
	Ask         Type = 21 // guest: what a program inside wants of berth. client: its answer, on the same stream
	Stdin       Type = 128
	Stdout      Type = 129
	Stderr      Type = 130
	PromptData  Type = 131
	FlowUp      Type = 132 // guest: bytes of a connection inside
	FlowDown    Type = 133 // client: bytes to it
	Report      Type = 134 // guest: what a command says besides its output, see [StartMessage.Report]
)

// OfGuest is in the numbers of streams that the guest begins: of queries and flows.
const OfGuest = 1 << 31

// raw tells whether the payload of a type is bytes of a channel.
func (t Type) raw() bool { return t >= Stdin }

// most is the longest payload of a type.
func (t Type) most() int {
	switch {
	case t.raw():
		return MaxData
	case t == Start:
		return MaxStart
	}
	return MaxMessage
}

// Limits of the protocol.
const (
	MaxData    = 64 << 10 // payload of a raw frame
	MaxMessage = 4 << 20  // payload of a message: argv and environment of a command fit (execve(2))
	MaxStart   = 24 << 20 // payload of a [Start], in which a text of [jobs.MaxCommand] fits
	header     = 9
)

// Frame is one unit of the protocol.
type Frame struct {
	Type    Type
	Stream  uint32
	Payload []byte
}

// Decode reads the message that a frame carries.
func (f Frame) Decode(v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("read message of type %d: %w", f.Type, err)
	}
	return nil
}

// ErrTooLong is a frame whose announced length breaks the protocol.
var ErrTooLong = errors.New("frame is too long")

// Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	r    *bufio.Reader
	buf  []byte
	seal *sealer // nil until the hellos are over
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 32<<10)}
}

// step is how much memory a length that was only announced may cost.
const step = 64 << 10

// Next reads a frame, whose payload is valid until the next call. The error is
// io.EOF only between two frames, and ErrTampered for a wrong seal.
func (r *Reader) Next() (Frame, error) {
	var h [header]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Type: Type(h[0]), Stream: binary.BigEndian.Uint32(h[1:])}
	length := int64(binary.BigEndian.Uint32(h[5:]))
	most := int64(f.Type.most())
	if r.seal != nil {
		most += sealSize
	}
	if length > most {
		return Frame{}, fmt.Errorf("type %d, %d bytes: %w", f.Type, length, ErrTooLong)
	}
	// The buffer grows as the bytes come, so that only bytes cost memory and
	// not the promise of them; a large one is not kept. The header stands
	// before them, because the seal is over both.
	if cap(r.buf) > header+step+sealSize {
		r.buf = nil
	}
	r.buf = append(r.buf[:0], h[:]...)
	length += header
	for n := int64(header); n < length; n = int64(len(r.buf)) {
		more := int(min(length-n, max(step, n)))
		r.buf = append(r.buf, make([]byte, more)...)
		if _, err := io.ReadFull(r.r, r.buf[n:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	f.Payload = r.buf[header:]
	if r.seal != nil {
		var err error
		f.Payload, err = r.seal.check(r.buf)
		return f, err
	}
	return f, nil
}

// Serve has every frame taken, until that or reading fails, and returns that error.
// take must not wait for anything, and the payload of a frame is valid until it returns.
func (r *Reader) Serve(take func(f Frame) error) error {
	for {
		f, err := r.Next()
		if err == nil {
			err = take(f)
		}
		if err != nil {
			return err
		}
	}
}

// Writer writes frames, each in one call of the underlying Write. It is safe
// for concurrent use; a writer that fails once fails for ever.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	buf  []byte
	err  error
	seal *sealer // nil until the hellos are over
	held bool
	wait []byte // frames that are held back

	start atomic.Int64 // longest payload of a Start that the other side takes; 0 is MaxMessage
}

// Takes says what the other side has said of itself: how long the payload of a
// [Start] may be. An earlier version says nothing, and takes [MaxMessage].
func (w *Writer) Takes(start int) { w.start.Store(int64(min(start, MaxStart))) }

// most is the longest payload of a type that the other side takes.
func (w *Writer) most(t Type) int {
	if t == Start {
		return max(int(w.start.Load()), MaxMessage)
	}
	return t.most()
}

// Hold makes frames wait for [Writer.Release], so that many go out in one call
// of the underlying Write; much of them does not wait.
func (w *Writer) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

// Release sends what was held back.
func (w *Writer) Release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	return w.flush()
}

// flush sends what was held back. The caller holds w.mu.
func (w *Writer) flush() error {
	if w.err == nil && len(w.wait) > 0 {
		_, w.err = w.w.Write(w.wait)
	}
	if cap(w.wait) > MaxData {
		w.wait = nil
	}
	w.wait = w.wait[:0]
	return w.err
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Message sends v as JSON; a nil v is an empty object.
func (w *Writer) Message(t Type, stream uint32, v any) error {
	payload := []byte("{}")
	if v != nil {
		var err error
		if payload, err = json.Marshal(v); err != nil {
			return fmt.Errorf("write message of type %d: %w", t, err)
		}
	}
	if len(payload) > w.most(t) {
		return fmt.Errorf("write message of type %d, %d bytes: %w", t, len(payload), ErrTooLong)
	}
	return w.write(t, stream, payload)
}

// Data sends bytes of a channel, at most [MaxData]; none at all ends it.
func (w *Writer) Data(t Type, stream uint32, p []byte) error {
	if len(p) > MaxData {
		return fmt.Errorf("write data of type %d, %d bytes: %w", t, len(p), ErrTooLong)
	}
	return w.write(t, stream, p)
}

// Forward sends a frame whose payload the caller took from another frame of the
// same type, a message or bytes, and does not look into.
func (w *Writer) Forward(t Type, stream uint32, payload []byte) error {
	if len(payload) > w.most(t) {
		return fmt.Errorf("forward a frame of type %d, %d bytes: %w", t, len(payload), ErrTooLong)
	}
	return w.write(t, stream, payload)
}

func (w *Writer) write(t Type, stream uint32, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	b := append(w.buf[:0], byte(t))
	b = binary.BigEndian.AppendUint32(b, stream)
	length := len(payload)
	if w.seal != nil {
		length += sealSize
	}
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = append(b, payload...)
	if w.seal != nil {
		b = append(b, w.seal.next(b)...)
	}
	if cap(b) <= header+2*(MaxData+sealSize) {
		w.buf = b
	}
	if w.held && len(w.wait)+len(b) <= MaxData {
		w.wait = append(w.wait, b...)
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	_, w.err = w.w.Write(b)
	return w.err
}
