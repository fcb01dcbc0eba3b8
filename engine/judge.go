package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/node/allocations"
	"berth/internal/node/conclude"
	"berth/internal/sys/failpoint"
	"berth/jobs"
	"berth/jobs/store"
)

var cancelledBefore = jobs.Verdict{State: jobs.StateCancelled, Reason: "cancelled before it started"}

// judge draws the conclusion from a scheduler's word about an attempt without
// an exit record, or from its having none. While the runner's beat is fresh, no
// word suffices.
func (e *Engine) judge(ctx context.Context, v *View, known bool, st jobs.Status) {
	a := v.Current()
	age := e.Now().Sub(lastSign(a))
	switch {
	case known && !st.State.Final():
	case known && a.Claim == nil:
		e.conclude(ctx, v, e.neverClaimed(v, st))
	case known:
		// The batch process has ended, says the node; a node that is cut off
		// says nothing, and may still be running it.
		wait := quiet(&v.Spec)
		if cutOff(st) {
			wait = silent(&v.Spec)
		}
		if age < wait {
			v.Note = "the scheduler says " + st.NativeState + "; its runner has not recorded the end yet"
			return
		}
		e.conclude(ctx, v, noRecord(v, st))
	case a.Claim != nil:
		wait := silent(&v.Spec)
		if host, _ := os.Hostname(); v.Spec.Scheduler == jobs.SchedulerLocal && a.Claim.Host == host {
			wait = quiet(&v.Spec) // its queue knows the processes of this host
		}
		if age >= wait {
			e.conclude(ctx, v, jobs.Verdict{
				State: asWished(v, jobs.StateLost),
				Reason: "its runner has been silent since " + lastSign(a).UTC().Format(time.RFC3339) +
					", and the scheduler does not know it any more",
				Hint: leftHint(v),
			})
		}
	case v.Cancel != nil:
		// No need to wait: a runner that begins after all finds the wish.
		e.conclude(ctx, v, cancelledBefore)
	case v.Spec.Scheduler == jobs.SchedulerLocal, e.Now().Sub(a.Submitted.Time) >= settle: // a process of this host is there, or gone for good
		e.conclude(ctx, v, jobs.Verdict{State: jobs.StateLost, Reason: "the scheduler does not know it any more, and no runner began it",
			Hint: "see " + filepath.Join(a.Dir, jobs.SchedulerLog) + ", if it is there; submit it again"})
	}
}

// cutOff reports whether the scheduler may not reach the node, on which the
// runner lives on.
func cutOff(st jobs.Status) bool { return st.Class == jobs.ClassNode }

// neverClaimed returns the verdict on an attempt that ended before a runner began:
// it was cancelled while it waited, or the site could not start it.
func (e *Engine) neverClaimed(v *View, st jobs.Status) jobs.Verdict {
	verdict := jobs.Verdict{State: st.State, Word: st.NativeState, By: st.By}
	switch {
	case v.Cancel != nil:
		verdict.State, verdict.Reason = jobs.StateCancelled, cancelledBefore.Reason
	case st.State == jobs.StateCancelled:
		verdict.Reason = "cancelled in the scheduler before it started" + byWhom(st.By)
	case st.Code == jobs.CodeConfig:
		verdict.State, verdict.Class, verdict.Code, verdict.Reason =
			jobs.StateError, jobs.ClassPolicy, jobs.CodeConfig, "the job script could not prepare the node"
		if said := scriptSaid(v.Current().Dir); said != "" {
			verdict.Reason += ": " + said
		}
		verdict.Hint = "see " + filepath.Join(v.Current().Dir, jobs.SchedulerLog) + "; change modules or module_init in the profile"
	case st.State == jobs.StateFailed && st.Code == jobs.CodeNotRunnable:
		verdict.State, verdict.Class, verdict.Code = jobs.StateError, jobs.ClassPolicy, jobs.CodeConfig
		verdict.Reason = "berth's program cannot be run from " + e.Store.Home() + " on " + cmp.Or(st.Node, "its node")
		verdict.Hint = store.HintNoExec
	case st.Class == jobs.ClassPolicy && st.State == jobs.StateFailed:
		verdict.State, verdict.Class, verdict.Hint = jobs.StateError, st.Class, st.Hint
		verdict.Reason = "the scheduler ended it before its runner began (" + st.NativeState + ", " + st.Reason + "): it " + st.Explanation
	default:
		verdict.State, verdict.Reason = jobs.StateError, "the scheduler ended it before its runner began ("+st.NativeState+")"
		verdict.Hint = "see " + filepath.Join(v.Current().Dir, jobs.SchedulerLog) + "; do the nodes see " + e.Store.Home() + "?"
		verdict.Class = st.Class
		if st.Hint != "" {
			verdict.Hint = st.Hint
		}
	}
	return verdict
}

// scriptSaid returns why the job script ended, in its own words: of a module that
// does not load.
func scriptSaid(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, jobs.SchedulerLog))
	if err != nil {
		return "" // it is on the login host, or there is none
	}
	if said, own := strings.CutPrefix(allocations.LastLine(string(b)), "berth: "); own {
		return said
	}
	return ""
}

// noRecord returns the verdict on an attempt whose runner was killed before it
// could record anything.
func noRecord(v *View, st jobs.Status) jobs.Verdict {
	state := st.State
	if state == jobs.StateCompleted || state == jobs.StateFailed {
		state = jobs.StateLost
	}
	said := st.NativeState + byWhom(st.By)
	switch {
	case st.Signal != 0 && st.By == "":
		said += fmt.Sprintf(", signal %d", st.Signal)
	case st.Code != 0:
		said += fmt.Sprintf(", exit code %d", st.Code)
	}
	verdict := jobs.Verdict{State: asWished(v, state), Word: st.NativeState, By: st.By,
		Reason: "its runner ended without a record; the scheduler says " + said,
		Hint:   leftHint(v)}
	if verdict.State != jobs.StateCancelled {
		verdict.Class = st.Class
	}
	return verdict
}

// byWhom ends a sentence about a cancelled job.
func byWhom(by string) string {
	if by == "" {
		return ""
	}
	return ", by " + by
}

// asWished returns cancelled for a job whose end was requested, else state.
func asWished(v *View, state jobs.State) jobs.State {
	if v.Cancel != nil {
		return jobs.StateCancelled
	}
	return state
}

// conclude records a verdict, unless something new has appeared: the runner's exit
// record, its claim, a new heartbeat, another verdict. If the runner had accepted
// its result, conclude completes the exit record in place of a verdict.
func (e *Engine) conclude(ctx context.Context, v *View, verdict jobs.Verdict) {
	a := v.Current()
	// On a cluster something may have appeared since we looked there.
	if err := e.syncCancel(ctx, v.Record); err != nil {
		v.unasked(err)
		return
	}
	failpoint.Hit("conclude.begin")
	fresh, err := store.LoadFresh(a.Dir)
	switch {
	case err != nil || !sameAs(fresh, a):
	case fresh.Unfinished():
		if _, err = conclude.Attempt(fresh, verdict.Reason); err == nil {
			store.DropSecrets(v.Dir)
			fresh, err = store.LoadAttempt(a.Dir)
		}
	default:
		verdict.Version, verdict.Time = 1, e.Now().UTC()
		if _, err = conclude.Verdict(a.Dir, verdict); err == nil {
			if terr := e.syncCancel(ctx, v.Record); terr != nil {
				v.Note = "that could not be told to the cluster: " + terr.Error()
			}
			if v.Spec.Retry == nil {
				store.DropSecrets(v.Dir)
			}
			fresh, err = store.LoadAttempt(a.Dir)
		}
	}
	if err != nil {
		v.Note = "it has ended, but that could not be recorded: " + err.Error()
		return
	}
	fresh.N = a.N
	if fresh.Submitted == nil {
		fresh.Submitted = a.Submitted
	}
	v.Attempts[len(v.Attempts)-1] = *fresh
	v.State = jobs.StateOf(v.Record)
}

// sameAs tells whether nothing has happened to an attempt since it was read.
func sameAs(fresh, a *jobs.Attempt) bool {
	return fresh.Exit == nil && (fresh.Verdict == nil) == (a.Verdict == nil) &&
		(fresh.Claim == nil) == (a.Claim == nil) && !lastSign(fresh).After(lastSign(a))
}

// leftHint says where an attempt that left no record has left its files.
func leftHint(v *View) string {
	hint := "what it left is in " + v.Current().Dir
	if v.Spec.Workspace != nil && v.Spec.Login == nil && !v.Spec.Workspace.Copy {
		hint += "; if the task's files are among it, berth collect " + jobs.Short(v.Spec.ID) + " makes a branch of them"
	}
	return hint
}
