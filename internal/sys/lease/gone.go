package lease

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/jobs/store"
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

// BeatEvery is how often a holder gives a sign of life unless its lease says
// otherwise.
const BeatEvery = 10 * time.Second

// BeatOf is how often one gives a sign of life that has said so, 0 being
// [BeatEvery].
func BeatOf(beat time.Duration) time.Duration {
	if beat <= 0 {
		return BeatEvery
	}
	return beat
}

// PatienceFor is for a holder that beats so often, 0 being [BeatEvery]. The
// ratio is fixed: three beats after its owner was killed, a guest has left; a
// guest whose owner does not ping leaves after twelve, and a silence of eighteen
// is one of a process that is gone.
func PatienceFor(beat time.Duration) Patience {
	beat = BeatOf(beat)
	return Patience{Look: min(max(beat/10, 20*time.Millisecond), time.Second), Dead: 3 * beat, Silent: 18 * beat}
}

// Gone tells whether a holder is provably gone: it has recorded its end, or it
// ran here under this boot and its process is no more, or its beat does not
// change for a long time. A beat that moves ends the watch at once, and so
// does ctx. One that cannot be read is no silence. ended tells whether the holder with this directory has recorded
// its end.
func Gone(ctx context.Context, o Owner, me Process, p Patience, ended func(dir string) bool) bool {
	beat := filepath.Join(o.Dir, "beat")
	first, err := os.ReadFile(beat)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	wait := p.Silent
	if who := o.Process(); who.Near(me) && !who.lives() {
		wait = p.Dead
		// By the clock of this machine, which has written it: a file server may
		// have another.
		if at, ok := store.BeatTime(first); ok {
			wait -= max(0, time.Since(at))
		}
	}
	for silence, last := time.Duration(0), time.Now(); silence < wait; {
		if ended(o.Dir) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(p.Look):
		}
		now, err := os.ReadFile(beat)
		if string(now) != string(first) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		// A long time between two looks is no silence: this process was stopped,
		// and perhaps the holder with it, or neither could reach the file.
		looked := time.Now()
		silence += min(looked.Sub(last), max(p.Silent/18, 2*p.Look))
		last = looked
	}
	return true
}
