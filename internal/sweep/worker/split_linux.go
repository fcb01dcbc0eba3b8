package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sys/lease"
)

// share is which tasks of a batch are this worker's still: the others were given to
// workers that have nothing to do.
type share struct {
	mu    sync.Mutex
	hi    uint32 // the last place that is its own
	begun uint32 // the highest place of one that has begun; 0 is none
	seen  uint32 // that, at the last look
	look  bool   // there was one
	given bool   // all of it was given back
}

// begin tells whether a task may begin. None does that was given back.
func (s *share) begin(place uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given || place > s.hi {
		return false
	}
	s.begun = max(s.begun, place)
	return true
}

// shares notes that a batch may be split; unshare that it has ended, and tells whether
// it was given back as a whole.
func (w *worker) shares(b *batch) {
	w.liveMu.Lock()
	w.mine = append(w.mine, b)
	w.liveMu.Unlock()
}

func (w *worker) unshare(b *batch) (given bool) {
	w.liveMu.Lock()
	w.mine = slices.DeleteFunc(w.mine, func(x *batch) bool { return x == b })
	w.liveMu.Unlock()
	b.share.mu.Lock()
	defer b.share.mu.Unlock()
	b.share.hi = 0 // nothing is split any more
	return b.share.given
}

// idle says to others that this worker has found nothing free, or has again.
func (w *worker) idle(is bool) {
	if is == w.isIdle {
		return
	}
	path := w.Sweep.IdleFile(w.me)
	var err error
	if is {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); errors.Is(err, fs.ErrNotExist) {
			if err = w.Sweep.MakeIdle(); err == nil {
				f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			}
		}
		if err == nil {
			err = f.Close()
		}
	} else {
		err = os.Remove(path)
	}
	// Where it cannot be said, others only split nothing for it.
	w.isIdle = is && err == nil
}

// splits looks at each beat whether another worker is idle, and gives it what this one
// has not begun.
func (w *worker) splits(ctx, run context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lease.BeatOf(w.Beat)):
		}
		if w.paused.Load() || run.Err() != nil {
			continue
		}
		w.liveMu.Lock()
		mine := slices.Clone(w.mine)
		w.liveMu.Unlock()
		if len(mine) == 0 || !w.others(time.Now()) {
			continue
		}
		for _, b := range mine {
			if err := w.split(b); err != nil {
				w.fail(err)
				return
			}
		}
	}
}

// others tells whether one that lives is idle.
func (w *worker) others(now time.Time) bool {
	idle, err := w.Sweep.Idle()
	if err != nil {
		return false
	}
	me := lease.Self()
	return slices.ContainsFunc(idle, func(n uint32) bool {
		return n != w.me && claims.SeemsAlive(w.Sweep.WorkerDir(n), me, w.Beat, now)
	})
}

// split gives back half of what has not begun of a batch, if that is work for more than a
// beat; all of it where nothing has begun since the last look: what runs is long.
func (w *worker) split(b *batch) error {
	s := &b.share
	s.mu.Lock()
	defer s.mu.Unlock()
	next := max(s.begun+1, b.Lo)
	stuck := s.look && s.seen == s.begun
	s.look, s.seen = true, s.begun
	if b.first || s.given || b.dropped.Load() || next > s.hi {
		return nil
	}
	at, left := next, s.hi-next+1
	if !stuck {
		if time.Duration(left)*time.Duration(w.mean.Load())/time.Duration(w.Slots) < lease.BeatOf(w.Beat) {
			return nil
		}
		at += left / 2
	}
	var lost bool
	var err error
	if at == b.Lo {
		s.given = true
		lost, err = b.Release()
	} else {
		s.hi = at - 1
		lost, err = b.Split(at)
	}
	switch {
	case err != nil:
		return err
	case lost:
		b.dropped.Store(true) // its end says so
		return nil
	}
	w.Log("other workers are idle: the tasks from %d on of those to %d were given to them", at, at+left-1)
	return nil
}
