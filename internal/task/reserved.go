package task

import "berth/internal/strict"

// reserve names the words of tables and keys that will come, so that a file
// which counts on one is refused with the reason and not for a spelling.
func reserve(root *strict.Reader) {
	root.Refuse("trying again by itself is not built yet", "retry", "attempts", "resume")
	root.Refuse("falling back to another place is not built yet", "fallback")
	root.Refuse("schedules are not built yet", "schedule")
	root.Refuse("templates are not built yet", "template")
	root.Refuse("reviews are not built yet", "review", "approve", "merge")
	root.Refuse("sweeps are not built yet", "sweep", "matrix")
	root.Refuse("dependencies between tasks are not built yet", "depends", "after")
	root.Refuse("secrets are not built yet", "secrets")
	root.Refuse("notifications are not built yet", "notify")
	root.Refuse("named environments and sessions are not built yet", "environment", "session")
	root.Refuse("network levels are not built yet", "network", "level", "egress")
	root.Refuse("it is chosen where the task is submitted: use the flag --scheduler", "scheduler")
	root.Refuse("it is chosen where the task is submitted: use the flag --profile", "profile")
	root.Refuse("remote targets are not built yet", "target")
	root.Refuse("the prompt is the text below the front matter", "prompt")
	root.Synonyms("done", "checks", "verify", "tests")
}
