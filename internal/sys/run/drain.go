package run

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Times of a [Drain] once the writer has ended.
const (
	drainSilence = 200 * time.Millisecond // this long without data is the end
	drainLimit   = 2 * time.Second        // no longer than this for what others write
)

// mostLate bounds what is still taken from others behind drainLimit.
const mostLate = 1 << 20

// Drain copies what a process writes into a pipe. As long as the process
// lives, it copies until the end of the file. Once [Drain.Ended] was called it
// still copies everything that the pipe held at that moment, however slow the
// receiver is, and then waits only shortly for the end of the file: a process
// left in the background may hold the pipe open for ever.
type Drain struct {
	r       *os.File
	once    sync.Once
	ended   chan struct{}
	silence time.Duration // drainSilence
}

// Buffers of a [Drain]: most commands write little.
const (
	smallBuffer = 32 << 10
	largeBuffer = 256 << 10
)

// NewDrain returns a Drain of r, which must be the pollable read end of a pipe
// (as os.Pipe makes it). The Drain closes r.
func NewDrain(r *os.File) *Drain {
	return &Drain{r: r, ended: make(chan struct{}), silence: drainSilence}
}

// Ended says that the process has ended. It may be called more than once.
func (d *Drain) Ended() {
	d.once.Do(func() {
		// Wakes a Read that waits for data; Copy sets new deadlines itself once
		// ended is closed, which this one must not replace.
		_ = d.r.SetReadDeadline(time.Unix(1, 0))
		close(d.ended)
	})
}

// Copy copies to w until the end as the type describes it, and closes the
// pipe. When w fails, the pipe is closed at once, so that the process sees
// EPIPE as it would in a shell's pipeline, and the error is returned.
func (d *Drain) Copy(w io.Writer) error {
	defer func() { _ = d.r.Close() }()
	buf := make([]byte, smallBuffer)
	var last time.Time // zero while the process lives
	owed := 0          // bytes that were in the pipe when it ended
	late := mostLate
	for {
		if last.IsZero() {
			select {
			case <-d.ended:
				last = time.Now().Add(drainLimit)
				owed = d.buffered()
			default:
			}
		}
		if !last.IsZero() {
			wait := time.Now().Add(d.silence)
			if owed <= 0 && wait.After(last) {
				wait = last
			}
			_ = d.r.SetReadDeadline(wait)
		}
		n, err := d.r.Read(buf)
		if !last.IsZero() && errors.Is(err, os.ErrDeadlineExceeded) && (owed > 0 || late > 0) {
			// The deadline is one of this process, which may have stood still
			// until it was over: what is there counts.
			if n = d.readNow(buf); n > 0 {
				late -= n
				err = nil
			}
		}
		if n > 0 {
			owed -= n
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if n == len(buf) && n < largeBuffer {
				buf = make([]byte, largeBuffer) // there is much
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && last.IsZero():
			// Ended woke us; the next round sees it.
		default:
			// The end of the file, silence, or a pipe that broke: all that
			// the process wrote is out.
			return nil
		}
	}
}

// readNow reads what is in the pipe; 0 is that there is nothing.
func (d *Drain) readNow(b []byte) (n int) {
	rc, err := d.r.SyscallConn()
	if err != nil {
		return 0
	}
	_ = rc.Control(func(fd uintptr) {
		for {
			var err error
			if n, err = unix.Read(int(fd), b); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return max(n, 0)
}

// buffered returns how many bytes wait in the pipe.
func (d *Drain) buffered() (n int) {
	rc, err := d.r.SyscallConn()
	if err != nil {
		return 0
	}
	_ = rc.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), fionread)
	})
	return n
}
