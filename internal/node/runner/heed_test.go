package runner

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/jobs"
)

// TestHeed has Slurm end a job, and its TERM reach the runner seconds after the
// command, which was signalled first, and after its container: that is no failure
// of the task, which would be tried again.
func TestHeed(t *testing.T) {
	for name, c := range map[string]struct {
		exit      jobs.Exit
		scheduler string
		waits     bool
	}{
		"by TERM":            {jobs.Exit{Started: true, Code: 143, Signal: int(syscall.SIGTERM)}, jobs.SchedulerSlurm, true},
		"the container":      {jobs.Exit{}, jobs.SchedulerSlurm, true},
		"a code":             {jobs.Exit{Started: true, Code: 3}, jobs.SchedulerSlurm, false},
		"of another's queue": {jobs.Exit{Started: true, Code: 143, Signal: int(syscall.SIGTERM)}, jobs.SchedulerLocal, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &attempt{spec: jobs.Spec{Place: jobs.Place{Scheduler: c.scheduler}}, jobDir: t.TempDir()}
				go func() {
					time.Sleep(3 * time.Second)
					r.stop.set(why{state: jobs.StateCancelled})
				}()
				r.heed(c.exit)
				if heard := r.stop.Why() != nil; heard != c.waits {
					t.Errorf("heard of the TERM: %v, want %v", heard, c.waits)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
