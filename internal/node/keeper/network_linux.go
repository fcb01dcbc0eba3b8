package keeper

import (
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/egress"
)

// openNetwork begins to decide on what commands reach.
func (k *keeper) openNetwork() error {
	if can := k.spec.Can(); !can.Here() {
		return nil // a service has lists of its own
	}
	e, err := egress.Open(egress.Options{Network: k.spec.Network, Dir: k.dir, Added: k.dir})
	if err == nil {
		k.egress.Store(e)
	}
	return err
}

func (k *keeper) network() (session.Network, wire.NetworkWish) { return k.egress.Load().Of("") }
