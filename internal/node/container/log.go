package container

import (
	"io"
	"os"
	"sync"
)

// Bounds of a runtime.log.
const (
	MaxLog  = 4 << 20
	keptLog = 256 << 10 // of earlier keepers
)

// OpenLog opens the log of an attempt or an environment for appending, and keeps
// only the end of what earlier keepers have written.
func OpenLog(path string) (*Log, error) {
	if fi, err := os.Stat(path); err == nil && fi.Size() > MaxLog/4 {
		if err := keepEnd(path, fi.Size()); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{f: f, left: MaxLog}, nil
}

// keepEnd shortens a file in place, because whoever has it open appends to it.
func keepEnd(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := io.ReadAll(io.NewSectionReader(f, size-keptLog, keptLog))
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(end, 0)
	return err
}

// Log is a file that takes only so much, [MaxLog]; the rest is thrown away, after a
// word that says so.
type Log struct {
	mu   sync.Mutex
	f    *os.File
	left int
}

// Write never fails: a log must not hold up its writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left <= 0 {
		return len(p), nil
	}
	if l.left -= len(p); l.left <= 0 {
		_, _ = l.f.WriteString("berth: this log has reached its limit\n")
		return len(p), nil
	}
	_, _ = l.f.Write(p)
	return len(p), nil
}

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }
