package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"berth/internal/network/credentials"
	"berth/internal/network/judge"
	"berth/internal/sys/disk"
	"berth/jobs"
)

const (
	// MaxLines bounds the decisions of a file that have a line.
	MaxLines = 10000
	// maxFile is more than so many lines take; a reader reads no more.
	maxFile = 32 << 20
	// buffered are the lines that wait for the disk.
	buffered = 1024
	// closeTime is how long the end waits for the disk.
	closeTime = 5 * time.Second
)

// A Line is one of network.jsonl: a decision, or what is written between them.
type Line struct {
	Time time.Time `json:"time"`
	*judge.Entry
	Request *credentials.Use `json:"request,omitempty"` // that was carried with a key, or refused
	Allow   *Taken           `json:"allow,omitempty"`   // what the user has added
	Door    string           `json:"door,omitempty"`
	Note    string           `json:"note,omitempty"`
	Sum     *jobs.NetworkUse `json:"sum,omitempty"` // of all, where not all has a line; the last one counts
}

// Taken is an act of the user's that the supervisor has seen.
type Taken struct {
	jobs.NetworkAddition
	Trouble string `json:"trouble,omitempty"` // why its words do not hold
}

// A Log is network.jsonl while a supervisor writes it. It is safe for concurrent use.
type Log struct {
	file    io.WriteCloser
	lines   chan Line
	written chan struct{} // closed when nothing more is written

	mu     sync.Mutex
	sums   *sums
	have   int // decisions with a line
	closed bool
	seen   map[string]bool // acts of the user's
}

// Open opens the file of an attempt or an environment, and goes on with what stands there. A
// full one of an earlier keeper is set aside as PATH.1.
func Open(path string) (*Log, error) {
	old, err := load(path)
	if err != nil {
		return nil, err
	}
	if old.have >= MaxLines {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
		old = newLoaded()
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if old.torn {
		if _, err := f.Write([]byte{'\n'}); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return start(f, old), nil
}

func start(w io.WriteCloser, old *loaded) *Log {
	l := &Log{file: w, lines: make(chan Line, buffered), written: make(chan struct{}), sums: old.sums, have: old.have, seen: old.seen}
	go l.write()
	return l
}

// Record takes a decision. It does not wait for the disk.
func (l *Log) Record(e judge.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.add(&e)
	if l.have >= MaxLines || !l.put(Line{Time: e.Time, Entry: &e}) {
		l.sums.use.Unrecorded++
		return
	}
	l.have++
}

// Request takes a request of a credential's. It does not wait for the disk.
func (l *Log) Request(u credentials.Use) {
	u.Method, u.Model, u.Reason = text(u.Method), text(u.Model), text(u.Reason)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.have >= MaxLines || !l.put(Line{Time: u.Time, Request: &u}) {
		l.sums.use.Unrecorded++
		return
	}
	l.have++
}

// put has a line written, unless too many wait. The caller holds mu.
func (l *Log) put(line Line) bool {
	if l.closed {
		return false
	}
	select {
	case l.lines <- line:
		return true
	default:
		return false
	}
}

// Door notes how commands reach the judge: [jobs.DoorTransparent] or [jobs.DoorProxy].
func (l *Log) Door(door string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.use.Door = text(door)
	l.put(Line{Time: time.Now().UTC(), Door: l.sums.use.Door})
}

// Note notes what people should know of this network.
func (l *Log) Note(note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := len(l.sums.use.Notes); before < maxNotes {
		if l.sums.note(note); len(l.sums.use.Notes) > before {
			l.put(Line{Time: time.Now().UTC(), Note: text(note)})
		}
	}
}

// Summary is the sum of all decisions until now.
func (l *Log) Summary() *jobs.NetworkUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums.summary()
}

// Close writes what waits, and the sums where they say more than the lines. What is recorded
// after it is in the sums alone. A disk that does not answer is left after a while.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true // no other line is put
	var sum *jobs.NetworkUse
	if l.sums.use.Unrecorded > 0 {
		sum = l.sums.summary()
	}
	l.mu.Unlock()
	limit, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if sum != nil {
		select {
		case l.lines <- Line{Time: time.Now().UTC(), Sum: sum}:
		case <-limit.Done():
		}
	}
	close(l.lines)
	select {
	case <-l.written:
		return l.file.Close()
	case <-limit.Done():
		return errSlow
	}
}

var errSlow = errors.New("network.jsonl: the file system does not answer")

// write writes lines until there are none, and flushes whenever none waits.
func (l *Log) write() {
	defer close(l.written)
	w := bufio.NewWriterSize(l.file, 32<<10)
	lost := 0 // lines since the last flush
	var failed error
	flush := func() {
		if err := w.Flush(); err != nil {
			l.lose(lost, err, failed == nil)
			failed = err
			w.Reset(l.file) // the next line is tried again
		}
		lost = 0
	}
	for line := range l.lines {
		b, err := json.Marshal(line)
		if err != nil { // of a number that is none
			l.lose(1, err, true)
			continue
		}
		if w.Buffered()+len(b) >= w.Size() {
			flush()
		}
		_, _ = w.Write(append(b, '\n'))
		if line.Entry != nil || line.Request != nil {
			lost++
		}
		if len(l.lines) == 0 {
			flush()
		}
	}
	flush()
}

// lose counts lines that were not written.
func (l *Log) lose(n int, err error, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.use.Unrecorded += n
	if say {
		l.sums.note("network.jsonl could not be written: " + err.Error())
	}
}

// loaded is what stands in a file.
type loaded struct {
	sums  *sums
	lines []Line
	have  int
	torn  bool // its last line has no end
	seen  map[string]bool
	sum   *jobs.NetworkUse
}

func newLoaded() *loaded { return &loaded{sums: newSums(), seen: map[string]bool{}} }

// load reads a file; one that is not there is empty.
func load(path string) (*loaded, error) {
	out := newLoaded()
	f, err := disk.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return out, out.read(io.LimitReader(f, maxFile))
}

// maxLine bounds a line: the sums are the longest.
const maxLine = 4 << 20

// read takes lines. One that is cut off, or is none, is left out.
func (o *loaded) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(b) <= maxLine {
			b = append(b, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			o.torn = len(b) > 0
			return nil
		case err != nil:
			return err
		}
		var line Line
		if len(b) <= maxLine && json.Unmarshal(b, &line) == nil {
			o.take(line)
		}
		b = b[:0]
	}
}

func (o *loaded) take(line Line) {
	switch {
	case line.Sum != nil:
		o.sum = line.Sum
		o.sums.use.Unrecorded = max(line.Sum.Unrecorded, 0)
	case line.Allow != nil:
		o.seen[line.Allow.ID] = true
		o.sums.take(line.Allow)
	case line.Door != "":
		o.sums.use.Door = text(line.Door)
	case line.Note != "":
		o.sums.note(line.Note)
	case line.Request != nil && o.have < MaxLines:
		line.Request.Time = line.Time
		o.sums.ask(&line.Request.Usage)
		o.have++
	case line.Entry == nil || line.Decision == "" || o.have >= MaxLines:
		return
	default:
		line.Entry.Time = line.Time
		o.sums.add(line.Entry)
		o.have++
		o.sum = nil // a later keeper has gone on
	}
	o.lines = append(o.lines, line)
}
