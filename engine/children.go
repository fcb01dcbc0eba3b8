package engine

import (
	"time"

	"berth/jobs"
)

// childTime is how long a job of a task's lasts at most where neither [submit] nor the
// task itself has a time.
const childTime = time.Hour

// settleSubmit settles the bounds of what a task submits, and refuses [jobs.Submit] where
// nothing would pass on what is asked.
func settleSubmit(s *jobs.Spec) error {
	if s.Submit == nil {
		return nil
	}
	switch {
	case s.Can().OtherHost:
		return absent("[submit]", &s.Place)
	case s.Resources.Tasks > 1 || s.Login != nil:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "[submit] is not available with ntasks above 1, nor with --login", Hint: "leave it out"}
	case !s.Submit.Jobs():
		return nil
	case s.Profile.NodesMute && s.Clustered():
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "[submit] max_jobs: nodes of this site may not submit jobs (nodes_submit of the profile is false)",
			Hint: "leave max_jobs out, or submit the jobs yourself: berth submit --after"}
	}
	b := *s.Submit
	if b.Time == 0 {
		b.Time = s.Resources.Time
	}
	if b.Time == 0 {
		b.Time = childTime
	}
	if b.Memory == 0 {
		b.Memory = s.Resources.Memory
	}
	if b.GPUs == 0 {
		b.GPUs = s.Resources.GPUCount()
	}
	for _, p := range b.Partitions {
		if err := jobs.CheckText("[submit] partitions", p); err != nil {
			return err
		}
	}
	s.Submit = &b
	return nil
}
