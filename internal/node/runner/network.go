package runner

import (
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/egress"
	"berth/jobs"
)

// openNetwork begins to decide on what commands reach, for all containers of the
// attempt.
func (r *attempt) openNetwork() error {
	if r.far != nil || r.rank != nil {
		return nil // a service has lists of its own; ranks have the node's network, and done is not theirs
	}
	e, err := egress.Open(egress.Options{Network: r.spec.Network, Dir: r.dir, Added: r.jobDir, Brokered: r.brokered()})
	if err == nil {
		r.egress.Store(e)
	}
	return err
}

// network is that of the containers of a phase.
func (r *attempt) network(phase string) (session.Network, wire.NetworkWish) {
	return r.egress.Load().Of(phase)
}

// level is that of a container of the attempt: a phase may have another network than
// the task.
func (r *attempt) level() jobs.Level {
	l := r.opening.Level
	if r.far != nil {
		return l
	}
	if l == jobs.LevelEgress {
		l = jobs.LevelFS
	}
	return r.spec.Network.Level(l)
}
