package allocations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
)

// Times of a client that waits in the queue.
const (
	lookEvery    = 50 * time.Millisecond // for the keeper's own sign, which is a file
	lookMost     = 2 * time.Second
	askFirst     = 300 * time.Millisecond
	askMost      = 15 * time.Second // between questions to the scheduler
	askRarely    = time.Minute      // of one who waits for an hour
	tellAgain    = time.Minute
	unknownGrace = 30 * time.Second // a job that was just submitted may not be listed yet
	lateGrace    = 20 * time.Second // for the orderly end of a keeper to be seen
	endMost      = 2 * time.Minute  // for one that was cancelled to be over: a site's KillWait, and what it cleans up
)

// await waits until an allocation runs, and returns its node. When it turns
// out to have ended, that is recorded in a.ended. mine is that this client has
// asked for it.
func (p *Place) await(ctx context.Context, a *Allocation, mine bool, o keeper.OpenOptions) (node string, err error) {
	began := p.Now()
	var asked, told time.Time
	said := ""
	for pause := askFirst; ; {
		if info := p.keeps(a); info != nil {
			return "", nil
		}
		now := p.Now()
		if now.Sub(asked) >= pause || asked.IsZero() && !mine {
			if !asked.IsZero() {
				pause = min(pause*2, between(now.Sub(began)/40, askMost, askRarely))
			}
			asked = now
			st, err := p.status(ctx, a)
			switch {
			case err != nil:
				if text := "the scheduler could not be asked: " + err.Error(); text != said {
					o.Progress(text)
					said = text
				}
			case a.ended != nil:
				return "", nil
			case st.State == jobs.StateRunning:
				return st.Node, nil
			case o.NoStart:
				return "", keeper.ErrNotRunning
			default:
				a.fresh = true
				if text := waiting(a, st); text != said || now.Sub(told) >= tellAgain {
					o.Progress(text)
					said, told = text, now
				}
			}
		}
		if p.Immediate > 0 && p.Now().Sub(began) >= p.Immediate {
			return "", p.giveUp(ctx, a, mine, said)
		}
		if err := p.Sleep(ctx, between(p.Now().Sub(began)/100, lookEvery, lookMost)); err != nil {
			if mine {
				o.Progress(fmt.Sprintf("%s stays in the queue for the next command; berth env stop %s gives it up", a, p.Spec.Name))
			}
			return "", context.Cause(ctx)
		}
	}
}

// between bounds a pause: who has waited long asks the scheduler, and the file
// server, less often.
func between(d, least, most time.Duration) time.Duration { return max(least, min(d, most)) }

// waiting says why an allocation has not begun.
func waiting(a *Allocation, st jobs.Status) string {
	text := a.String() + " waits in the queue"
	if st.Reason != "" {
		text += ": " + st.Reason
	}
	if !st.Start.IsZero() {
		text += ", expected to start " + st.Start.Local().Format("Jan 2 15:04")
	}
	if st.Hint != "" {
		text += "; " + st.Hint
	}
	return text
}

// giveUp is --immediate: nothing was free.
func (p *Place) giveUp(ctx context.Context, a *Allocation, mine bool, said string) error {
	e := &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("no allocation within %v", p.Immediate),
		Hint: "try again later, ask for less, or leave --immediate out to wait in the queue"}
	if said != "" {
		e.Err = errors.New(said)
	}
	if mine {
		if err := p.Scheduler.Cancel(ctx, []jobs.Handle{a.submitted.Handle}); err != nil {
			return errors.Join(e, err)
		}
		a.end(jobs.Status{State: jobs.StateCancelled, NativeState: "cancelled", Reason: "it did not start at once"}, p.Now())
	}
	return e
}

// status tells how an allocation stands, and records its end: by what its keeper
// has written, whose end frees the environment before the scheduler has cleaned
// up behind it, else by the scheduler's word.
func (p *Place) status(ctx context.Context, a *Allocation) (jobs.Status, error) {
	if info := p.peek(); info != nil && info.Allocation == a.Native() && !info.Ended.IsZero() {
		a.end(jobs.Status{Reason: info.Why}, p.Now())
		return jobs.Status{}, nil
	}
	return p.ask(ctx, a)
}

// ask asks the scheduler for an allocation, and records its end.
func (p *Place) ask(ctx context.Context, a *Allocation) (jobs.Status, error) {
	all, err := p.Scheduler.Status(ctx, []jobs.Handle{a.submitted.Handle})
	st, ok := all[a.submitted.Handle.Name]
	switch {
	case ok && st.State.Final():
		a.end(st, p.Now())
	case err != nil:
		return st, err
	case !ok || st.State == "":
		if p.Now().Sub(a.submitted.Time) < unknownGrace {
			return jobs.Status{State: jobs.StatePending}, nil
		}
		if !ok {
			a.end(jobs.Status{Reason: "the scheduler does not know it any more"}, p.Now())
		}
	}
	return st, nil
}
