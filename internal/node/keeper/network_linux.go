package keeper

import (
	"errors"
	"io"
	"strings"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/network/wayout"
	"berth/internal/node/egress"
	"berth/jobs"
	"berth/jobs/store"
)

// maxKeys bounds what comes with the keys of credentials.
const maxKeys = 1 << 20

// takeCredentials reads the keys of the environment's credentials from whoever started
// this keeper. They are in its memory alone. In an allocation a scheduler has started it,
// which is to know no key: there the first client hands them over ([keeper.takeKeys]).
func (k *keeper) takeCredentials(from io.Reader) error {
	if len(k.spec.Credentials) == 0 {
		return nil
	}
	if name := k.spec.Caps.OfCommand(); name != "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the site sets " + name + ", which does not hold an environment: it may have no credentials",
			Hint: "let a job use them: berth submit --credential NAME -- COMMAND"}
	}
	k.brokered = &egress.Brokered{Caps: k.spec.Caps, Prices: k.spec.Prices, Met: k.capMet, Keep: k.saveUsage, Unkept: k.usageUnkept}
	if k.batch {
		k.brokered.Credentials = egress.Await(k.spec.Credentials)
		k.keyless.Store(true)
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(from, maxKeys))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the keys of the environment's credentials", Err: err}
	}
	if k.brokered.Credentials, _, err = egress.Take(strings.Split(string(b), "\x00"), k.spec.Credentials); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: err.Error(), Hint: "it is opened by berth exec or berth shell, which read them"}
	}
	return nil
}

// takeKeys takes the keys that a client hands over. Several may come at once: the first
// ones stay.
func (k *keeper) takeKeys(keys wire.Secret) error {
	if !k.keyless.Load() {
		return nil
	}
	if len(keys) > maxKeys {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the keys of the environment's credentials have more than 1 MiB"}
	}
	if err := k.egress.Load().Give(strings.Split(string(keys), "\x00"), k.spec.Credentials); err != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: err.Error(), Hint: "[credentials.NAME] from in the configuration says where a key is"}
	}
	if k.keyless.Swap(false) {
		k.log.Info("the keys of the credentials have been handed over")
	}
	return nil
}

// capMet tells that the environment's commands may ask models no more.
func (k *keeper) capMet(figures string) {
	text := figures + ": no more requests to models until berth env stop " + k.spec.Name + ", after which it counts again"
	k.note(text)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.met, k.metAt = text, time.Now()
}

// saveUsage records what models were asked for, since the environment was stopped last.
func (k *keeper) saveUsage(u jobs.Usage) error {
	if !k.lease.Stands() {
		return errTaken
	}
	if err := store.SetUsage(k.dir, u); err != nil {
		return err
	}
	if !k.lease.Stands() { // it was taken while this was written, so the other keeper may not have read it
		return errTaken
	}
	return nil
}

var errTaken = errors.New("another keeper has the environment")

// usageUnkept says that it could not be recorded. It is tried again with each request.
func (k *keeper) usageUnkept(err error) {
	k.log.Warn("what models are asked for could not be recorded", "err", err)
	if k.spec.Caps.Any() {
		k.note("requests to models are refused while they cannot be counted durably: " + err.Error())
	}
}

// endUsage does so for the last time. Whoever stops the environment begins to count again.
func (k *keeper) endUsage(stopped bool) {
	var err error
	if u := k.egress.Load().Usage(); stopped {
		err = ForgetUsage(k.dir)
	} else if u != nil {
		err = k.saveUsage(*u)
	}
	if err != nil {
		k.log.Warn("what models were asked for could not be recorded", "stopped", stopped, "err", err)
	}
}

// openNetwork begins to decide on what commands reach.
func (k *keeper) openNetwork() error {
	if can := k.spec.Can(); !can.Here() {
		return nil // a service has lists of its own
	}
	if k.brokered != nil {
		used, err := Usage(k.dir)
		if err != nil {
			return err
		}
		if used != nil {
			k.brokered.Used = *used
		}
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

// network is what decides on the network of commands, and what their guest prepares. Where each
// has a room of its own, the doors are in there.
func (k *keeper) network() (session.Network, wire.NetworkWish) {
	n, w := k.egress.Load().Of("")
	if k.spec.Rooms && w.Door {
		w.Door, w.Rooms = false, true
	}
	return n, w
}
