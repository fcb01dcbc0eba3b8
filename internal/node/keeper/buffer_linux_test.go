package keeper

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"berth/internal/sys/lease"
)

// syncBuffer is a buffer for both streams of a command.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func selfProcess() lease.Process { return lease.Self() }

func writeFile(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// endKeeper ends the environment's keeper in order and waits for that.
func endKeeper(t *testing.T, e *env) {
	t.Helper()
	if i := e.info(); i != nil {
		if err := syscall.Kill(i.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	eventually(t, "the keeper ends", func() bool { return !Alive(e.dir) })
}
