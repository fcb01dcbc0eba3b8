package keeper

import (
	"context"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// untilExpired ends the keeper when its environment is to be gone.
func (k *keeper) untilExpired(ctx context.Context) {
	at := k.spec.Expires()
	if at.IsZero() {
		return
	}
	// A timer does not run while the machine sleeps, and does not heed a clock that is set.
	for left := time.Until(at.Round(0)); left > 0; left = time.Until(at.Round(0)) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, lookAtClock)):
		}
	}
	k.life.stop(ending{text: "its auto_destroy_after_seconds (" + k.spec.DestroyAfter.String() + ") have passed"})
}

// lookAtClock is how often the clock is looked at for the end of an environment.
const lookAtClock = 30 * time.Second

// destroyTime bounds what is removed and looked for after an end.
const destroyTime = 2 * time.Minute

// destroy removes the files of an environment whose time is up, and looks whether those are
// gone that end with this keeper. Its record stays, and says what was found.
func (k *keeper) destroy() {
	expired := k.spec.Expired(time.Now())
	if k.opening == nil || !k.spec.Looks() || k.spec.Persistent && !expired {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	if k.spec.Persistent {
		// Another keeper has the files when the lease is lost.
		if !k.lease.Stands() {
			return
		}
		if err := k.opener.Remove(ctx, k.spec, on); err != nil {
			k.note("the files of the environment were not all removed: " + err.Error())
		}
	}
	d := &jobs.Destroyed{}
	if k.scratch != nil {
		disk.LookFor(d, "its scratch directory", k.scratch.Dir)
	}
	for _, name := range k.opening.Files {
		disk.LookFor(d, "its files", filepath.Join(k.dir, name))
	}
	known, left := 0, 0
	for _, p := range k.info.Inside {
		if p.Start == "" { // it had ended when it was noted
			continue
		}
		known++
		// This one may have given the number of a process that has ended to another one.
		if at := lease.StartTime(p.PID); at == p.Start {
			left++
		}
	}
	switch can := k.spec.Can(); {
	case left > 0:
		d.Left = append(d.Left, "processes of it")
	case known > 0 && !can.Daemon && can.Here(): // the container's first process, and so all of its own
		d.Gone = append(d.Gone, "its processes")
	}
	if k.opening.Remains != nil {
		k.opening.Remains(ctx, d)
	}
	d.Time = time.Now().UTC()
	k.info.Destroyed = d
	for _, what := range d.Left {
		k.note("not destroyed: " + what)
	}
	k.log.Info("destroyed", "gone", d.Gone, "left", d.Left)
}
