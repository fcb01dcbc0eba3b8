//go:build failpoint

package failpoint

import "slices"

// Names are the points that must have been passed by some test. Files that
// are created once have four steps each.
var Names = append([]string{
	"submit.planned", "submit.recorded", "submit.answered", "submit.refused", "submit.unclear", "submit.noted",
	"create.made", "create.written", "create.synced", "create.renamed",
	"begin.made", "begin.written", "begin.synced", "begin.renamed",
	"follow.decided", "follow.begun", "follow.answered", "follow.noted", "follow.takeback",
	"takeback.renamed", "takeback.synced", "remove.renamed", "remove.synced",
	"secrets.read", "secrets.taken", "secrets.drop", "temp.made", "temp.written", "beat.opened",
	"conclude.begin", "found.begin", "take.branch", "cancel.noted", "cancel.asked",
	"merge.ready", "merge.files", "merge.moved",
	"queue.started", "queue.enter", "queue.entered", "queue.become",
	"runner.claim", "runner.begin", "runner.executed", "runner.reached", "runner.decided",
	"runner.promoted", "runner.delivered", "runner.cleaned", "runner.ended", "runner.followed",
	"checkpoint.json:begin", "checkpoint.json:synced", "checkpoint.json:renamed", "key.drop", "key.dropped", "restart.begin", "restart.noted",
	"job.json:made", "job.json:written", "attempt.json:made", "attempt.json:written", "script.sh:made", "script.sh:written",
	"prompt.md:made", "prompt.md:written", "task.md:made", "task.md:written", "env:made", "env:written",
}, once(
	"submitted.json", "claim.json", "argv.json", "inside.json", "exit.json",
	"verdict.json", "decision.json", "taken.json", "cancel", "key.json",
)...)

func once(files ...string) []string {
	var names []string
	for _, f := range files {
		for _, step := range []string{"begin", "synced", "linked", "done"} {
			names = append(names, f+":"+step)
		}
	}
	return names
}

func registered(name string) bool { return slices.Contains(Names, name) }
