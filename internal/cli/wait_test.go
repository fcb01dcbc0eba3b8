package cli

import (
	"testing"

	"berth/engine"
	"berth/jobs"
)

// TestWaiting: a reason for which a job waits is told once, when it stays.
func TestWaiting(t *testing.T) {
	a, _, stderr := onTerminal(false)
	tell := a.waiting()
	in := func(state jobs.State, why string) {
		tell(engine.View{State: state, Asked: true, Status: jobs.Status{Explanation: why, Hint: "see: sinfo"}})
	}
	in(jobs.StatePending, "waits: soon over")
	for range 3 {
		in(jobs.StatePending, "waits: no node")
	}
	in(jobs.StatePending, "")
	in(jobs.StateRunning, "runs")
	in(jobs.StateRunning, "runs")
	if got := stderr.String(); got != "berth: it waits: no node; see: sinfo\n" {
		t.Errorf("%q", got)
	}
}
