package keeper

import (
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network/judge"
	"berth/internal/node/egress"
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
