package overlay

import (
	"context"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// hold is [Set.take] for who needs no more of the lease than its end.
func (s *Set) hold(ctx context.Context, dir, verb string, force bool) (release func(), err error) {
	_, release, err = s.take(ctx, dir, verb, force)
	return release, err
}

// take takes the lease of an overlay for a verb, and beats until release is
// called. An owner that has recorded its end, or is gone from this machine,
// gives way, after its container must have gone, too. Others are waited for as
// long as [Set].Wait says: until they give the lease back, or are silent for
// so long that they count as gone. With force each gives way.
func (s *Set) take(ctx context.Context, dir, verb string, force bool) (l *Lease, release func(), err error) {
	me := lease.Self().Owner(dir)
	me.Verb, me.Beat = verb, s.beat
	name, patience := nameOf(dir), lease.PatienceFor(s.beat)
	if s.Wait > 0 {
		until, cancel := context.WithTimeout(ctx, s.Wait)
		defer cancel()
		l, err = s.acquire(until, dir, me, patience, force)
	} else {
		l, err = s.acquire(ctx, dir, me, patience, force)
	}
	if err != nil {
		return nil, nil, err
	}
	stop := l.Beat(lease.BeatOf(s.beat))
	return l, func() {
		stop()
		if err := l.Release(); err != nil {
			s.say("warning: the lease of overlay %s could not be given back: %v", name, err)
		}
	}, nil
}

// acquire takes the lease, and waits for it until ctx ends.
func (s *Set) acquire(ctx context.Context, dir string, me Owner, patience lease.Patience, force bool) (*Lease, error) {
	name, self := nameOf(dir), me.Process()
	watch := Watch(ctx, dir, self, patience)
	var told Owner
	gone := func(o Owner) bool {
		switch near := o.Process(); {
		case force:
			s.say("warning: the lease of overlay %s is taken from %s: if that still writes, both lose files", name, By(o))
			return true
		case store.HasExit(o.Dir):
			return true
		case near.Gone(self) && !near.Near(self):
			return true // of an earlier boot of this machine
		case near.Gone(self):
			return watch(o) // its container is not yet
		case s.Wait == 0:
			return false
		}
		if o != told {
			told = o
			s.say("waiting for %s", Held(name, o))
		}
		return watch(o)
	}
	for {
		l, err := Acquire(dir, me, gone)
		if err == nil || s.Wait == 0 || jobs.KindOf(err) != jobs.KindAgain {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err // which names the holder
		case <-time.After(patience.Look):
		}
	}
}

// stands refuses to change an overlay whose lease another process has taken
// over because this one sent no heartbeat for too long (it may have been stopped).
func (i *Info) stands() error {
	if i.lease == nil || i.lease.Stands() {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindAgain,
		Msg:  "the lease of overlay " + i.Name + " was taken over by another process, because this one sent no heartbeat for long",
		Hint: "nothing was changed; try again"}
}
