package keeper

import (
	"errors"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network/judge"
	"berth/internal/node/egress"
	"berth/jobs"
)

// openNetwork begins to decide on what commands reach.
func (k *keeper) openNetwork() (err error) {
	if can := k.spec.Can(); !can.Here() {
		return nil // a service has lists of its own
	}
	k.egress, err = egress.Open(egress.Options{Network: k.spec.Network, Record: func(judge.Entry) {}})
	return err
}

func (k *keeper) network() (session.Network, wire.NetworkWish) {
	if k.egress == nil {
		return nil, wire.NetworkWish{}
	}
	return k.egress.Phase(""), k.egress.Wish("")
}

// withoutRoom tells whether the container is to be opened again without a room, and
// notes why; it is once.
func (k *keeper) withoutRoom(err error) bool {
	var no *session.NoRoomError
	if !errors.As(err, &no) || k.spec.Network.Transparent != "" {
		return false
	}
	k.spec.Network.Transparent = jobs.TransparentNever
	k.note("network: only programs that heed http_proxy, https_proxy or all_proxy reach what is allowed: " + no.Error())
	return true
}
