package engine

import (
	"errors"
	"time"

	"berth/internal/link/session"
)

// pingEvery is how often a client tells the keeper that it is there; the keeper
// drops clients that are silent for six times as long.
const pingEvery = 10 * time.Second

// unansweredPings is how many pings in a row a keeper may leave unanswered:
// longer than ssh takes to notice a broken link, which it explains better.
const unansweredPings = 6

// errSilent is what a command is told whose keeper does not answer.
var errSilent = errors.New("its keeper does not answer any more; was it stopped, or does its machine hang?")

// ping keeps the keeper from taking this client for dead, and the client from
// waiting for a keeper that hangs.
func ping(s *session.Session, ended <-chan struct{}) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for s.Ping() == nil {
		select {
		case <-ended:
			return
		case <-s.Gone():
			return
		case <-t.C:
		}
		if s.Unanswered() > unansweredPings {
			s.Fail(errSilent)
			return
		}
	}
}
