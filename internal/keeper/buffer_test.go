package keeper

import (
	"bytes"
	"sync"

	"berth/internal/lease"
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
