package keeper

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"berth/jobs"
)

// maxLog bounds the log of a background process.
const maxLog = 256 * jobs.MiB

// bgLog is the log of a background process: both its streams, as they come. It
// is safe for concurrent use.
type bgLog struct {
	mu      sync.Mutex
	f       *os.File
	size    int64
	cut     bool
	closed  bool
	changed chan struct{} // closed and replaced with every change
}

func newBGLog(path string) (*bgLog, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &bgLog{f: f, changed: make(chan struct{})}, nil
}

// Write keeps the first part and throws the rest away, so that the process is
// not held up.
func (l *bgLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return len(p), nil
	}
	keep := p
	over := int64(len(p)) > int64(maxLog)-l.size
	if over {
		keep = p[:int64(maxLog)-l.size]
	}
	n, err := l.f.Write(keep)
	l.size += int64(n)
	if over && err == nil {
		l.cut = true
		n, _ := fmt.Fprintf(l.f, "\nberth: only the first %s of the log are kept\n", maxLog)
		l.size += int64(n)
	}
	l.wake()
	if err != nil {
		return n, err
	}
	return len(p), nil
}

func (l *bgLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// state returns how long it is, and whether it has reached its limit.
func (l *bgLog) state() (size int64, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.cut
}

// close ends it.
func (l *bgLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.wake()
	return l.f.Close()
}

// grown waits until it is longer than at, or closed.
func (l *bgLog) grown(ctx context.Context, at int64) (more bool, err error) {
	for {
		l.mu.Lock()
		size, closed, changed := l.size, l.closed, l.changed
		l.mu.Unlock()
		if size > at || closed {
			return size > at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// copyLog writes the log at path to w, from an offset on, which counts from
// the end when it is negative. With a live log it goes on until that is closed.
func copyLog(ctx context.Context, path string, offset int64, live *bgLog, w io.Writer) error {
	if live == nil {
		return writeLog(ctx, path, offset, w)
	}
	f, _, err := openLog(path, offset)
	if err != nil {
		return err
	}
	defer f.Close()
	if offset, err = f.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	for {
		n, err := io.Copy(w, readable{ctx, f})
		offset += n
		if err != nil {
			return err
		}
		if more, err := live.grown(ctx, offset); !more {
			return err
		}
	}
}
