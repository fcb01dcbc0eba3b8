package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/sweep/journal"
	"berth/internal/sweep/metric"
)

// progressEvery is how often what a task that runs has written is recorded.
const progressEvery = 5 * time.Second

// mostMetrics is how much of a file of metrics is read.
const mostMetrics = 16 << 20

// metrics is a file for the metrics of one task after the other. Most tasks write
// none, and have the file of the task before.
type metrics struct {
	w    *worker
	f    *os.File
	read int64
}

// file is the path of one that is empty, or "".
func (m *metrics) file() string {
	if m.f != nil {
		var st unix.Stat_t
		if err := unix.Fstat(int(m.f.Fd()), &st); err == nil && st.Size == 0 && st.Nlink == 1 {
			return m.f.Name()
		}
		m.close()
	}
	path := filepath.Join(m.w.dir, fmt.Sprintf("metrics.%d", m.w.files.Add(1)))
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		m.w.noMetrics.Do(func() { m.w.Log("tasks have no %s: %v", metric.Var, err) })
		return ""
	}
	m.f, m.read = f, 0
	return path
}

func (m *metrics) close() {
	if m.f != nil {
		_ = os.Remove(m.f.Name())
		_ = m.f.Close()
		m.f = nil
	}
}

// pump gives what is new to a keeper: whole lines, or all of it at the end. It reads by
// what it has opened, whatever the task has put there.
func (m *metrics) pump(k *keeper, end bool) error {
	if m.f == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.f.Fd()), &st); err != nil || st.Size <= m.read {
		return nil
	}
	for size := min(st.Size, mostMetrics); m.read < size; {
		b := make([]byte, min(size-m.read, journal.MostFrame))
		n, err := m.f.ReadAt(b, m.read)
		if b = b[:n]; !end || m.read+int64(n) < size {
			if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
				b = b[:i+1]
			} else if n < journal.MostFrame {
				return nil
			}
		}
		if n == 0 {
			return nil
		}
		m.read += int64(len(b))
		if err := k.put(int(journal.Progress), b); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// progress records what tasks that run have written until now.
func (w *worker) progress(now time.Time) error {
	w.liveMu.Lock()
	defer w.liveMu.Unlock()
	for k := range w.live {
		if err := k.progress(now); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) beginsLive(k *keeper) {
	w.liveMu.Lock()
	defer w.liveMu.Unlock()
	w.live[k] = true
}

func (w *worker) endsLive(k *keeper) {
	w.liveMu.Lock()
	defer w.liveMu.Unlock()
	delete(w.live, k)
}

// progress makes a record whose place is the last frame, if there is a new one.
func (k *keeper) progress(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.seen) < progressEvery {
		return nil
	}
	k.seen = now
	if err := k.metrics.pump(k, false); err != nil {
		return err
	}
	before := k.last
	for i := range k.streams {
		if err := k.write(i + 1); err != nil {
			return err
		}
	}
	if k.last == before {
		return nil
	}
	r := k.start
	r.Kind, r.Output = journal.Wrote, k.last
	return k.w.Add(r)
}

// finish takes the rest of what the task has written.
func (k *keeper) finish() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.metrics.pump(k, true); err != nil {
		return err
	}
	return k.flush()
}
