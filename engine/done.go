package engine

import (
	"berth/jobs"
)

// settleDone takes over what the done commands run over, and refuses a task for
// which that is not there: as it was before the task, or as the task leaves it.
// The backend, the layer and resume are settled.
func settleDone(s *jobs.Spec, over string) error {
	if len(s.Done) == 0 {
		return nil
	}
	if over == jobs.DoneOverTask {
		if s.Can().Fresh {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: "done_over: the done commands of the backend docker run in a container of their own, " +
					"where nothing of the task's is but the workspace",
				Hint: "leave done_over out, or use --backend singularity"}
		}
		s.DoneOver = over
		return nil
	}
	what := ""
	switch {
	case s.External != nil:
		what = "a sandbox of the backend " + s.Backend + " is the task's own"
	case s.Overlay.Name != "" && s.Overlay.Snapshot == jobs.SnapshotNever:
		what = "the task changes overlay " + s.Overlay.Name + " in place"
	case s.Overlay.Name != "" && s.Resume != nil:
		what = "overlay " + s.Overlay.Name + " goes on changing from attempt to attempt (resume)"
	default:
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "done: " + what + ", so that nothing is there to check with that the task could not prepare",
		Hint: `done_over = "task" has the checks run over what the task leaves, and the record says so`}
}
