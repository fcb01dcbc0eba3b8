package runner

import (
	"context"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// lookTime bounds the look after a place was destroyed.
const lookTime = time.Minute

// lookAfter looks whether the attempt's place is gone, where that is promised; nil is that
// it is not, or that there was no place. kept is as what it is kept.
func (r *attempt) lookAfter(ctx context.Context, out *outcome, kept *jobs.KeptPlace) *jobs.Destroyed {
	if !r.spec.Looks() || r.scratch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.hurried(lookTime))
	defer cancel()
	d := &jobs.Destroyed{}
	disk.LookFor(d, "scratch directory", r.scratch.Dir)
	if r.spec.Workspace != nil && !out.kept { // one that is kept is told by itself
		disk.LookFor(d, "work tree", r.keptWork())
	}
	if name := r.spec.Overlay.Name; name != "" {
		d.Left = append(d.Left, "the overlay "+name+", which the task names")
	}
	if kept != nil {
		d.Left = append(d.Left, kept.Named()+", which the task asks for")
	}
	if r.far != nil && r.far.keep {
		d.Left = append(d.Left, "the task's files on "+r.far.What+r.far.Until)
	}
	if r.opening != nil && r.opening.Remains != nil {
		r.opening.Remains(ctx, d)
	}
	if r.ranked() {
		d.Left = append(d.Left, "what other nodes have of it was not looked for")
	}
	d.Time = time.Now().UTC()
	if len(d.Left) > 0 {
		r.log.Warn("not destroyed", "left", d.Left)
	}
	return d
}
