package keeper

import (
	"io"
	"os"
	"sync"
)

// Bounds of an environment's runtime.log.
const (
	maxRuntimeLog  = 4 << 20
	keptRuntimeLog = 256 << 10 // of earlier keepers
)

// openLog opens a log for appending, and keeps only the end of what earlier
// keepers have written.
func openLog(path string) (*limited, error) {
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxRuntimeLog/4 {
		if err := keepEnd(path, fi.Size()); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &limited{f: f, left: maxRuntimeLog}, nil
}

// keepEnd shortens a file in place, because whoever has it open appends to it.
func keepEnd(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := io.ReadAll(io.NewSectionReader(f, size-keptRuntimeLog, keptRuntimeLog))
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(end, 0)
	return err
}

// limited is a file that takes only so much; the rest is thrown away, after a
// word that says so.
type limited struct {
	mu   sync.Mutex
	f    *os.File
	left int
}

// Write never fails: nobody may be held up by a log.
func (l *limited) Write(p []byte) (int, error) {
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
