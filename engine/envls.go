package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"berth/internal/node/allocations"
	"berth/internal/sys/run"
	"berth/jobs"
)

// answerWithin bounds how long a machine is asked for the state of one environment: ssh
// gives up after 15 s itself where there is no machine.
const answerWithin = 20 * time.Second

// ShowAll shows environments as [Environment.Show] does. Machines are asked at the same
// time, and each scheduler once about the allocations of all of its environments. A machine
// that does not answer within 20 s is [Shown.Silent] for all of its environments.
//
// Where a person sits at the terminal, machines that want an answer of theirs, such as a
// password, are asked again at last, one after the other.
func (e *Engine) ShowAll(ctx context.Context, list []*Environment, ask bool) []Shown {
	out := make([]Shown, len(list))
	machines := map[string][]int{}
	for i, v := range list {
		machines[v.machine()] = append(machines[v.machine()], i)
	}
	var wg sync.WaitGroup
	for machine, of := range machines {
		wg.Go(func() {
			if machine == "" {
				e.showThere(ctx, list, of, ask, out)
				return
			}
			e.showThere(run.Unattended(ctx), list, of, ask, out)
		})
	}
	wg.Wait()
	for machine, of := range machines {
		k := jobs.KindOf(out[of[0]].Err)
		if machine != "" && ask && e.Terminal && (k == jobs.KindAuth || k == jobs.KindConfig) {
			e.showThere(ctx, list, of, ask, out)
		}
	}
	return out
}

// machine is the one that is asked for the environment's state; "" is this one.
func (v *Environment) machine() string {
	switch s := &v.Spec; {
	case s.Login != nil:
		return loginKey(*s.Login)
	case s.SSH != nil:
		return loginKey(*s.SSH)
	}
	return ""
}

// showThere shows environments of one machine.
func (e *Engine) showThere(ctx context.Context, list []*Environment, of []int, ask bool, out []Shown) {
	ctx = jobs.WithLook(ctx)
	within := func(do func(context.Context)) (silent bool) {
		if run.IsUnattended(ctx) { // a person takes longer
			ctx, stop := context.WithTimeout(ctx, answerWithin)
			defer stop()
			do(ctx)
			return errors.Is(ctx.Err(), context.DeadlineExceeded)
		}
		do(ctx)
		return false
	}
	silent := within(func(ctx context.Context) { e.askOnce(ctx, list, of, ask) })
	for _, i := range of {
		v := list[i]
		if !silent {
			silent = within(func(ctx context.Context) { out[i] = v.Show(ctx, ask) }) && out[i].State == nil
		}
		if silent {
			out[i] = Shown{Spec: v.Spec, Silent: true, Err: &jobs.Error{Kind: jobs.KindInfra,
				Msg: "its machine did not answer within " + answerWithin.String(), Hint: "berth env show " + v.Spec.Name}}
		}
		v.asked = nil
	}
}

// askOnce asks each scheduler about all allocations of these environments, where these
// are several.
func (e *Engine) askOnce(ctx context.Context, list []*Environment, of []int, ask bool) {
	type group struct {
		scheduler jobs.Cluster
		handles   []jobs.Handle
		of        []*Environment
	}
	groups := map[string]*group{}
	for _, i := range of {
		v := list[i]
		if v.Spec.Scheduler == "" || v.Spec.Login != nil && !ask {
			continue
		}
		h := allocations.Handle(v.dir)
		if h == nil {
			continue
		}
		g := groups[v.Spec.Scheduler]
		if g == nil {
			sc, _, err := e.holder(&v.Spec)
			if err != nil {
				continue // Show says it
			}
			g = &group{scheduler: sc}
			groups[v.Spec.Scheduler] = g
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
}
