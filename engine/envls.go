package engine

import (
	"context"
	"fmt"

	"berth/internal/node/allocations"
	"berth/jobs"
)

// ShowAll shows environments as [Environment.Show] does, one after the other,
// and asks each scheduler once about the allocations of all of them.
func (e *Engine) ShowAll(ctx context.Context, list []*Environment, ask bool) []Shown {
	type group struct {
		scheduler jobs.Cluster
		handles   []jobs.Handle
		of        []*Environment
	}
	groups := map[string]*group{}
	for _, v := range list {
		if v.Spec.Scheduler == "" || v.Spec.Login != nil && !ask {
			continue
		}
		h := allocations.Handle(v.dir)
		if h == nil {
			continue
		}
		key := v.Spec.Scheduler
		if v.Spec.Login != nil {
			key += fmt.Sprintf(" %+v", *v.Spec.Login)
		}
		g := groups[key]
		if g == nil {
			sc, _, err := e.holder(&v.Spec)
			if err != nil {
				continue // Show says it
			}
			g = &group{scheduler: sc}
			groups[key] = g
		}
		g.handles, g.of = append(g.handles, *h), append(g.of, v)
	}
	for _, g := range groups {
		if len(g.of) > 1 {
			asked := allocations.AskOnce(ctx, g.scheduler, g.handles)
			for _, v := range g.of {
				v.asked = asked
			}
		}
	}
	out := make([]Shown, len(list))
	for i, v := range list {
		out[i] = v.Show(ctx, ask)
		v.asked = nil
	}
	return out
}
