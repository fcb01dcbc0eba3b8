package keeper

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/internal/node/supervise"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// open opens the environment, whose lease this keeper holds, and listens. When
// it fails, nothing is left. rebuilt says that sessions start from the
// beginning, and why.
func (k *keeper) open(ctx context.Context, opener jobs.Opener, guest string, logFile io.Writer, out *reporter) (rebuilt string, err error) {
	k.opener = opener
	last, err := Peek(k.dir)
	if err != nil {
		k.log.Warn("what the last keeper has left cannot be read", "err", err)
	}
	if last != nil {
		rebuilt = whyAgain(last)
		if err := k.awaitLast(ctx, last, out); err != nil {
			return "", err
		}
	}
	if _, err := socket.Dir(); err != nil {
		return "", err
	}
	k.secret = rand.Text()
	k.info = Info{
		Version: infoSchema, ID: k.spec.ID, Phase: phaseOpening, Process: lease.Self(), Protocol: wire.Version,
		Secret: k.secret, Began: time.Now().UTC(), Allocation: k.within.id, Ends: k.within.ends,
	}
	defer func() {
		if err == nil {
			return
		}
		k.closeBox()
		// The next one is not the first only if there was one before.
		if last == nil {
			_ = os.Remove(filepath.Join(k.dir, fileInfo))
			return
		}
		k.info.Phase, k.info.Ended, k.info.Inside, k.info.Why = phaseEnded, time.Now().UTC(), nil, "it could not be opened"
		k.saveInfo()
	}()
	if err := k.info.save(k.dir); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "record the keeper of the environment", Err: err, Hint: "is there space left? df -h " + k.dir}
	}
	disk := supervise.Disk{Who: "keeper", Tail: tailOf(k.spec.ID), For: k.dir, Profile: k.spec.Scratch, Guest: guest, Log: k.log, Note: k.note}
	if k.scratch, guest, err = disk.Prepare(ctx); err != nil {
		return "", err
	}
	k.info.Scratch = k.scratch.Dir
	if err := k.openNetwork(); err != nil {
		return "", err
	}
	place := jobs.OpenPlace{Dir: k.dir, Guest: guest, Scratch: k.scratch.Dir, On: on, Progress: out.progress, Meter: out.meter}
	err = k.openBox(ctx, opener, place, logFile)
	note, again, err := egress.WithoutRoom(&k.spec.Network, err)
	if again {
		k.note(note)
		if k.opening.Close != nil {
			err = k.opening.Close()
		}
		if err == nil {
			err = k.openBox(ctx, opener, place, logFile)
		}
	}
	if err == nil && k.opening.Rebuilt != "" {
		rebuilt = k.opening.Rebuilt
	}
	if err != nil && k.opening == nil {
		return "", err
	}
	if err != nil {
		if jobs.HintOf(err) == "" {
			err = &jobs.Error{Kind: jobs.KindOf(err), Err: err, Hint: "see " + filepath.Join(k.dir, fileLog)}
		}
		return "", err
	}
	g := k.box.Session().Guest()
	k.egress.Load().Opened(k.box.Session())
	k.env = slices.Concat(k.env, k.egress.Load().Inside(k.box.Session()))
	k.hello = wire.GuestHello{Version: wire.Version, MaxStart: wire.MaxStart, PID: g.PID, OwnPIDNamespace: g.OwnPIDNamespace, UID: g.UID, Kernel: g.Kernel,
		Home: wire.Text(g.Home), Path: wire.Text(g.Path), Shell: g.Shell}
	if k.bg, err = newBackground(k); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "read the environment's background processes", Err: err}
	}
	if k.socket, err = k.newSocket(); err != nil {
		return "", err
	}
	k.info.Notes = append(k.info.Notes, k.opening.Notes...)
	k.info.Level, k.info.Proof = k.opening.Level, k.box.Proof(k.opening.WritableRoot)
	k.notes = append(k.notes, k.opening.Notes...)
	k.info.Phase, k.info.Opened = phaseReady, time.Now().UTC()
	k.noteInside() // its helpers, too, and to be found
	if k.life.Why() != nil {
		k.socket.Remove()
		return "", context.Cause(ctx)
	}
	return rebuilt, nil
}

// openBox has the backend open the place, and starts its container.
func (k *keeper) openBox(ctx context.Context, opener jobs.Opener, place jobs.OpenPlace, logFile io.Writer) (err error) {
	if k.opening, err = opener.Open(ctx, k.spec, place); err != nil {
		return err
	}
	network, wish := k.network()
	k.box, err = container.Open(ctx, container.Options{
		Opening: k.opening, On: on, User: k.spec.User, Backend: k.spec.Backend,
		Stderr: logFile, Log: k.log, Start: k.times.Start, GuestWait: k.times.GuestWait,
		Unmount: func() time.Duration { return k.times.Unmount }, Stop: k.life.Done(), Note: k.note, Began: k.noteInside,
		Binds: k.spec.Mounts, Allow: k.spec.HostSockets, Network: network, NetworkWish: wish,
	})
	return err
}

// newSocket makes the socket and notes where it is, for keeper.json.
func (k *keeper) newSocket() (*socket.Listener, error) {
	dir, err := socket.Dir()
	if err != nil {
		return nil, err
	}
	l, err := socket.Listen(filepath.Join(dir, socket.Name("keep", k.spec.ID, k.dir)))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "listen in " + dir, Err: err}
	}
	k.info.Socket = l.Path()
	return l, nil
}

// tailOf is the part of an id that tells it from others.
func tailOf(id string) string {
	if len(id) > 12 {
		id = id[len(id)-12:]
	}
	return id
}

// whyAgain says to people why an environment that was open has to be opened.
func whyAgain(last *Info) string {
	const reset = "; its sessions are new"
	switch {
	case last.Phase == phaseEnded && last.Opened.IsZero():
		return ""
	case last.Phase == phaseEnded:
		return "the environment was started again (" + last.Why + ")" + reset
	case last.Opened.IsZero():
		return "" // it was killed before anybody could use it
	}
	return "the environment was started again: its keeper was killed, or the machine was restarted" + reset
}

// noteInside records the processes below this one.
func (k *keeper) noteInside() {
	k.info.Inside = nil
	for _, pid := range container.Pids(os.Getpid()) {
		k.info.Inside = append(k.info.Inside, Inside{PID: pid, Start: lease.StartTime(pid)})
	}
	k.saveInfo()
}

// awaitLast waits until nothing of the last keeper's container is left: its
// guest leaves when its stream closes. What cannot leave is killed.
func (k *keeper) awaitLast(ctx context.Context, last *Info, out *reporter) error {
	if !last.Near(lease.Self()) {
		return nil // it was judged by its beat, for longer than a guest waits
	}
	began, told, rounds := time.Now(), false, 0
	for {
		var left []int
		for _, p := range last.Inside {
			if p.alive() {
				left = append(left, p.PID)
			}
		}
		waited := time.Since(began)
		switch {
		case len(left) == 0:
			return nil
		case !told && waited > time.Second:
			told = true
			out.progress("waiting for what the last keeper had running")
		case rounds == 0 && waited > k.times.Dead+k.times.grace+time.Second,
			rounds == 1 && waited > k.times.Dead+k.times.grace+k.times.Unmount:
			k.log.Warn("what the last keeper had running does not leave; killing it", "processes", left)
			container.KillLeft(left, rounds == 0)
			rounds++
		case waited > 2*(k.times.Dead+k.times.Unmount):
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "something of the last keeper still runs, and could not be ended",
				Hint: "see runtime.log in " + k.dir}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}
