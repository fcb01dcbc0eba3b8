package daytona

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"
)

// Restore makes the sandbox again from the snapshot, and removes the old one. At
// every moment one of them exists and is found by the next open, with all its files.
func (Provider) Restore(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Restored, error) {
	c, err := own(r, say)
	if err != nil {
		return nil, err
	}
	q := *r
	if r.Spec == nil {
		return nil, protocol.Errorf(protocol.Internal, "the request has no spec")
	}
	s := *r.Spec
	// The snapshot has the limits of the sandbox that it is of, and Daytona gives
	// no others.
	s.From, s.CPUs, s.MemoryMiB, s.DiskMiB, q.Spec = r.Snapshot, 0, 0, 0, &s
	w, _, notes, err := c.wanted(&q)
	if err != nil {
		return nil, err
	}
	if _, err := c.usable(ctx, r.Snapshot); err != nil {
		return nil, explain(err)
	}
	b, more, err := c.restore(ctx, r, w)
	if err != nil {
		return nil, explain(err)
	}
	notes = append(notes, more...)
	if want := r.Spec; b.CPU < float64(want.CPUs) || b.Memory*1024 < float64(want.MemoryMiB) || b.Disk*1024 < float64(want.DiskMiB) {
		notes = append(notes,
			fmt.Sprintf("its limits are now those of the snapshot: %v CPUs, %v GiB of memory, %v GiB of disk", b.CPU, b.Memory, b.Disk))
	}
	return &protocol.Restored{Ref: b.ref(), Notes: notes}, nil
}

func (c *client) restore(ctx context.Context, r *protocol.Request, w *create) (b *sandbox, notes []string, err error) {
	old, _, err := c.ours(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if old == nil || old.gone() {
		b, err = c.fresh(ctx, w)
		return b, nil, err
	}
	if w.Name = r.Name; old.Name == r.Name {
		w.Name = other(r.Name)
	}
	// Until it has the files it belongs to no environment: what is left of a
	// restore that was killed is found by gc.
	w.Labels = maps.Clone(r.Tags)
	w.Labels[protocol.TagEnv] += "-restored"
	if b, err = c.get(ctx, w.Name); err == nil && b != nil && !b.gone() {
		if !b.has(w.Labels) && !b.has(r.Tags) {
			return nil, nil, foreign(b)
		}
		c.say("removing the sandbox %s, which a restore before this one has left", b.Name)
		err = c.destroy(ctx, b)
	}
	if err == nil {
		b, err = c.fresh(ctx, w)
	}
	if err == nil {
		if err = c.relabel(ctx, b, r.Tags); err != nil {
			c.dropCreated(w.Name, w.Labels)
			c.dropCreated(w.Name, r.Tags)
		}
	}
	if err != nil {
		var e *protocol.Error
		if errors.As(explain(err), &e) {
			hint := e.Hint
			if e.Kind == protocol.Quota {
				hint = "there has to be room for both sandboxes, the one that stands and the one of the snapshot, for a moment; " + hint
			}
			err = &protocol.Error{Kind: e.Kind, Message: e.Message + "; the environment is as it was", Hint: hint}
		}
		return nil, nil, err
	}
	c.say("removing the sandbox from before, %s", old.Name)
	if err := c.destroy(ctx, old); err != nil {
		if ctx.Err() != nil {
			return nil, nil, err
		}
		notes = append(notes, fmt.Sprintf("the sandbox from before, %s, is left: %v; berth env rm removes it, too", old.Name, err))
	}
	return b, notes, nil
}

// fresh makes a sandbox, and waits until it runs. One that cannot be used is removed.
func (c *client) fresh(ctx context.Context, w *create) (*sandbox, error) {
	c.say("making the sandbox %s of the snapshot", w.Name)
	b, _, err := c.make(ctx, w, w.Labels)
	if err != nil {
		return nil, err
	}
	if b, _, err = c.ready(ctx, b); err == nil && !sameNetwork(b, w) {
		err = noRules()
	}
	if err != nil {
		c.dropCreated(w.Name, w.Labels)
		return nil, err
	}
	return b, nil
}
