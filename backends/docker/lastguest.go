package docker

import (
	"context"
	"errors"
	"os"
	"time"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// lastGuest makes sure that a container which is said to have ended has. A daemon
// that was killed, or whose containerd was, may lose a container that lives on:
// what is started in its place would share its files, and the named pipes of its
// standard streams, with the guest in there. That one exits by itself when
// no ping reaches it.
func (m *maker) lastGuest(ctx context.Context, id string) error {
	if !guestLives(m.guest()) {
		return nil
	}
	const wait = 4 * time.Minute // twice what a guest waits for a ping
	m.at.Progress("a guest runs still in the container " + short(id) + ", though " + m.p.path + " takes it for ended; waiting until it leaves by itself")
	for deadline := time.Now().Add(wait); guestLives(m.guest()); {
		if time.Now().After(deadline) {
			return &jobs.Error{Kind: jobs.KindAgain,
				Msg:  "a guest runs still in the container " + short(id) + ", though " + m.p.path + " takes it for ended",
				Hint: "end it: sudo pkill -KILL -f '^" + guestPath + " guest'"}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	m.open.Notes = append(m.open.Notes, "its container was still running, though "+m.p.path+" took it for ended; it has ended now")
	return m.discard(ctx, id)
}

// discard starts and ends a container once, with which the runtime drops what it
// has kept of a start that it had lost: a name that is taken, named pipes that
// a process still reads. Until then a start may fail.
func (m *maker) discard(ctx context.Context, id string) error {
	var err error
	for range 3 {
		if _, err = m.p.ask(ctx, changeLimit, "start", id); err == nil {
			return m.p.kill(ctx, id)
		}
		if perr := pause(ctx, time.Second); perr != nil {
			return perr
		}
	}
	return err
}

// guestLives tells whether a guest holds the lock on its program. Where locks do
// not work it is not known; then the daemon is believed.
func guestLives(program string) bool {
	f, err := os.Open(program)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // a child that is just made has the file, too
			return errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}
