package engine

import (
	"strings"
	"testing"

	"berth/jobs"
)

// TestSubmitMute: where nodes may not submit, a task that wants jobs submitted is refused by
// name before it is submitted. Progress needs no job, and a machine's own queue no profile.
func TestSubmitMute(t *testing.T) {
	for _, c := range []struct {
		name      string
		scheduler string
		mute      bool
		most      int
		refused   bool
	}{
		{"nodes are mute", jobs.SchedulerSlurm, true, 1, true},
		{"only progress", jobs.SchedulerSlurm, true, 0, false},
		{"nodes may submit", jobs.SchedulerSlurm, false, 1, false},
		{"the local queue", jobs.SchedulerLocal, true, 1, false},
	} {
		s := &jobs.Spec{Submit: &jobs.Submit{MaxJobs: c.most}, Place: jobs.Place{Scheduler: c.scheduler, Backend: jobs.BackendSingularity,
			Profile: jobs.Profile{Name: "site", NodesMute: c.mute}}}
		err := new(Engine).settleSubmit(t.Context(), s, false, false)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.refused && (jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "[submit] max_jobs: nodes of this site may not submit jobs (nodes_submit = false in the profile site)")) {
			t.Errorf("%s: %v, code %d", c.name, err, jobs.CodeOf(err))
		}
	}
}
