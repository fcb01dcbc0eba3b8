//go:build linux

package guest

import (
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	// Each step passes some time and then pings, checks or both.
	type step struct {
		after  time.Duration
		ping   bool
		silent bool // the check's answer
	}
	every := func(d time.Duration, n int, last step) (out []step) {
		for range n {
			out = append(out, step{after: d})
		}
		return append(out, last)
	}
	for name, steps := range map[string][]step{
		"pinged":                 {{after: 10 * time.Second, ping: true}, {after: 10 * time.Second, ping: true}, {after: 10 * time.Second, ping: true}, {after: 9 * time.Second, ping: true}},
		"silent":                 every(time.Second, 29, step{after: time.Second, silent: true}),
		"silent after a ping":    append([]step{{after: 4 * time.Second, ping: true}}, every(time.Second, 29, step{after: time.Second, silent: true})...),
		"stopped, then silent":   append([]step{{after: time.Hour}}, every(time.Second, 14, step{after: time.Second, silent: true})...),
		"stopped, then pinged":   append([]step{{after: time.Hour}, {after: time.Second, ping: true}}, every(time.Second, 29, step{after: time.Second, silent: true})...),
		"stopped twice":          {{after: time.Hour}, {after: time.Second}, {after: time.Hour, silent: true}},
		"twice, pinged between":  {{after: time.Hour}, {after: time.Second, ping: true}, {after: time.Hour}},
		"a short stop":           append([]step{{after: 10 * time.Second}}, every(time.Second, 19, step{after: time.Second, silent: true})...),
		"stopped near the limit": append(every(time.Second, 20, step{after: 20 * time.Second}), every(time.Second, 14, step{after: time.Second, silent: true})...),
	} {
		now := time.Unix(1000, 0)
		w := newWatch(time.Minute, now)
		w.set(30*time.Second, now)
		for i, s := range steps {
			now = now.Add(s.after)
			if s.ping {
				w.ping(now)
			}
			if got := w.check(now); got != s.silent {
				t.Errorf("%s: step %d at %v: silent is %v", name, i+1, now.Sub(time.Unix(1000, 0)), got)
				break
			}
		}
	}
	// A long timeout is no longer wait after a stop.
	long := newWatch(2*time.Minute, time.Unix(0, 0))
	if long.check(time.Unix(3600, 0)) || !long.check(time.Unix(3615, 0)) {
		t.Error("it does not wait for 15 s after a stop")
	}
	w := newWatch(time.Minute, time.Unix(0, 0))
	w.set(0, time.Unix(0, 0))
	if w.check(time.Unix(1e9, 0)) {
		t.Error("without a timeout it is silent after 30 years")
	}
}
