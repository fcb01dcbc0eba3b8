package daytona

import (
	"net/http"
	"testing"
	"time"

	"berth/backends/external/protocol"
)

// A service is left alone for as long as it says, and not much longer; where it says
// nothing, for longer each time, and never for ever.
func TestRest(t *testing.T) {
	for n := range 40 {
		for _, told := range []time.Duration{time.Second, time.Minute, time.Hour} {
			if d := (&refusal{wait: told}).rest(n); d < told || d > told+10*time.Second {
				t.Errorf("told %v: %v", told, d)
			}
		}
		if d, least := (&refusal{}).rest(n), unit<<min(n, 5); d < least || d > 2*least {
			t.Errorf("the %d. time: %v", n, d)
		}
	}
}

// Which refusals are waited out: what may have run is not sent again.
func TestLater(t *testing.T) {
	for name, c := range map[string]struct {
		no   refusal
		p    policy
		want bool
	}{
		"too many, any":                {refusal{status: http.StatusTooManyRequests}, again, true},
		"too many, a command":          {refusal{status: http.StatusTooManyRequests}, early, true},
		"too many, a create":           {refusal{status: http.StatusTooManyRequests}, never, false},
		"busy, and says how long":      {refusal{status: http.StatusServiceUnavailable, wait: 1}, again, true},
		"busy, and does not":           {refusal{status: http.StatusServiceUnavailable}, again, false},
		"busy, a command that may run": {refusal{status: http.StatusServiceUnavailable, wait: 1}, early, false},
		"a proxy, a command":           {refusal{status: http.StatusBadGateway, wait: 1}, early, false},
		"not taken":                    {refusal{status: http.StatusBadRequest, wait: 1}, again, false},
	} {
		if got := c.no.later(c.p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A verb ends its waits before berth ends the verb.
func TestPatience(t *testing.T) {
	for verb, most := range map[string]time.Duration{
		protocol.VerbCheck: protocol.CheckTime, protocol.VerbOpen: protocol.OpenTime, protocol.VerbList: protocol.ListTime, protocol.VerbStop: protocol.StopTime,
		protocol.VerbDestroy: protocol.DestroyTime, protocol.VerbSnapshot: protocol.SnapshotTime, protocol.VerbRestore: protocol.OpenTime, protocol.VerbStream: protocol.StreamTime,
	} {
		if p := patience(verb); p >= most || p < most/2 {
			t.Errorf("%s: %v of %v", verb, p, most)
		}
	}
}
