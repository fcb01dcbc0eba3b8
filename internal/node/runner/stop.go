package runner

import (
	"context"
	"os"
	"syscall"
	"time"

	"berth/internal/node/supervise"
	"berth/jobs"
	"berth/jobs/store"
)

// why an attempt is ended before its command has.
type why struct {
	state  jobs.State
	class  jobs.Class // "" follows from the state
	code   int        // what `berth wait` exits with; 0 follows from the state
	reason string
	hint   string
	// hurry is how long the scheduler leaves before it kills; 0 is no hurry.
	hurry time.Duration
	// point: another attempt may go on from where the task stops.
	point bool
	at    time.Time
	fuse  bool // a part of the container's file system has ended
}

// stopper is why the attempt ends, once there is a reason.
type stopper struct {
	supervise.Stop[why]
	// again is a second cancel, while the work that the first one left to do is
	// still under way.
	again supervise.Stop[struct{}]
}

// samePress is the time in which another signal counts as part of the first cancel.
const samePress = time.Second

func (s *stopper) set(w why) bool {
	w.at = time.Now()
	return s.Set(w)
}

// watchSignals turns the scheduler's signals into a reason to stop. KillWait
// is asked beforehand: after TERM there may be no time left to ask.
func (r *attempt) watchSignals(ctx context.Context, signals <-chan os.Signal) {
	if r.spec.Clustered() {
		r.killWait.Store(int64(5 * time.Second))
		go func() { r.killWait.Store(int64(r.batch.KillWait(ctx, r.on))) }()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			if sig == syscall.SIGUSR2 && r.spec.Resume != nil {
				go r.warned(ctx)
			}
			if !supervise.Asks(sig) {
				continue
			}
			w := r.whySignal(sig)
			w.hurry = time.Duration(r.killWait.Load())
			if r.stop.set(w) {
				r.event("stopping", w.reason)
			} else if w.hurry == 0 && time.Since(r.stop.Why().at) > samePress {
				r.stop.again.Set(struct{}{})
			}
		}
	}
}

// heed checks whether an exit that seems to be the command's own was caused from
// outside: a scheduler may send TERM to every process of a job at once, and the
// command may end before this process has received its signal.
func (r *attempt) heed(e jobs.Exit) {
	if !e.OK() {
		wait := 200 * time.Millisecond
		if r.spec.Clustered() && (e.Signal == int(syscall.SIGTERM) || e == jobs.Exit{}) {
			// berth has sent no TERM and has not ended the container, so the scheduler may
			// have. It signals one process after the other, on a node that may be busy.
			wait = 5 * time.Second
		}
		select {
		case <-r.stop.Done():
		case <-time.After(wait):
		}
	}
	if store.Cancelled(r.jobDir) {
		r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled"})
	}
}

// whySignal tells the reasons for a TERM apart: a cancel is recorded before it
// is asked for, and the scheduler's time limit is known.
func (r *attempt) whySignal(sig os.Signal) why {
	if store.Cancelled(r.jobDir) {
		return why{state: jobs.StateCancelled, reason: "cancelled"}
	}
	point := r.spec.Resume != nil
	if !r.jobEnd.IsZero() && time.Until(r.jobEnd) < 2*time.Second {
		return why{state: jobs.StateTimeout, point: point,
			reason: "the scheduler's time limit for the job passed", hint: `ask for more in [resources] time`}
	}
	if !r.spec.Clustered() {
		// The machine goes down, perhaps.
		return why{state: jobs.StateCancelled, class: jobs.ClassInfra, point: point,
			reason: "ended from outside (signal " + sig.String() + "): not by berth cancel"}
	}
	return why{state: jobs.StateCancelled, class: jobs.ClassEnded, point: point,
		reason: "ended by the scheduler (signal " + sig.String() + "): a cancel, preemption or a shutdown",
		hint:   r.batch.EndHint(r.claim.NativeID)}
}

// stands reports whether the attempt still belongs to this process: no other process
// has claimed it, or has decided what follows it.
func (r *attempt) stands() bool {
	return store.ClaimStands(r.dir, r.claim) && (r.decided.Load() || !store.HasDecision(r.dir))
}

// takenOver ends an attempt that does not stand any more.
var takenOver = why{state: jobs.StateError, reason: "the attempt was taken over by another runner"}

// beat gives the sign of life.
func (r *attempt) beat(ctx context.Context) {
	supervise.Heartbeat{Dir: r.dir, Times: r.times.Times, Log: r.log, Ping: r.ping, Stands: func() bool {
		if !r.stands() {
			r.stop.set(takenOver)
			return false
		}
		if l := r.layer.Load(); l != nil && !l.Stands() {
			r.stop.set(why{state: jobs.StateError,
				reason: "overlay " + r.spec.Overlay.Name + " was taken over by another owner, because this runner was silent for long",
				hint:   "berth overlay show " + r.spec.Overlay.Name + " says who has it"})
			return false
		}
		return true
	}, Also: func() {
		r.egress.Load().Look()
		// Where the scheduler cannot be reached, the file is the only message.
		if store.Cancelled(r.jobDir) {
			r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled"})
		}
	}}.Run(ctx)
}
