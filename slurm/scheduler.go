package slurm

import (
	"sync"
	"time"

	"berth/jobs"
)

// Scheduler is Slurm as seen from one place. It is safe for concurrent use.
type Scheduler struct {
	on  jobs.Starter
	cfg Config

	// share is made before the first question; nil when nothing is shared.
	share func() *share

	mu     sync.Mutex
	config map[string]string // of slurmctld, once it was read
	parsed map[string]parsed // the last answers of squeue, by cluster
	users  map[string]string // names by number
}

// parsed is an answer of squeue that was read already: who waits for thousands
// of jobs looks at the same one for each of them.
type parsed struct {
	asked time.Time
	rows  []row
}

var _ jobs.Cluster = (*Scheduler)(nil)

// New returns the Slurm that the commands started by on talk to. It runs
// nothing. For rendering alone, on may be nil.
func New(on jobs.Starter, cfg Config) *Scheduler {
	cfg = cfg.withDefaults()
	return &Scheduler{on: on, cfg: cfg, share: sync.OnceValue(func() *share { return newShare(cfg) }),
		parsed: map[string]parsed{}, users: map[string]string{}}
}

// Name returns "slurm".
func (*Scheduler) Name() string { return jobs.SchedulerSlurm }
