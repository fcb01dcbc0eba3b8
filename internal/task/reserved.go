package task

import "berth/internal/strict"

// reserve names the words that will come, so that a file which counts on one is
// refused with the reason and not for its spelling.
func reserve(root *strict.Reader) {
	root.Later("trying again by itself is not built yet", "retry", "attempts", "resume")
	root.Later("falling back to another place is not built yet", "fallback")
	root.Later("schedules are not built yet", "schedule")
	root.Later("templates are not built yet", "template")
	root.Later("reviews are not built yet", "review", "approve", "merge")
	root.Later("sweeps are not built yet", "sweep", "matrix")
	root.Later("dependencies between tasks are not built yet", "depends", "after")
	root.Later("secrets are not built yet", "secrets")
	root.Later("notifications are not built yet", "notify")
	root.Later("named environments and sessions are not built yet", "environment", "session")
	root.Later("network and containment levels are not built yet", "network", "level", "egress")
	root.Refuse("is chosen where the task is submitted: use the flag --scheduler", "scheduler")
	root.Refuse("is chosen where the task is submitted: use the flag --profile", "profile")
	root.Later("remote targets are not built yet", "target")
	root.Refuse("is not needed: the prompt is the text below the front matter", "prompt")
	root.Synonyms("done", "checks", "verify", "tests")
}
