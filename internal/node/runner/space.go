package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/node/container"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// layerName is the attempt's writable layer, for people.
func (r *attempt) layerName() string {
	if n := r.spec.Overlay.Name; n != "" {
		return "overlay " + n
	}
	return "its writable layer, which is thrown away,"
}

// more says how a layer gets more room.
func (r *attempt) more(p *place) string {
	if o := r.spec.Overlay; o.Name != "" && o.Driver == jobs.DriverExt3 {
		if fi, err := os.Stat(p.layer.Path); err == nil {
			return fmt.Sprintf("berth overlay grow %s --size %s", o.Name, jobs.Bytes(2*fi.Size()))
		}
	} else if has := p.layer.Limit().Bytes; has > 0 && (o.Size == 0 || has <= o.Size) {
		return fmt.Sprintf("berth overlay grow %s --size %s", o.Name, 2*has)
	}
	return "raise [resources] disk"
}

// layerLimit is what the runner itself holds: the size of a layer that is a
// directory. An image has its own.
func (r *attempt) layerLimit(p *place) overlay.Space {
	if p.layer == nil || r.spec.Overlay.Driver == jobs.DriverExt3 {
		return overlay.Space{}
	}
	most := p.layer.Limit()
	if asked := r.spec.Overlay.Size; asked > 0 && (most.Bytes == 0 || asked < most.Bytes) {
		most.Bytes = asked
	}
	if asked := r.spec.Overlay.Inodes; asked > 0 && (most.Files == 0 || asked < most.Files) {
		most.Files = asked
	}
	return most
}

// workLimit is how much the workspace may take, together with a layer that the
// runner measures; 0 is no limit.
func (r *attempt) workLimit() jobs.Bytes {
	if r.spec.Workspace == nil || r.rank != nil || r.far != nil { // several share one, and their runner looks at it
		return 0
	}
	return r.spec.Resources.Disk
}

// cloned notes what the workspace takes before the task begins: the repository is
// the user's, and no task's doing.
func (r *attempt) cloned(ctx context.Context) error {
	if r.workLimit() == 0 {
		return nil
	}
	s, err := overlay.Measure(ctx, r.work(), overlay.Space{})
	r.clone = s.Bytes
	return err
}

// watchSpace ends the attempt when its layer, a directory, has become larger
// than it may be, or that and the workspace together. Between two looks a task can
// pass that, so it is noted as advisory; what is over when the command has ended
// is found by [attempt.full].
func (r *attempt) watchSpace(ctx context.Context, p *place) {
	most, together := r.layerLimit(p), r.workLimit()
	if most != (overlay.Space{}) {
		r.note("disk " + limitText(most) + " is watched by the runner, advisory: " +
			"a layer of the driver " + r.spec.Overlay.Driver + " has no size of its own")
	}
	if together > 0 {
		r.note("disk " + together.String() + " is watched by the runner for /work, too, advisory")
	}
	if most == (overlay.Space{}) && together == 0 {
		return
	}
	go overlay.WatchSpace(ctx, func(ctx context.Context) bool {
		w := r.tooLarge(ctx, p)
		if w != nil {
			r.stop.set(*w)
		}
		return w != nil
	})
}

// tooLarge measures the layer and the workspace, and is the reason to stop when
// they are over their limits.
func (r *attempt) tooLarge(ctx context.Context, p *place) *why {
	most, together := r.layerLimit(p), r.workLimit()
	var layer overlay.Space
	if most != (overlay.Space{}) {
		s, err := p.layer.Space(ctx, most)
		if err != nil {
			return nil // it is looked at again
		}
		if s.Over(most) {
			w := r.overLimit(p, most)
			return &w
		}
		layer = s
	}
	if together == 0 {
		return nil
	}
	s, err := overlay.Measure(ctx, r.work(), overlay.Space{Bytes: together + r.clone})
	if err != nil || s.Bytes+layer.Bytes <= together+r.clone {
		return nil
	}
	what := "the workspace has"
	if layer.Bytes > 0 {
		what = "its writable layer and the workspace together have"
	}
	return &why{state: jobs.StateFailed,
		reason: "no space: " + what + " become larger than the " + together.String() + " they may take, beside the clone",
		hint:   "raise [resources] disk"}
}

func limitText(s overlay.Space) string {
	switch {
	case s.Files == 0:
		return s.Bytes.String()
	case s.Bytes == 0:
		return fmt.Sprintf("%d files", s.Files)
	}
	return fmt.Sprintf("%s and %d files", s.Bytes, s.Files)
}

func (r *attempt) overLimit(p *place, most overlay.Space) why {
	return why{state: jobs.StateFailed, reason: "no space: " + r.layerName() + " has become larger than the " + limitText(most) + " it may take",
		hint: r.more(p)}
}

// full looks whether the place of a command that has failed has no more room,
// which is then the reason; and whether the layer of one that has not is over
// its limit. The container is still open.
func (r *attempt) full(ctx context.Context, c *container.Container, p *place, e jobs.Exit, stderr string) {
	if r.stop.Why() != nil || r.oomKills() > 0 {
		return
	}
	if w := r.tooLarge(ctx, p); w != nil {
		r.stop.set(*w)
		return
	}
	if e.OK() || p.layer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	no := func(what, hint string) {
		r.stop.set(why{state: jobs.StateFailed, reason: "no space: the command" + r.whose + " " + ended(e) + ", and " + what, hint: hint})
	}
	inside, err := c.Session().Space(ctx, "/")
	if text := inside.Full(); err == nil && text != "" {
		if r.spec.Overlay.Driver == jobs.DriverExt3 {
			no(r.layerName()+" "+text, r.more(p))
		} else {
			no("the file system of "+r.layerName()+" "+text,
				"make room there: df -h "+filepath.Dir(p.layer.Path)+"; df -i "+filepath.Dir(p.layer.Path))
		}
		return
	}
	if tmp, err := c.Session().Space(ctx, "/tmp"); err == nil && tmp.Full() != "" {
		no("the scratch directory of "+r.claim.Host+", which is its /tmp, "+tmp.Full(),
			"make room in "+filepath.Dir(r.scratch.Dir)+", or name another scratch in the profile")
		return
	}
	if says := saysFull(stderr); says != "" {
		no("it said \""+says+"\"",
			"is a quota used up, or the file system of a bind full? "+r.layerName()+" has "+jobs.Bytes(inside.Free>>20<<20).String()+" free")
	}
}

// unwrittenHint says how to find out why a directory cannot be written.
func unwrittenHint(dir string, err error) string {
	switch {
	case errors.Is(err, syscall.EDQUOT):
		return "your quota on the file system of " + dir + " is used up: quota -s, or the command that your site has for it, shows it"
	case errors.Is(err, syscall.ENOSPC):
		return "see what is full, bytes or inodes: df -h " + dir + "; df -i " + dir
	}
	return "the file system of " + dir + " fails or does not answer: ask your site, and retry the job when it does"
}

// saysFull finds the C library's words for ENOSPC and EDQUOT at the end of a
// command's messages. Quotas are not in what statfs(2) says.
func saysFull(stderr string) string {
	f, err := os.Open(stderr)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(fi.Size(), 4<<10))
	n, _ := f.ReadAt(b, fi.Size()-int64(len(b)))
	for _, words := range []string{"No space left on device", "Disk quota exceeded"} {
		if strings.Contains(string(b[:n]), words) {
			return words
		}
	}
	return ""
}

// stderrFile is where the command's messages are, or "" in a rank, whose
// messages are the runner's.
func (r *attempt) stderrFile() string {
	if r.rank != nil {
		return ""
	}
	return filepath.Join(r.dir, store.FileStderr)
}
