package slurm

import (
	"sync"

	"berth/jobs"
)

// Scheduler is Slurm as seen from one place. It is safe for concurrent use.
type Scheduler struct {
	on  jobs.Starter
	cfg Config

	mu     sync.Mutex
	config map[string]string // of slurmctld, once it was read
}

var _ jobs.Scheduler = (*Scheduler)(nil)

// New returns the Slurm that the commands started by on talk to. It runs
// nothing. For rendering alone, on may be nil.
func New(on jobs.Starter, cfg Config) *Scheduler {
	return &Scheduler{on: on, cfg: cfg.withDefaults()}
}

// Name returns "slurm".
func (*Scheduler) Name() string { return jobs.SchedulerSlurm }
