package supervise

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimes(t *testing.T) {
	d := TimesOf(10 * time.Second)
	if d.GuestWait != 12*d.Beat || d.Silent != 18*d.Beat || d.Dead != 3*d.Beat || d.Dead/d.Beat+1 != time.Duration(d.Unanswered) {
		t.Errorf("%+v", d)
	}
	// A guest leaves before its owner counts as silent, with time to end everything:
	// the last ping is as late as a beat is fresh.
	if left := d.Silent - d.Fresh - d.GuestWait; left < 4*d.Beat {
		t.Errorf("%s between the two", left)
	}
}

// There is no ping while the beat cannot be written, what is held is lost, or the
// file system takes long.
func TestNoPing(t *testing.T) {
	stands := func() bool { return true }
	for name, c := range map[string]struct {
		dir    string
		stands func() bool
		pings  bool
	}{
		"all stands":   {t.TempDir(), stands, true},
		"no directory": {filepath.Join(t.TempDir(), "none"), stands, false},
		"taken over":   {t.TempDir(), func() bool { return false }, false},
		"it hangs":     {t.TempDir(), func() bool { time.Sleep(time.Minute); return true }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			times := TimesOf(10 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 9*times.Beat+1)
			defer cancel()
			pings, also := 0, 0
			Heartbeat{Dir: c.dir, Times: times, Log: slog.New(slog.DiscardHandler), Stands: c.stands, Ping: func() { pings++ }, Also: func() { also++ }}.Run(ctx)
			if want := 10; c.pings && (pings != want || also != want-1) || !c.pings && pings > 0 {
				t.Errorf("%s: %d pings in %d beats", name, pings, also+1)
			}
		})
	}
}
