package keeper

import (
	"io"
	"strings"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network/wayout"
	"berth/internal/node/egress"
	"berth/jobs"
)

// maxKeys bounds what comes with the keys of credentials.
const maxKeys = 1 << 20

// takeCredentials reads the keys of the environment's credentials from whoever started
// this keeper. They are in its memory alone.
func (k *keeper) takeCredentials(from io.Reader) error {
	if len(k.spec.Credentials) == 0 {
		return nil
	}
	if name := k.spec.Caps.OfCommand(); name != "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the site sets " + name + ", which does not hold an environment: it may have no credentials",
			Hint: "let a job use them: berth submit --credential NAME -- COMMAND"}
	}
	b, err := io.ReadAll(io.LimitReader(from, maxKeys))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the keys of the environment's credentials", Err: err}
	}
	list, _, err := egress.Take(strings.Split(string(b), "\x00"), k.spec.Credentials)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: err.Error(), Hint: "it is opened by berth exec or berth shell, which read them"}
	}
	k.brokered = &egress.Brokered{Credentials: list, Caps: k.spec.Caps, Prices: k.spec.Prices, Met: k.capMet}
	return nil
}

// capMet tells that the environment's commands may ask models no more.
func (k *keeper) capMet(figures string) {
	k.note(figures + ": no more requests to models, until the environment is stopped and opened again")
}

// openNetwork begins to decide on what commands reach.
func (k *keeper) openNetwork() error {
	if can := k.spec.Can(); !can.Here() {
		return nil // a service has lists of its own
	}
	e, err := egress.Open(egress.Options{Network: k.spec.Network, Dir: k.dir, Added: k.dir, Brokered: k.brokered})
	if err == nil {
		k.egress.Store(e)
	}
	return err
}

// noRelay is since when connections of commands wait for a relay; zero is not at all.
func (k *keeper) noRelay() (since time.Time) {
	if st, err := wayout.Peek(k.dir); err == nil && st != nil && st.Relay == nil {
		since = st.Since
	}
	return since
}

func (k *keeper) network() (session.Network, wire.NetworkWish) { return k.egress.Load().Of("") }
