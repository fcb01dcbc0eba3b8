package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/lease"
)

// keyBeat is how often the holder of an idempotency key gives a sign of life:
// a plan may fetch an image.
const keyBeat = 5 * time.Second

// keyPatience is for one that may be gone: a process of this host is seen to be.
var keyPatience = lease.Patience{Look: 50 * time.Millisecond, Silent: 180 * time.Second}

// hold acquires the lease of the key. If another process holds it, hold waits until
// that process has ended or released it, or until the key's job exists. It returns a
// [lease.HeldError] if the job exists or the holder is still at work.
func (o *once) hold(ctx context.Context) (release func() error, err error) {
	self := lease.Self()
	me := self.Owner(o.dir)
	me.Verb, me.Beat = "submit", keyBeat
	watch, stop := context.WithCancel(ctx)
	defer stop()
	l, err := lease.Acquire(o.dir, me, func(other lease.Owner) bool {
		return lease.Gone(watch, other, self, keyPatience, func(string) bool {
			if rec, err := o.there(); rec != nil || err != nil {
				stop()
				return false
			}
			if other.Process().Gone(self) {
				return true
			}
			h, err := lease.Holder(o.dir)
			return err == nil && (h == nil || h.Process() != other.Process() || !h.Time.Equal(other.Time))
		})
	})
	if err != nil {
		return nil, err
	}
	o.stands = l.Stands
	stopBeat := l.Beat(keyBeat)
	return func() error {
		stopBeat()
		if !l.Stands() {
			return nil
		}
		if err := os.Remove(filepath.Join(o.dir, "beat")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return l.Release()
	}, nil
}
