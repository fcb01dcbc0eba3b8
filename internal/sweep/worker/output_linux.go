package worker

import (
	"fmt"
	"sync"
	"time"

	"berth/internal/sweep/journal"
)

// Limits of what is kept of a stream.
const (
	mostHead = 8 << 20
	mostTail = 1 << 20
	mostPart = 64 << 10 // that waits in memory
)

// keeper keeps what a task writes: of each stream, and of its metrics, the first 8 MiB and the
// last MiB.
type keeper struct {
	w          *journal.Writer
	task       uint32
	generation uint16
	start      journal.Record
	metrics    *metrics

	mu      sync.Mutex
	seen    time.Time // when [keeper.progress] looked last
	last    journal.Place
	streams [3]kept
}

type kept struct {
	part []byte // not yet in the journal
	head int    // bytes of the head
	tail []byte // the last ones behind it, up to twice mostTail
	more int    // bytes behind the head
}

// add takes what a stream has written: 1 is the standard output, 2 the error.
func (k *keeper) add(stream int, b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put(stream, b)
}

func (k *keeper) put(stream int, b []byte) error {
	s := &k.streams[stream-1]
	if n := min(len(b), mostHead-s.head); n > 0 {
		s.part = append(s.part, b[:n]...)
		s.head += n
		b = b[n:]
		if len(s.part) >= mostPart {
			if err := k.write(stream); err != nil {
				return err
			}
		}
	}
	s.more += len(b)
	s.tail = append(s.tail, b...)
	if len(s.tail) > 2*mostTail {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-mostTail:]...)
	}
	return nil
}

func (k *keeper) write(stream int) error {
	s := &k.streams[stream-1]
	if len(s.part) == 0 {
		return nil
	}
	var err error
	k.last, err = k.w.Output(k.task, k.generation, journal.Stream(stream), k.last, s.part)
	s.part = s.part[:0]
	return err
}

// flush writes what is left.
func (k *keeper) flush() error {
	for i := range k.streams {
		s := &k.streams[i]
		if len(s.tail) > mostTail {
			s.tail = s.tail[len(s.tail)-mostTail:]
		}
		if left := s.more - len(s.tail); left > 0 {
			s.part = fmt.Appendf(s.part, "\n[berth: %d bytes are left out here]\n", left)
		}
		s.part = append(s.part, s.tail...)
		if err := k.write(i + 1); err != nil {
			return err
		}
	}
	return nil
}
