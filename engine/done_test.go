package engine

import (
	"strings"
	"testing"

	"berth/jobs"
)

// Where nothing is there from before the task, it must say that it is checked over
// its own files, before it waits for its turn.
func TestSettleDone(t *testing.T) {
	named := jobs.Spec{Place: jobs.Place{Backend: jobs.BackendSingularity, Overlay: jobs.OverlaySpec{Name: "deps"}}}
	in := func(change func(*jobs.Spec)) jobs.Spec { s := named; change(&s); return s }
	for name, c := range map[string]struct {
		spec            jobs.Spec
		refused, withIt string // what is said without the key, and with it
	}{
		"thrown away": {spec: jobs.Spec{Place: jobs.Place{Backend: jobs.BackendSingularity}}},
		"overlay":     {spec: named},
		"in place":    {spec: in(func(s *jobs.Spec) { s.Overlay.Snapshot = jobs.SnapshotNever }), refused: "changes overlay deps in place"},
		"resumed":     {spec: in(func(s *jobs.Spec) { s.Resume = &jobs.Resume{} }), refused: "from attempt to attempt"},
		"sandbox":     {spec: jobs.Spec{Place: jobs.Place{Backend: "modal", External: &jobs.ExternalSpec{}}}, refused: "sandbox of the backend modal"},
		"docker":      {spec: jobs.Spec{Place: jobs.Place{Backend: jobs.BackendDocker}}, withIt: "container of their own"},
		"local":       {spec: jobs.Spec{Place: jobs.Place{Backend: jobs.BackendLocal}}},
		"ssh":         {spec: jobs.Spec{Place: jobs.Place{Backend: jobs.BackendSSH}}},
	} {
		for over, want := range map[string]string{"": c.refused, jobs.DoneOverBefore: c.refused, jobs.DoneOverTask: c.withIt} {
			s := c.spec
			if err := settleDone(&s, over); err != nil {
				t.Errorf("%s, %q, without checks: %v", name, over, err)
			}
			s.Done = []jobs.Command{{Shell: "true"}}
			err := settleDone(&s, over)
			if want == "" {
				if err != nil || (s.DoneOver == jobs.DoneOverTask) != (over == jobs.DoneOverTask) {
					t.Errorf("%s, %q: %q, %v", name, over, s.DoneOver, err)
				}
			} else if jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), want) || !strings.Contains(jobs.HintOf(err), "done_over") {
				t.Errorf("%s, %q: %v (%s)", name, over, err, jobs.HintOf(err))
			}
		}
	}
}
