package container

import (
	"context"
	"os"
	"slices"
	"time"

	"berth/apptainer/names"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// fuse is one of the programs that a container's file system may live in, at work. When
// it ends early the container runs on, and its writes are lost ("Transport
// endpoint is not connected"), while a command that ignores that succeeds.
type fuse struct {
	name, start string
	pid         int
}

// findFuse lists the ones below this process, which a container has when its
// guest speaks.
func findFuse() (found []fuse) {
	for _, p := range run.Below(os.Getpid()) {
		if slices.Contains(names.FUSEHelpers, p.Name) {
			found = append(found, fuse{name: p.Name, pid: p.PID, start: lease.StartTime(p.PID)})
		}
	}
	return found
}

// EndFuse kills such helpers below this process, a child subreaper that has no
// container open: of one whose program was killed, perhaps for memory, before it
// could end them, and they do not end by themselves.
func EndFuse() {
	for _, f := range findFuse() {
		run.KillSame(f.pid, func() bool { return lease.StartTime(f.pid) == f.start })
	}
}

// fuseSettles is how long a container, or the order to end it, may take to show
// after its file system has ended: all of it ends with the container, and a
// scheduler's TERM reaches the helpers too.
const fuseSettles = time.Second

// LostFuse tells whether a part of the container's file system has ended while
// the container runs on and was not asked to end: the name of what
// ended, or "". For a command that has failed it does not matter that the
// container ends as well, as the files may have gone first, unless its guest has
// left by itself: then all of it ended in its order.
func (c *Container) LostFuse(failed bool) string {
	for _, f := range c.fuse {
		if at := lease.StartTime(f.pid); at != f.start && at != lease.UnknownStart || lease.Exiting(f.pid) {
			if failed && (c.asked(fuseSettles) || c.left(fuseSettles)) || !failed && c.ending(fuseSettles) {
				return ""
			}
			return f.name
		}
	}
	return ""
}

// ending waits for a sign that the container is ending, or is to end.
func (c *Container) ending(within time.Duration) bool {
	select {
	case <-c.ended:
	case <-c.session.Gone():
	case <-c.o.Stop:
	case <-time.After(within):
		return c.o.Stopping != nil && c.o.Stopping()
	}
	return true
}

// asked waits for an order to end the container.
func (c *Container) asked(within time.Duration) bool {
	select {
	case <-c.o.Stop:
		return true
	case <-time.After(within):
		return c.o.Stopping != nil && c.o.Stopping()
	}
}

// left waits for the end of a container whose guest has left by itself.
func (c *Container) left(within time.Duration) bool {
	select {
	case <-c.ended:
		return c.exit.Code == guestSilent
	case <-time.After(within):
		return false
	}
}

// WatchFuse calls lost once when that happens.
func (c *Container) WatchFuse(ctx context.Context, lost func(name string)) {
	Look(ctx, func() bool {
		name := c.LostFuse(false)
		if name != "" {
			lost(name)
		}
		return name == ""
	})
}
