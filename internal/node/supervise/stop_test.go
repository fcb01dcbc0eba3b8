package supervise

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstReasonCounts(t *testing.T) {
	var s Stop[string]
	ctx, cancel := s.Context(t.Context())
	defer cancel()
	if s.Why() != nil || ctx.Err() != nil {
		t.Error("a reason before any")
	}
	if !s.Set("one") || s.Set("two") || *s.Why() != "one" {
		t.Errorf("%v", *s.Why())
	}
	<-s.Done()
	<-ctx.Done()
}

// What is awaited ends by itself, is asked to and ends, or is forced to.
func TestAwait(t *testing.T) {
	const grace = 10 * time.Second
	for name, c := range map[string]struct {
		ends, stops   time.Duration // 0 is never
		heeds         bool
		asked, forced bool
		took          time.Duration
	}{
		"by itself":      {ends: time.Second, took: time.Second},
		"before a stop":  {ends: time.Second, stops: time.Minute, took: time.Second},
		"asked to":       {stops: time.Minute, heeds: true, asked: true, took: time.Minute},
		"while it may":   {stops: time.Minute, ends: time.Minute + grace/2, asked: true, took: time.Minute + grace/2},
		"it is deaf":     {stops: time.Minute, asked: true, forced: true, took: time.Minute + grace},
		"it is too late": {stops: time.Minute, ends: time.Hour, asked: true, forced: true, took: time.Minute + grace},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ended, stop Stop[string]
			after := func(d time.Duration, s *Stop[string]) {
				if d > 0 {
					time.AfterFunc(d, func() { s.Set("") })
				}
			}
			after(c.ends, &ended)
			after(c.stops, &stop)
			asked, forced, began := false, false, time.Now()
			Await(ended.Done(), stop.Done(), func() time.Duration {
				if asked = true; c.heeds {
					ended.Set("")
				}
				return grace
			}, func() {
				forced = true
				ended.Set("")
			})
			if took := time.Since(began); asked != c.asked || forced != c.forced || took != c.took {
				t.Errorf("%s: asked %v, forced %v, after %v", name, asked, forced, took)
			}
		})
	}
}
