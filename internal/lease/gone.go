package lease

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// Patience is how long a holder is watched before it counts as gone.
type Patience struct {
	Look time.Duration // between two looks at its beat
	// Dead is how long after its last beat a holder whose process is gone may
	// leave something behind that still works on the directory.
	Dead time.Duration
	// Silent is how long the beat of a holder that cannot be seen must not
	// change, by our own clock.
	Silent time.Duration
}

// Gone tells whether a holder is provably gone: it has recorded its end, or it
// ran here under this boot and its process is no more, or its beat does not
// change for a long time. A beat that moves ends the watch at once, and so
// does ctx. ended tells whether the holder with this directory has recorded
// its end.
func Gone(ctx context.Context, o Owner, me Process, p Patience, ended func(dir string) bool) bool {
	beat := filepath.Join(o.Dir, "beat")
	wait := p.Silent
	if who := o.Process(); who.Near(me) && !who.lives() {
		wait = p.Dead
		if fi, err := os.Stat(beat); err == nil {
			wait -= max(0, time.Since(fi.ModTime())) // the file's clock may be ahead
		}
	}
	first, _ := os.ReadFile(beat)
	deadline := time.Now().Add(wait)
	for time.Now().Before(deadline) {
		if ended(o.Dir) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(p.Look):
		}
		if now, _ := os.ReadFile(beat); string(now) != string(first) {
			return false
		}
	}
	return true
}
