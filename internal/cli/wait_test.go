package cli

import (
	"testing"

	"berth/engine"
	"berth/jobs"
)

// TestWaiting: a reason for which a job waits is told once.
func TestWaiting(t *testing.T) {
	a, _, stderr := onTerminal(false)
	tell := a.waiting()
	in := func(state jobs.State, asked bool, why string) {
		tell(engine.View{State: state, Asked: asked, Status: jobs.Status{Explanation: why, Hint: "see: sinfo"}})
	}
	in(jobs.StatePending, false, "waits: not asked")
	for range 2 {
		in(jobs.StatePending, true, "waits: no node")
		in(jobs.StatePending, true, "waits: others")
	}
	in(jobs.StateRunning, true, "runs")
	if got := stderr.String(); got != "berth: it waits: no node; see: sinfo\nberth: it waits: others; see: sinfo\n" {
		t.Errorf("%q", got)
	}
}
