package all

import (
	"berth/internal/queue"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/slurm"
	"berth/templates"
)

// Clusters make the schedulers of clusters, whose programs are started by on: in
// the login of a machine, as people write it, or here for "". The first one is that
// of login hosts. Only tests change it.
var Clusters = []func(on jobs.Starter, login string) jobs.Cluster{
	func(on jobs.Starter, login string) jobs.Cluster {
		return slurm.New(on, slurm.Config{Login: login, Shared: socket.Dir})
	},
}

// Schedulers returns all schedulers, in the order in which "auto" tries them; that
// of this machine has its queue in a directory.
func Schedulers(on jobs.Starter, queueDir string) []jobs.Scheduler {
	var out []jobs.Scheduler
	for _, cluster := range Clusters {
		out = append(out, cluster(on, ""))
	}
	return append(out, queue.New(queue.Config{Dir: queueDir, Script: templates.WithRemark}))
}

// LoginScheduler returns the scheduler of a login host.
func LoginScheduler(there jobs.Starter, where string) jobs.Scheduler {
	return Clusters[0](there, where)
}
