package task

import "berth/internal/config/strict"

const inNetwork = `stands in [network], as mode = "none" or allow = ["NAME"]`

// reserve names the words that will come, and those that stand elsewhere, so that a file
// which counts on one is refused with the reason and not for its spelling.
func reserve(root *strict.Reader) {
	root.Synonyms("retry", "attempts", "retries")
	root.Synonyms("resume", "checkpoint", "checkpoints")
	root.Later("falling back to another place is not built yet", "fallback")
	root.Refuse("is not said in a task: berth schedule add submits a task at set times", "schedule")
	root.Refuse("stands in [terminal]", "template")
	root.Refuse("is not said in a task: a result is reviewed after the job, by berth review; its keys stand in [review] of your configuration",
		"review", "approve", "merge")
	root.Refuse("is not said in a task: a sweep is a file of its own, which names the task: berth sweep submit", "sweep", "matrix")
	root.Synonyms("credentials", "credential", "keys")
	root.Synonyms("caps", "cap", "budget")
	root.Synonyms("after", "depends", "dependency", "dependencies", "needs")
	root.Synonyms("labels", "label", "tags", "tag")
	root.Later("secrets are not built yet", "secrets")
	root.Refuse("stands in your own configuration, as [notify]", "notify")
	root.Later("a job in a named environment is not built yet; commands in one: berth exec --env NAME", "environment", "session")
	root.Later("containment levels are not built yet", "level")
	root.Refuse(inNetwork, "egress", "allow")
	root.Refuse("is chosen where the task is submitted: use the flag --scheduler", "scheduler")
	root.Refuse("is chosen where the task is submitted: use the flag --profile", "profile")
	root.Refuse("is chosen where the task is submitted: use the flag --target", "target")
	root.Refuse("is not needed: the prompt is the text below the front matter", "prompt")
	root.Synonyms("done", "checks", "verify", "tests")
}
