package keeper

import "time"

// times are the periods of a keeper; those of supervision stand in the same
// ratio as a runner's.
type times struct {
	beat      time.Duration // between signs of life, and between pings
	guestWait time.Duration // the guest ends the container after so long without a ping
	dead      time.Duration // the guest of a killed keeper, whose stream is closed, has left
	silent    time.Duration // an owner without a new beat for so long is gone
	start     time.Duration // for the container to come up
	grace     time.Duration // between TERM and KILL at the end
	unmount   time.Duration // for the container program to clean up after the end
	accept    time.Duration // for the first request of a client, at least
	client    time.Duration // a client that used to ping and is silent for so long is gone
	flush     time.Duration // for the last words to a client
}

func defaultTimes() times {
	const beat = 10 * time.Second
	return times{beat: beat, guestWait: 12 * beat, dead: 3 * beat, silent: 18 * beat, start: 2 * time.Minute, grace: 2 * time.Second, unmount: 20 * time.Second,
		accept: 5 * time.Second, client: 6 * beat, flush: 2 * time.Second}
}
