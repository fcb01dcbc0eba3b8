package inroom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Times of the guest, which runs on this machine. It ends with this process, whose end of
// the stream closes, and needs no pings.
const (
	startTime   = time.Minute
	guestWait   = -1
	unmountTime = 10 * time.Second
)

// Room starts commands in one room.
type Room struct {
	c *container.Container
	e *egress.Egress
}

var _ jobs.Starter = (*Room)(nil)

// Open makes a room. An error of the kind config is that this machine lets none be made;
// nothing runs then.
func Open(ctx context.Context, o Options) (*Room, error) {
	if os.Geteuid() == 0 {
		return nil, unavailable(errors.New("as root there is no namespace in which root has less"))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &Room{}
	if r.e, err = egress.Open(egress.Options{Network: o.Network, Dir: o.Dir, Added: o.Added}); err != nil {
		return nil, err
	}
	word := "--room"
	if o.OwnIDs { // whoever builds asks the namespace whether it is root of the machine
		word = "--room-of-root"
	}
	network, wish := r.e.Of(o.Phase)
	note := func(text string) { _, _ = fmt.Fprintf(o.Log, "berth: note: %s\n", text) }
	// What may be left outside of the room has no network either.
	own := below{Starter: run.Local{}, ownIDs: o.OwnIDs}
	r.c, err = container.Open(ctx, container.Options{
		Opening: &jobs.Opening{Argv: []string{self, "guest", word}, Env: []string{"PATH=" + os.Getenv("PATH")}, Level: jobs.LevelNone, Home: o.Dir},
		On:      own, Stderr: o.Log, Log: slog.New(slog.DiscardHandler), Start: startTime, GuestWait: guestWait,
		Unmount: func() time.Duration { return unmountTime }, Network: network, NetworkWish: wish, Note: note, Isolated: true,
	})
	if err != nil {
		r.e.Close()
		if jobs.KindOf(err) == jobs.KindConfig || ctx.Err() != nil {
			return nil, err
		}
		return nil, unavailable(err)
	}
	r.e.Opened(r.c.Session())
	return r, nil
}

// below starts the guest in namespaces that have no network.
type below struct {
	jobs.Starter

	ownIDs bool
}

// Start begins a command in them.
func (b below) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	c.OwnFiles, c.OwnMounts, c.OwnNetwork = b.ownIDs, !b.ownIDs, true
	return b.Starter.Start(ctx, c)
}

// proxies are variables that would lead past the door.
var proxies = []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// Start begins a command in the room. What it writes to both of its streams goes to Stdout.
// Variables of proxies are the door's.
func (r *Room) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if c.OwnFiles || c.OwnMounts || len(c.Files) > 0 {
		return nil, errors.New("start " + c.Argv[0] + ": a room gives no namespaces and no files")
	}
	env := slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(proxies, strings.ToLower(name))
	})
	p, err := r.c.Session().Start(session.StartRequest{Command: jobs.Command{Argv: c.Argv}, Dir: c.Dir,
		Env: env, Stdin: c.Stdin, Merge: true}, c.Stdout, nil)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	return process{p, context.AfterFunc(ctx, func() { _ = p.Terminate(0) })}, nil
}

type process struct {
	*session.Process

	ended func() bool
}

// Wait waits for the end.
func (p process) Wait() (jobs.Exit, error) {
	res, err := p.Process.Wait()
	p.ended()
	return res.Exit, errors.Join(err, res.Output)
}

// Close ends what runs in the room, and returns what it has reached.
func (r *Room) Close() *jobs.NetworkUse {
	r.c.Close()
	return r.e.Close()
}
