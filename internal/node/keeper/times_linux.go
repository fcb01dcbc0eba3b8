package keeper

import (
	"time"

	"berth/internal/node/supervise"
)

// times are the periods of supervision, and of a keeper.
type times struct {
	supervise.Times
	grace  time.Duration // between TERM and KILL at the end
	accept time.Duration // for the first request of a client, at least
	client time.Duration // a client that used to ping and is silent for so long is gone
	flush  time.Duration // for the last words to a client
}

func defaultTimes() times {
	const beat = 10 * time.Second
	return times{Times: supervise.TimesOf(beat), grace: 2 * time.Second, accept: 5 * time.Second, client: 6 * beat, flush: 2 * time.Second}
}
