package claims

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/jobs/store"
)

// Files of a worker's directory.
const (
	WorkerFile = "worker.json" // a [lease.Process]
	BeatFile   = "beat"
	EndFile    = "end.json"
)

// Watcher tells which workers are gone. It never waits: whoever asks now and then
// learns it when it is so. It is not safe for concurrent use.
type Watcher struct {
	Dir      func(worker uint32) string
	Me       lease.Process
	Patience lease.Patience
	Now      func() time.Time // nil is [time.Now]
	seen     map[uint32]*silence
}

type silence struct {
	beat   string
	looked time.Time
	silent time.Duration // of this process's own time
	ended  bool          // it has recorded its end, which it does once
	gone   bool          // as of the last look
}

// Gone tells whether a worker has recorded its end, or its process of this boot is no
// more and 3 of its beats have passed, or its beat has not moved for 18 of them, by
// the clock of this process. A long time between two looks is no silence: this
// process was stopped, and perhaps the worker with it. One that was there is looked at
// again after half a beat: it may be asked for each batch that it has, at each look for one.
func (w *Watcher) Gone(worker uint32) bool {
	now := time.Now()
	if w.Now != nil {
		now = w.Now()
	}
	if w.seen == nil {
		w.seen = map[uint32]*silence{}
	}
	s := w.seen[worker]
	if s != nil && (s.ended || !s.gone && now.Sub(s.looked) < w.Patience.Silent/36) {
		return s.ended
	}
	dir := w.Dir(worker)
	if _, err := os.Lstat(filepath.Join(dir, EndFile)); err == nil {
		w.seen[worker] = &silence{ended: true}
		return true
	}
	b, err := os.ReadFile(filepath.Join(dir, BeatFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if s == nil || s.beat != string(b) {
		w.seen[worker] = &silence{beat: string(b), looked: now}
		return false
	}
	s.silent += min(now.Sub(s.looked), max(w.Patience.Silent/18, 2*w.Patience.Look))
	s.looked = now
	wait := w.Patience.Silent
	if w.dead(dir) {
		wait = w.Patience.Dead
	}
	s.gone = s.silent >= wait
	return s.gone
}

// SeemsAlive tells how a worker looks to a person who asks once: it has not recorded its
// end, its process is not known to be gone, and by the clock of this machine its last
// beat is no older than 18. Nothing is taken from a worker for that.
func SeemsAlive(dir string, me lease.Process, beat time.Duration, now time.Time) bool {
	if _, err := os.Lstat(filepath.Join(dir, EndFile)); err == nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(dir, BeatFile))
	at, ok := store.BeatTime(b)
	return err == nil && ok && now.Sub(at) < 18*lease.BeatOf(beat) && !(&Watcher{Me: me}).dead(dir)
}

// dead tells whether its process was of this machine, and is no more.
func (w *Watcher) dead(dir string) bool {
	b, err := disk.ReadRegular(filepath.Join(dir, WorkerFile), 1<<16)
	var p lease.Process
	return err == nil && json.Unmarshal(b, &p) == nil && p.Gone(w.Me)
}

// Span is from when to when the worker was there that writes to dir; until its last beat,
// where it has not recorded its end. False is that it is not known.
func Span(dir string) (began, ended time.Time, ok bool) {
	path := filepath.Join(dir, WorkerFile)
	var w struct {
		Began time.Time `json:"began"`
	}
	b, err := disk.ReadRegular(path, 1<<16)
	if err != nil || json.Unmarshal(b, &w) != nil {
		return began, ended, false
	}
	if began = w.Began; began.IsZero() { // of a version that did not record it
		fi, err := os.Stat(path)
		if err != nil {
			return began, ended, false
		}
		began = fi.ModTime()
	}
	var end struct {
		Time time.Time `json:"time"`
	}
	if b, err = disk.ReadRegular(filepath.Join(dir, EndFile), 1<<16); err == nil && json.Unmarshal(b, &end) == nil && !end.Time.IsZero() {
		return began, end.Time, true
	}
	b, err = disk.ReadRegular(filepath.Join(dir, BeatFile), 1<<10)
	ended, ok = store.BeatTime(b)
	return began, ended, err == nil && ok
}
