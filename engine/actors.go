package engine

import (
	"fmt"
	"os"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// Who acts on a job.
const (
	ActorNone      = "none"      // it is over
	ActorScheduler = "scheduler" // starts it
	ActorRunner    = "runner"    // runs the attempt
	ActorReaper    = "reaper"    // a small job that does what must follow after Slurm has ended the attempt
	ActorStandby   = "standby"   // a job that waits in Slurm to be the next attempt
	ActorAnybody   = "berth"     // any verb of berth that looks at the job, such as berth status
	ActorYou       = "you"       // nothing happens before the user acts
)

// Actor is who does something about a job next.
type Actor struct {
	Who  string    `json:"who"`
	Does string    `json:"does"`
	When time.Time `json:"when,omitzero"` // not before; zero is now, or when it comes to that
}

// whenOver says what is left to do about a job that is over: a success that changed nothing,
// or what it was not to change, is looked at.
func whenOver(r *jobs.Record) []Actor {
	short := jobs.Short(r.Spec.ID)
	switch code := jobs.CodeOfRecord(r); {
	case code == jobs.CodeNoChanges:
		return []Actor{{Who: ActorYou, Does: "look why: berth logs " + short}}
	case code == jobs.CodeOutOfScope && reviewable(r) == nil && noVerdict(r):
		return []Actor{{Who: ActorYou, Does: "look at what it changed outside its scope: berth review show " + short}}
	}
	return []Actor{{Who: ActorNone, Does: "nothing: it is over"}}
}

// noVerdict reports whether nothing was decided of the result.
func noVerdict(r *jobs.Record) bool {
	rs, err := store.LoadReviews(r.Dir)
	return err == nil && rs.Verdict() == nil
}

// actors returns who acts on a job next, the likeliest first. word is the
// scheduler's status of its current attempt.
func (e *Engine) actors(v *View, word jobs.Status) []Actor {
	a := v.Current()
	if a == nil {
		return []Actor{{Who: ActorAnybody, Does: "finds out what became of it"}}
	}
	step := jobs.Next(v.Record, nil, e.Now())
	if step.Do == jobs.DoNothing && v.State.Final() {
		return whenOver(v.Record)
	}
	var out []Actor
	add := func(who string, when time.Time, format string, args ...any) {
		out = append(out, Actor{Who: who, Does: fmt.Sprintf(format, args...), When: when})
	}
	switch {
	case step.Do == jobs.DoAsk:
		add(ActorAnybody, time.Time{}, "asks the scheduler why it ended attempt %d, and decides what follows", a.N)
	case step.Do == jobs.DoDecide:
		add(ActorAnybody, time.Time{}, "decides what follows attempt %d", a.N)
	case step.Do == jobs.DoBegin:
		begins := fmt.Sprintf("submits attempt %d: %s", a.N+1, step.Decision.Reason)
		if host, _ := os.Hostname(); v.Spec.Scheduler == jobs.SchedulerLocal && v.Spec.Host != host {
			begins += "; on " + v.Spec.Host + ", whose queue it is"
		}
		if v.Standby != nil {
			add(ActorStandby, step.Decision.Change.NotBefore, "begins attempt %d: %s (job %s, %s)",
				a.N+1, step.Decision.Reason, v.Standby.NativeID, v.standbyCame(step.Decision))
		} else {
			add(ActorAnybody, step.Decision.Change.NotBefore, "%s", begins)
		}
	case v.Cancel != nil && a.Claim != nil && !a.Over():
		add(ActorRunner, time.Time{}, "ends it: that was asked for at %s", v.Cancel.Time.UTC().Format(time.RFC3339))
	case v.Cancel != nil:
		add(ActorScheduler, time.Time{}, "takes it out of its queue; a runner that begins all the same finds the wish")
	case a.Submitted == nil && a.Claim == nil:
		add(ActorAnybody, time.Time{}, "looks whether the scheduler has it")
		add(ActorAnybody, a.Info.Created.Add(submitting), "calls it failed if the scheduler does not know it by then")
	case a.Claim == nil && len(v.Waits.For) > 0:
		add(ActorScheduler, word.Start, "starts it when these have ended: %s", v.Waits)
	case a.Claim == nil && word.Held:
		add(ActorYou, time.Time{}, "%s", hintOr(word.Hint, "it does not start by itself"))
	case a.Claim == nil:
		add(ActorScheduler, word.Start, "starts it")
	default:
		out = e.whileClaimed(v, a)
	}
	if a.Over() {
		return out
	}
	return append(out, behind(v.Record)...)
}

// whileClaimed are those who act on an attempt that has a runner.
func (e *Engine) whileClaimed(v *View, a *jobs.Attempt) []Actor {
	last := lastSign(a)
	age := e.Now().Sub(last)
	node := a.Claim.Node
	if node == "" {
		node = a.Claim.Host
	}
	does := fmt.Sprintf("watches it on %s, records its end and decides what follows", node)
	if age < quiet(&v.Spec) {
		if limit := a.Info.Change.Resources(v.Spec.Resources).Time; limit > 0 {
			does += fmt.Sprintf("; its time ends at %s", a.Claim.Time.Add(limit).UTC().Format(time.RFC3339))
		}
		return []Actor{{Who: ActorRunner, Does: does}}
	}
	return []Actor{
		{Who: ActorRunner, Does: fmt.Sprintf("has been silent on %s since %s, and may come back", node, last.UTC().Format(time.RFC3339))},
		{Who: ActorAnybody, Does: "asks the scheduler, and takes it for ended if that does not know it any more", When: last.Add(silent(&v.Spec))},
	}
}

// behind returns the standby and the reaper that are queued behind an attempt.
func behind(r *jobs.Record) (out []Actor) {
	if rest := r.Waiting(); len(rest) > 0 {
		out = append(out, Actor{
			Who: ActorStandby,
			Does: fmt.Sprintf("is the next attempt, if there is to be one with the same resources, when the scheduler has ended this one (job %s)",
				rest[0].NativeID),
		})
	}
	a := r.Current()
	if r.Unguarded() {
		return append(out, Actor{Who: ActorAnybody, Does: "submits the job that looks after it; its runner does so, too, some time after it has begun"})
	}
	if a.Reaper == nil {
		return out
	}
	return append(out, Actor{
		Who:  ActorReaper,
		Does: fmt.Sprintf("does what follows when the scheduler has ended it and the runner has not (job %s)", a.Reaper.Handle.NativeID),
	})
}

func hintOr(hint, otherwise string) string {
	if hint != "" {
		return hint
	}
	return otherwise
}
