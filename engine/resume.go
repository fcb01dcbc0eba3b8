package engine

import (
	"fmt"

	"berth/jobs"
)

// settleResume takes over how a task goes on when its time is up, and refuses
// what cannot be kept for that. The backend, the layer and the limits are
// settled.
func settleResume(s *jobs.Spec, asked *jobs.Resume) error {
	if asked == nil || asked.Attempts == 0 {
		return nil
	}
	no := func(kind jobs.Kind, what, hint string) error {
		return &jobs.Error{Kind: kind, Msg: "resume: " + what, Hint: hint}
	}
	p := *asked
	limit := s.Resources.Time
	if limit == 0 {
		return no(jobs.KindUsage, "the task has no time limit before which it could be stopped", "name one: --time, or [resources] time")
	}
	if p.Before == 0 {
		p.Before = jobs.DefaultBefore(limit)
	}
	if p.Min == 0 {
		p.Min = jobs.DefaultMin(limit)
	}
	switch {
	case p.Before > limit/4:
		return no(jobs.KindUsage, fmt.Sprintf("before = %s is more than a quarter of the time limit (%s)", p.Before, limit),
			fmt.Sprintf("give %s or less, or more time", limit/4))
	case p.Min >= limit-p.Before:
		return no(jobs.KindUsage, fmt.Sprintf("min = %s is as long as the task runs before it is stopped (%s)", p.Min, limit-p.Before),
			"give less, or more time")
	case s.Resources.Tasks > 1:
		return no(jobs.KindConfig, "the tasks of [resources] ntasks cannot be stopped at one point from which all go on", "leave resume or ntasks out")
	case s.Workspace == nil && !s.Can().Leaves():
		return no(jobs.KindConfig, "with the backend "+s.Backend+" nothing but a workspace is there after an attempt, and this task has none",
			`add [workspace] repo = ".", or use --backend singularity`)
	case p.Every > 0 && s.Workspace == nil:
		return no(jobs.KindUsage, "every: a checkpoint keeps the workspace, and this task has none", `add [workspace] repo = ".", or leave every out`)
	case p.Every > 0 && s.Can().OtherHost:
		return no(jobs.KindConfig, "every: the workspace comes back from the backend "+s.Backend+" only when the task has ended", "leave every out")
	}
	s.Resume = &p
	if s.Retry == nil {
		s.Retry = &jobs.Retry{} // no trouble is a reason to go on
	}
	return nil
}
