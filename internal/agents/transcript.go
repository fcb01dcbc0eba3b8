package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// Bounds of a transcript.
const (
	maxEvents     = 200_000
	maxTranscript = 64 << 20 // bytes
	maxEventLine  = 128 << 10
)

// A Transcript is transcript.jsonl while a runner writes it: one line for each event. It
// is not safe for concurrent use.
type Transcript struct {
	file   io.WriteCloser
	w      *bufio.Writer
	events int
	bytes  int64
	cut    int   // events that were left out
	err    error // of the file: what follows is not tried
}

// OpenTranscript opens one, and goes on with what stands there.
func OpenTranscript(path string) (*Transcript, error) {
	t := &Transcript{}
	torn := false
	switch f, err := disk.OpenRegular(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		last := byte('\n')
		in := bufio.NewReaderSize(io.LimitReader(f, 2*maxTranscript), 64<<10)
		for err == nil {
			var part []byte
			part, err = in.ReadSlice('\n')
			if n := len(part); n > 0 {
				t.bytes, last = t.bytes+int64(n), part[n-1]
				if last == '\n' {
					t.events++
				}
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
		}
		_ = f.Close()
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		torn = last != '\n'
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	t.file, t.w = f, bufio.NewWriterSize(f, 32<<10)
	if torn {
		_ = t.w.WriteByte('\n')
	}
	return t, nil
}

// Write takes an event. Beyond the bounds all but ends are left out.
func (t *Transcript) Write(e Event) {
	if t.events >= maxEvents || t.bytes >= maxTranscript {
		if t.cut++; e.Kind != KindEnd {
			return
		}
	}
	t.put(e)
}

func (t *Transcript) put(e Event) {
	b, err := json.Marshal(e)
	if err != nil || t.err != nil {
		return
	}
	b = append(b, '\n')
	t.events++
	t.bytes += int64(len(b))
	_, t.err = t.w.Write(b)
}

// Flush writes what is held back, for who reads it meanwhile.
func (t *Transcript) Flush() {
	if t.err == nil {
		t.err = t.w.Flush()
	}
}

// Close ends it. The error is the first one that there was.
func (t *Transcript) Close() error {
	if t.cut > 0 {
		t.put(Event{Kind: KindCut, Time: time.Now().UTC(), Turns: min(t.cut, 1<<20)})
	}
	t.Flush()
	return errors.Join(t.err, t.file.Close())
}

// ReadTranscript hands over the events of one, bounded and printable. A line that is
// none, or cut off, is left out. An error of take's ends it and is returned.
func ReadTranscript(r io.Reader, take func(Event) error) error {
	in := bufio.NewReaderSize(io.LimitReader(r, 2*maxTranscript), 64<<10)
	var b []byte
	for n := 0; n < 2*maxEvents; {
		part, err := in.ReadSlice('\n')
		if len(b) <= maxEventLine {
			b = append(b, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		n++
		var e Event
		if len(b) <= maxEventLine && json.Unmarshal(bytes.TrimSpace(b), &e) == nil && e.Kind != "" {
			e.Clean()
			if err := take(e); err != nil {
				return err
			}
		}
		b = b[:0]
	}
	return nil
}

// UseOf is what an agent has done by the transcript at this path, with the times that stand
// in it: of an attempt that left no last word. nil is that there is none. With an error the
// transcript could not be read to its end, and it is what was read.
func UseOf(path string, a *jobs.Agent, prices jobs.Prices) (*jobs.AgentUse, error) {
	f, err := disk.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var at time.Time
	m := NewMeter(jobs.Caps{}, a, prices, func() time.Time { return at })
	err = ReadTranscript(f, func(e Event) error {
		at = e.Time
		m.Event(e)
		return nil
	})
	use := m.Use()
	return &use, err
}
