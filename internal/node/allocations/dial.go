package allocations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/store"
)

// keeperWait is how long a step waits in a fresh allocation for the keeper to
// begin: what a site does before its jobs may take that long.
const keeperWait = 2 * time.Minute

// Dial reaches the keeper of the environment: through the connection that
// stands, or in its allocation, which is asked for unless o.NoStart is set.
func (p *Place) Dial(ctx context.Context, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for try := 1; ; try++ {
		var at *Allocation
		link := p.Link()
		link.Progress = o.Progress
		var err error
		if link.Node, err = p.Holder(); err != nil {
			return nil, nil, err
		}
		var asking atomic.Bool
		link.Command = func(ctx context.Context) (jobs.Cmd, error) {
			asking.Store(true)
			defer asking.Store(false)
			a, node, err := p.request(ctx, o)
			if err != nil {
				return jobs.Cmd{}, err
			}
			g, err := p.Ground(ctx)
			if err != nil {
				return jobs.Cmd{}, err
			}
			at = a
			c := p.Scheduler.Step(a.submitted.Handle, node, []string{g.Node, "connect", "--env", g.Dir, "--mux", "--wait", keeperWait.String()})
			if p.Far != nil {
				return p.Far.Local(ctx, c)
			}
			return c, nil
		}
		waiting, answered := context.WithCancel(ctx)
		go p.suspended(waiting, &asking, o.Progress)
		conn, rep, err := link.Dial(ctx)
		answered()
		if err == nil {
			if at != nil && at.fresh {
				if first := p.said(ctx, at); first != nil {
					rep = first // with all that has to be said of a start
				}
			}
			return conn, rep, nil
		}
		if at == nil && errors.Is(err, keeper.ErrNotRunning) && !o.NoStart && try < 3 {
			// The connection stands, and the keeper at its end has ended.
			if err := p.Link().End(ctx); err != nil {
				return nil, nil, err
			}
			continue
		}
		if at == nil || ctx.Err() != nil {
			return nil, nil, err
		}
		over, oerr := p.outcome(ctx, at)
		switch {
		case oerr != nil:
			return nil, nil, errors.Join(err, oerr)
		case !over:
			e := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("reach the keeper in %s", at), Err: err,
				Hint: "berth env show " + p.Spec.Name + "; berth env stop " + p.Spec.Name + " gives the allocation back"}
			// The allocation ends for the same reason, in a moment.
			if g, gerr := p.Ground(ctx); gerr == nil && deniedTo(g.Node, err) {
				e.Kind, e.Hint = jobs.KindConfig, store.HintNoExec
			}
			return nil, nil, e
		}
		if o.NoStart {
			return nil, nil, keeper.ErrNotRunning
		}
		if ferr := p.failure(ctx, at); ferr != nil {
			return nil, nil, ferr
		}
		if try == 3 {
			return nil, nil, p.over(ctx, at)
		}
	}
}

// deniedTo tells whether a step could not begin because its node may not run the program.
func deniedTo(program string, err error) bool {
	return strings.Contains(strings.ToLower(err.Error()), strings.ToLower(program)+": "+syscall.EACCES.Error())
}

// stepSlow is when a way to the keeper takes long.
const stepSlow = 10 * time.Second

// suspended tells, while the keeper does not answer, that nothing in the
// allocation goes on: a step in one that is suspended does not begin, and says
// nothing. One that waits in the queue is told of by who is asking.
func (p *Place) suspended(ctx context.Context, asking *atomic.Bool, tell func(string)) {
	for pause := stepSlow; p.Sleep(ctx, pause) == nil; pause = tellAgain {
		if asking.Load() {
			continue
		}
		a, err := last(p.Record)
		if err != nil || a == nil || a.submitted == nil || a.ended != nil {
			continue
		}
		if st, err := p.status(ctx, a); err == nil && st.Paused {
			tell(fmt.Sprintf("%s is %s: nothing in it goes on until that is over; berth env stop %s gives it back", a, st.NativeState, p.Spec.Name))
		}
	}
}

// outcome finds out whether an allocation has ended, which is seen a little
// after its keeper is gone.
func (p *Place) outcome(ctx context.Context, a *Allocation) (over bool, err error) {
	ctx = jobs.WithUrgency(ctx)
	for began := p.Now(); ; {
		_, err := p.status(ctx, a)
		if a.ended != nil {
			return true, nil
		}
		if p.failure(ctx, a) == nil || p.Now().Sub(began) > lateGrace {
			return false, err
		}
		if err := p.Sleep(ctx, time.Second); err != nil {
			return false, context.Cause(ctx)
		}
	}
}

// State asks the scheduler about the allocation; nil is that there is none.
func (p *Place) State(ctx context.Context) (*jobs.Allocation, error) {
	a, err := last(p.Record)
	if err != nil || a == nil || a.ended != nil || a.submitted == nil {
		return nil, err
	}
	info := p.keeps(a)
	st, err := p.status(ctx, a)
	if err == nil && a.ended == nil && info != nil && st.State != jobs.StateRunning {
		// What its keeper has written is younger than a cached answer.
		st, err = p.status(jobs.WithUrgency(ctx), a)
	}
	if err != nil || a.ended != nil {
		return nil, err
	}
	out := &jobs.Allocation{ID: a.Native(), State: st.NativeState, Running: st.State == jobs.StateRunning,
		Reason: st.Reason, Node: st.Node, Start: st.Start}
	if info != nil {
		out.Ends, out.Open = info.Ends, out.Running && !info.Opened.IsZero()
	}
	return out, nil
}

// Stop gives the allocation back, whatever it does. orderly says that its keeper
// was told before and ends by itself: that has time.
func (p *Place) Stop(ctx context.Context, orderly bool) error {
	defer func() { _ = p.Link().End(ctx) }()
	a, err := last(p.Record)
	switch {
	case err != nil || a == nil:
		return err
	case a.ended != nil && (a.submitted == nil || a.ended.Word != ""):
		return nil
	case a.ended != nil:
		// By its keeper's word: whoever runs the site may have begun the job again.
		a.ended = nil
	}
	if a.submitted == nil {
		if a, err = p.settle(ctx, a, func(string) {}); err != nil || a.ended != nil {
			return err
		}
	}
	cancelled := false
	for began := p.Now(); ; {
		st, err := p.ask(ctx, a)
		switch {
		case a.ended != nil:
			return nil
		case err != nil:
			return err
		}
		if !cancelled && (!orderly || st.State != jobs.StateRunning || p.Now().Sub(began) > lateGrace) {
			cancelled = true
			if err := p.Scheduler.Cancel(ctx, []jobs.Handle{a.submitted.Handle}); err != nil {
				return err
			}
		}
		if p.Now().Sub(began) > lateGrace+endMost {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the %s does not end", a),
				Hint: "see: " + p.Scheduler.Show(a.submitted.Handle)}
		}
		if err := p.Sleep(ctx, time.Second/2); err != nil {
			return context.Cause(ctx)
		}
	}
}

// settles is how long it may take until a scheduler knows that a job has ended
// whose batch process or node is gone.
const settles = 2 * time.Second

// Fate says to people what has become of the last allocation, or "" when that
// is not to be found out.
func (p *Place) Fate(ctx context.Context) string {
	a, err := last(p.Record)
	if err != nil || a == nil || a.submitted == nil {
		return ""
	}
	ctx = jobs.WithUrgency(ctx)
	for began := p.Now(); a.ended == nil; {
		st, err := p.ask(ctx, a)
		switch {
		case a.ended != nil:
		case err != nil:
			return fmt.Sprintf("what became of %s is not known: %v", a, err)
		case !st.Ending && p.Now().Sub(began) >= settles, p.Sleep(ctx, settles/4) != nil:
			return fmt.Sprintf("%s is %s", a, st.NativeState)
		}
	}
	return fmt.Sprintf("%s ended: %s", a, a.ended)
}

// Left names the allocation that the environment in a directory of the ledger
// has, or has asked for; "" is none.
func Left(dir string) string {
	a, err := last(dir)
	switch {
	case err != nil || a == nil || a.ended != nil:
		return ""
	case a.submitted == nil:
		return fmt.Sprintf("%s (%s in the queue)", a, a.Name)
	}
	return a.String()
}

// Wanted tells whether the environment in a directory of the ledger has an
// allocation, or has asked for one.
func Wanted(dir string) bool {
	a, err := last(dir)
	return err != nil || a != nil && a.ended == nil
}
