package runner

import (
	"errors"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network/judge"
	"berth/internal/node/egress"
	"berth/jobs"
)

// openNetwork begins to decide on what commands reach, for all containers of the
// attempt.
func (r *attempt) openNetwork() (err error) {
	if r.far != nil {
		return nil // a service has lists of its own
	}
	r.egress, err = egress.Open(egress.Options{Network: r.spec.Network, Record: func(judge.Entry) {}})
	return err
}

// network is that of the containers of a phase.
func (r *attempt) network(phase string) (session.Network, wire.NetworkWish) {
	if r.egress == nil {
		return nil, wire.NetworkWish{}
	}
	return r.egress.Phase(phase), r.egress.Wish(phase)
}

// withoutRoom tells whether a container is to be opened again without a room, and
// notes why; it is once.
func (r *attempt) withoutRoom(err error) bool {
	var no *session.NoRoomError
	if !errors.As(err, &no) || r.spec.Network.Transparent != "" {
		return false
	}
	r.spec.Network.Transparent = jobs.TransparentNever
	r.note("network: only programs that heed http_proxy, https_proxy or all_proxy reach what is allowed: " + no.Error())
	return true
}
