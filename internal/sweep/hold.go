package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"berth/internal/sys/disk"
	"berth/jobs/store"
)

const (
	filePause    = "pause"
	fileThrottle = "throttle"
	claimsCanary = "canary"
	dirIdle      = "idle"
)

// Pause is why no more tasks are begun.
type Pause struct {
	Why string `json:"why"`
	// Trouble is that tasks have failed, and no person has asked for it.
	Trouble bool `json:"trouble,omitempty"`
}

// Pause has workers begin no more tasks, and end when those that run have ended. Of two
// reasons the first one stays.
func (s *Sweep) Pause(p Pause) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = store.CreateOnce(filepath.Join(s.Dir, filePause), append(b, '\n'))
	return err
}

// Paused tells whether and why it is paused; nil is that it is not.
func (s *Sweep) Paused() *Pause { return pausedIn(s.Dir) }

// PausedFor tells that of one worker: a pause that was taken back holds for those that were there.
func (s *Sweep) PausedFor(worker uint32) *Pause {
	if p := s.Paused(); p != nil {
		return p
	}
	return pausedIn(s.WorkerDir(worker))
}

func pausedIn(dir string) *Pause {
	b, err := disk.ReadRegular(filepath.Join(dir, filePause), 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p := &Pause{}
	if err != nil || json.Unmarshal(b, p) != nil {
		return &Pause{Why: "its file " + filePause + " cannot be read"}
	}
	return p
}

// Throttle has all workers together run so many tasks at once; 0 takes it back.
func (s *Sweep) Throttle(n int) error {
	path := filepath.Join(s.Dir, fileThrottle)
	if n == 0 {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	tmp, err := disk.WriteTemp(s.Dir, fmt.Appendf(nil, "%d\n", n), 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return nil
}

// Throttled is how many tasks may run at once; 0 is that nothing was said.
func (s *Sweep) Throttled() (n int) {
	b, err := disk.ReadRegular(filepath.Join(s.Dir, fileThrottle), 64)
	if err == nil {
		_, _ = fmt.Sscan(string(b), &n)
	}
	return max(n, 0)
}

// IdleFile is what a worker makes when it finds no batch that is free, and removes when it
// has one again; its directory is made by the first.
func (s *Sweep) IdleFile(worker uint32) string {
	return filepath.Join(s.Dir, dirIdle, strconv.FormatUint(uint64(worker), 10))
}

// MakeIdle makes the directory of those.
func (s *Sweep) MakeIdle() error { return os.MkdirAll(filepath.Join(s.Dir, dirIdle), 0o700) }

// Idle are the workers that have said so; one that was killed may be among them.
func (s *Sweep) Idle() (all []uint32, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, dirIdle))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			all = append(all, uint32(n))
		}
	}
	return all, err
}
