//go:build !embednode

package node

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"berth/apptainer"
	"berth/backends/all"
	"berth/backends/external"
	"berth/internal/doctor"
	"berth/internal/link/mux"
	"berth/internal/node/door"
	"berth/internal/node/guest"
	"berth/internal/node/join"
	"berth/internal/node/keeper"
	"berth/internal/node/runner"
	"berth/internal/queue"
	"berth/internal/remote/replica"
	"berth/internal/sweep/worker"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// Verbs are the words that [Main] understands.
var Verbs = []string{
	"runner", "rank", "guest", guest.VerbDial, "keep", "connect", "hold", "join", join.VerbRelay,
	"overlay-mount", overlay.VerbFiles, "try", "examine", "queue-wait",
	worker.Verb, runner.VerbPutAway, jobs.VerbBuild, jobs.VerbPull, replica.Verb, guest.VerbAsk, guest.VerbReport,
}

// Main runs one verb and returns the exit code of the process.
func Main(args []string) int {
	if !Is(args) {
		_, _ = fmt.Fprintf(os.Stderr, "usage: berth-node %s ...\nThis program is started by berth on compute nodes and inside containers.\n",
			strings.Join(Verbs, "|"))
		return 2
	}
	switch args[0] {
	case "runner":
		return runner.Main(args[1:], all.Openers(run.Local{}), os.Stderr)
	case jobs.VerbRank:
		return runner.RankMain(args[1:], all.Openers(run.Local{}), os.Stdin, os.Stdout, os.Stderr)
	case runner.VerbPutAway:
		return runner.PutAwayMain(args[1:], os.Stderr)
	case "guest":
		return guest.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case guest.VerbDial:
		if len(args) == 3 {
			return door.DialMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
		}
		return guest.DialMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case guest.VerbAsk:
		return guest.AskMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case guest.VerbReport:
		return guest.ReportMain(args[1:], os.Stderr)
	case "keep":
		return keeper.Main(args[1:], all.Openers(run.Local{}), os.Stdout, os.Stderr)
	case "connect":
		if slices.Contains(args, "--mux") {
			return mux.ConnectMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
		}
		return keeper.ConnectMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case replica.Verb:
		return replica.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "hold":
		return mux.HoldMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "join":
		return join.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case join.VerbRelay:
		return join.RelayMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "overlay-mount":
		return overlay.MountMain(args[1:], os.Stderr)
	case overlay.VerbFiles:
		return overlay.FilesMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case "try":
		return apptainer.TryMain(args[1:], os.Stdin, os.Stdout, os.Stderr)
	case jobs.VerbBuild:
		return apptainer.BuildMain(args[1:], os.Stdin, os.Stderr)
	case jobs.VerbPull:
		return apptainer.PullMain(args[1:], os.Stderr)
	case worker.Verb:
		return worker.Main(args[1:], (&external.Backend{}).LeftOf, os.Stderr)
	case "examine":
		return doctor.Main(args[1:], os.Stdin, os.Stdout, os.Stderr)
	default:
		return queue.WaitMain(args[1:], func(attempt, client string) queue.Held { return runner.Held(attempt, client) })
	}
}
