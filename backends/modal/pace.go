package modal

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// createGap is the time between two creations of one user on one machine. Modal
// refuses more than five in a second of an account, which is not documented.
const createGap = 250 * time.Millisecond

// pace waits for this process's turn to create a sandbox. All processes of the user
// take their turns from one file; where there can be none, no process waits. A turn is
// only a time, and other machines have turns of their own: who is refused waits, see
// [patience], and takes another one.
func pace(ctx context.Context, say func(format string, args ...any)) error {
	at, ok := turn(time.Now())
	if !ok {
		return nil
	}
	d := time.Until(at)
	if d > 5*time.Second {
		say("waiting %v for a turn to make a sandbox: Modal bounds how many are made in a second", d.Round(time.Second))
		defer alive(say, "waiting for a turn to make a sandbox")()
	}
	return pause(ctx, d)
}

// turn takes the next turn.
func turn(now time.Time) (time.Time, bool) {
	base, err := os.UserCacheDir()
	if err != nil {
		return now, false
	}
	dir := filepath.Join(base, "berth")
	if os.MkdirAll(dir, 0o700) != nil {
		return now, false
	}
	f, err := os.OpenFile(filepath.Join(dir, "modal-turn"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return now, false
	}
	defer f.Close()
	if !lock(f) {
		return now, false
	}
	defer func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }() // a child that is just made has the file, too
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	last, _ := strconv.ParseInt(strings.TrimSpace(string(b[:n])), 10, 64)
	next := time.UnixMilli(last).Add(createGap)
	// A clock that was set back must not make anybody wait for it.
	if next.Before(now) || next.Sub(now) > 10*time.Minute {
		next = now
	}
	if _, err := f.WriteAt([]byte(strconv.FormatInt(next.UnixMilli(), 10)+"                \n"), 0); err != nil {
		return now, false
	}
	return next, true
}

// lock takes the file's lock, which its holders have for an instant. One that is
// held for longer is held by a process that was stopped, or by a file server
// that has lost it: then this process does not wait.
func lock(f *os.File) bool {
	for range 40 {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
