package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"berth/internal/sys/disk"
)

// ResultsFile is the name of a worker's results in its directory.
const ResultsFile = "results"

func outputFile(dir string, n uint32) string {
	return filepath.Join(dir, "output."+strconv.Itoa(int(n)))
}

// mostOutput is from which size on a file of output is followed by another one.
const mostOutput = 256 << 20

// Stream is which of a task's streams a frame is of.
type Stream uint8

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
	// Progress has the metrics of a task: lines NAME=VALUE.
	Progress Stream = 3
)

// frameHead is how many bytes stand before the bytes of a frame: length, sum, task,
// generation, stream, and the place of the frame before.
const frameHead = 32

// MostFrame is how many bytes a frame has at most.
const MostFrame = 1 << 20

// Writer writes the journal of one worker. It is safe for concurrent use.
type Writer struct {
	dir string

	mu      sync.Mutex
	results appender
	output  appender
	file    uint32
	most    int64 // mostOutput
	buf     []byte

	syncing sync.Mutex // one at a time; what is written meanwhile does not wait
	synced  [2]int64   // of output and results
	old     []*os.File // of output, that are complete
}

// appender is a file that ends with something whole.
type appender struct {
	f    *os.File
	size int64
}

// Create begins a journal in a worker's directory, which has none.
func Create(dir string) (*Writer, error) {
	w := &Writer{dir: dir, most: mostOutput}
	var err error
	if w.results.f, err = create(filepath.Join(dir, ResultsFile)); err != nil {
		return nil, err
	}
	return w, nil
}

func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, disk.SyncDir(filepath.Dir(path))
}

// add writes at the end. After a failure the file is as it was, so that what is
// written later stands behind something whole.
func (a *appender) add(b []byte) error {
	if _, err := a.f.WriteAt(b, a.size); err != nil {
		return errors.Join(err, a.f.Truncate(a.size))
	}
	a.size += int64(len(b))
	return nil
}

// Add records something.
func (w *Writer) Add(r Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = r.append(w.buf[:0])
	return w.results.add(w.buf)
}

// Output keeps what a task has written, and returns where. before is the place of
// its frame before this one.
func (w *Writer) Output(task uint32, generation uint16, s Stream, before Place, data []byte) (Place, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(data) > 0 {
		part := data[:min(len(data), MostFrame)]
		data = data[len(part):]
		if w.output.f == nil || w.output.size >= w.most {
			if err := w.nextOutput(); err != nil {
				return before, err
			}
		}
		b := binary.LittleEndian.AppendUint32(w.buf[:0], uint32(len(part)))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, task)
		b = binary.LittleEndian.AppendUint16(b, generation)
		b = append(b, byte(s), 0)
		b = binary.LittleEndian.AppendUint32(b, before.File)
		b = binary.LittleEndian.AppendUint64(b, before.Offset)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = append(b, part...)
		binary.LittleEndian.PutUint32(b[4:], checksum(b[8:]))
		w.buf = b
		at := Place{w.file, uint64(w.output.size)}
		if err := w.output.add(b); err != nil {
			return before, err
		}
		before = at
	}
	if cap(w.buf) > 256<<10 {
		w.buf = nil
	}
	return before, nil
}

func (w *Writer) nextOutput() error {
	f, err := create(outputFile(w.dir, w.file+1))
	if err != nil {
		return err
	}
	if w.output.f != nil {
		w.old = append(w.old, w.output.f)
	}
	w.file++
	w.output = appender{f: f}
	return nil
}

// Sync makes durable what was written: output before the results that name it.
func (w *Writer) Sync() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	old, now := w.old, []appender{w.output, w.results}
	w.old = nil
	w.mu.Unlock()
	for i, f := range old {
		if err := f.Sync(); err != nil {
			w.mu.Lock()
			w.old = append(old[i:len(old):len(old)], w.old...)
			w.mu.Unlock()
			return fmt.Errorf("sync the journal: %w", err)
		}
		_ = f.Close()
		w.synced[0] = 0
	}
	for i, a := range now {
		if a.f == nil || w.synced[i] == a.size {
			continue
		}
		if err := a.f.Sync(); err != nil {
			return fmt.Errorf("sync the journal: %w", err)
		}
		w.synced[i] = a.size
	}
	return nil
}

// Close syncs and ends it.
func (w *Writer) Close() error {
	err := w.Sync()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.old {
		_ = f.Close()
	}
	err = errors.Join(err, w.results.f.Close())
	if w.output.f != nil {
		err = errors.Join(err, w.output.f.Close())
	}
	return err
}
