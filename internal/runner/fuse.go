package runner

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// fuseHelpers are the programs that a container's file system may live in. When
// one ends early the container runs on, and its writes are lost ("Transport
// endpoint is not connected"), while a command that ignores that succeeds.
var fuseHelpers = []string{"squashfuse_ll", "squashfuse", "fuse-overlayfs", "fuse2fs"}

// fuse is one of them at work.
type fuse struct {
	name, start string
	pid         int
}

// findFuse lists the ones below the runner, which a container has when its
// guest speaks.
func findFuse() (found []fuse) {
	for _, p := range descendants(os.Getpid()) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
		if name := strings.TrimSpace(string(b)); err == nil && slices.Contains(fuseHelpers, name) {
			found = append(found, fuse{name: name, pid: p.pid, start: startTime(p.pid)})
		}
	}
	return found
}

// fuseSettles is how long a container, or the order to end it, may take to show
// after its file system has ended: all of it ends with the container, and a
// scheduler's TERM reaches the helpers too.
const fuseSettles = time.Second

// lostFuse tells whether a part of the container's file system has ended while
// the container runs on, and nobody has asked for its end.
func (c *container) lostFuse() *why {
	for _, f := range c.fuse {
		if at := startTime(f.pid); at != f.start && at != unknownStart {
			if c.ending(fuseSettles) {
				return nil
			}
			return &why{state: jobs.StateError, reason: "the container's file system died (" + f.name + " ended): what the command wrote may be lost",
				hint: "was the node out of memory? ask for more, or see " + c.r.dir}
		}
	}
	return nil
}

// ending waits for a sign that the container is ending, or is to end.
func (c *container) ending(within time.Duration) bool {
	select {
	case <-c.ended:
	case <-c.session.Gone():
	case <-c.r.stop.done:
	case <-time.After(within):
		return store.Cancelled(c.r.jobDir)
	}
	return true
}

// watchFuse ends the attempt when that happens.
func (c *container) watchFuse(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if w := c.lostFuse(); w != nil {
				c.r.stop.set(*w)
				return
			}
		}
	}
}
