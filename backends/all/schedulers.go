package all

import (
	"time"

	"berth/internal/queue"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/slurm"
	"berth/templates"
)

// Clusters make the schedulers of clusters, whose programs are started by on: in
// the login of a machine, as people write it, or here for "". The first one is that
// of login hosts. Only tests change it.
var Clusters = []func(on jobs.Starter, login string, a Asking) jobs.Cluster{
	func(on jobs.Starter, login string, a Asking) jobs.Cluster {
		return slurm.New(on, slurm.Config{Login: login, Shared: socket.Dir, Poll: a.Poll, Note: a.Note})
	},
}

// Asking says how a cluster is asked.
type Asking struct {
	Poll time.Duration        // the least time between two questions that no user waits for; 0 is the usual one
	Note func(program string) // counts a command; nil counts none
}

// Schedulers returns all schedulers, in the order in which "auto" tries them; that
// of this machine has its queue in a directory.
func Schedulers(on jobs.Starter, queueDir string, a Asking) []jobs.Scheduler {
	var out []jobs.Scheduler
	for _, cluster := range Clusters {
		out = append(out, cluster(on, "", a))
	}
	return append(out, queue.New(queue.Config{Dir: queueDir, Script: templates.WithRemark}))
}

// LoginScheduler makes the scheduler of a login host.
func LoginScheduler(a Asking) func(there jobs.Starter, where string) jobs.Scheduler {
	return func(there jobs.Starter, where string) jobs.Scheduler { return Clusters[0](there, where, a) }
}
