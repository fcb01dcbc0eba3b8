package runner

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// why an attempt is ended before its command has.
type why struct {
	state  jobs.State
	reason string
	hint   string
	// hurry is how long the scheduler leaves before it kills; 0 is no hurry.
	hurry time.Duration
	at    time.Time
}

// stopper holds the first reason to stop; later ones change nothing.
type stopper struct {
	mu   sync.Mutex
	why  *why
	done chan struct{}
}

func (s *stopper) init() { s.done = make(chan struct{}) }

func (s *stopper) set(w why) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return false
	}
	w.at = time.Now()
	s.why = &w
	close(s.done)
	return true
}

func (s *stopper) get() *why {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// watchSignals turns the scheduler's signals into a reason to stop. KillWait
// is asked beforehand: after TERM there may be no time left to ask.
func (r *attempt) watchSignals(ctx context.Context, signals <-chan os.Signal) {
	killWait := make(chan time.Duration, 1)
	if r.spec.Scheduler == jobs.SchedulerSlurm {
		go func() { killWait <- slurmKillWait(ctx, r.on) }()
	}
	hurry := 5 * time.Second
	if r.spec.Scheduler != jobs.SchedulerSlurm {
		hurry = 0
	}
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-killWait:
			hurry = d
		case sig := <-signals:
			if sig != syscall.SIGTERM && sig != syscall.SIGINT {
				continue
			}
			w := r.whySignal(sig)
			w.hurry = hurry
			if r.stop.set(w) {
				r.event("stopping", w.reason)
			}
		}
	}
}

// heed looks whether an end that seems to be the command's own is not: a
// scheduler may send TERM to every process of a job at once, and then the
// command can be gone before this process has heard of it.
func (r *attempt) heed(e jobs.Exit) {
	if !e.OK() {
		select {
		case <-r.stop.done:
		case <-time.After(200 * time.Millisecond):
		}
	}
	if store.Cancelled(r.jobDir) {
		r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled"})
	}
}

// whySignal tells the reasons for a TERM apart: a cancel is recorded before it
// is asked for, and Slurm's time limit is known.
func (r *attempt) whySignal(sig os.Signal) why {
	if store.Cancelled(r.jobDir) {
		return why{state: jobs.StateCancelled, reason: "cancelled"}
	}
	if !r.jobEnd.IsZero() && time.Until(r.jobEnd) < 2*time.Second {
		return why{state: jobs.StateTimeout, reason: "the Slurm job's time limit passed", hint: `ask for more in [resources] time`}
	}
	if r.spec.Scheduler != jobs.SchedulerSlurm {
		return why{state: jobs.StateCancelled, reason: "ended from outside (signal " + sig.String() + "): not by berth cancel"}
	}
	return why{state: jobs.StateCancelled, reason: "ended by the scheduler (signal " + sig.String() + "): scancel, preemption or a shutdown", hint: "squeue and sacct say which: sacct -X -j " + r.claim.NativeID}
}

// beat writes the sign of life, and pings the guest only while that works and
// the claim stands: a runner that has lost its file system or its attempt must
// let the container end.
func (r *attempt) beat(ctx context.Context) {
	t := time.NewTicker(r.times.beat)
	defer t.Stop()
	for n := 1; ; n++ {
		if err := store.Beat(r.dir, n, time.Now()); err != nil {
			r.log.Warn("the beat could not be written", "err", err)
		} else if !store.ClaimStands(r.dir, r.claim) {
			r.stop.set(why{state: jobs.StateError, reason: "the attempt was taken over by another runner"})
		} else {
			r.ping()
		}
		// Where the scheduler cannot be reached, the file is the only message.
		if n > 1 && store.Cancelled(r.jobDir) {
			r.stop.set(why{state: jobs.StateCancelled, reason: "cancelled"})
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
