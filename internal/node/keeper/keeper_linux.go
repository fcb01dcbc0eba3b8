package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/internal/node/supervise"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// keeper is one environment that is open.
type keeper struct {
	dir   string
	spec  *jobs.EnvSpec
	env   []string // beneath every command's own: what the allocation gives, then the environment's
	times times
	log   *slog.Logger
	lease *lease.Lease
	info  Info
	// secret is that of keeper.json, for as long as this keeper lives.
	secret string
	// saving is held by who changes info while clients are served.
	saving sync.Mutex
	hello  wire.GuestHello
	bg     *background
	life   *life
	// within is the allocation whose batch process this is; zero is none.
	within allocation

	egress atomic.Pointer[egress.Egress] // what commands reach; nil where there is nothing to decide
	// brokered are the credentials of its commands, with their keys; nil is none.
	brokered *egress.Brokered
	// batch is that this is the batch process of an allocation, and keyless that no client
	// has handed over the keys yet.
	batch   bool
	keyless atomic.Bool
	box     *container.Container
	opener  jobs.Opener
	opening *jobs.Opening
	scratch *container.Scratch

	told chan struct{} // closed when all clients have their last words
	gone chan struct{} // closed when nothing is left of the environment

	mu       sync.Mutex
	socket   *socket.Listener
	clients  map[*client]bool
	serving  sync.WaitGroup
	closed   bool
	sessions map[string]bool
	notes    []string
	oom      time.Time // when something was last ended for memory
	met      string    // a cap that is met, with the figures, and since when
	metAt    time.Time

	accepting sync.WaitGroup
}

func (k *keeper) note(text string) {
	k.log.Warn(text)
	k.mu.Lock()
	defer k.mu.Unlock()
	const most = 50
	if len(k.notes) < most {
		k.notes = append(k.notes, text)
	}
}

// add takes a client in; false is that the keeper ends.
func (k *keeper) add(c *client) bool {
	ok := k.life.accept(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !ok || k.closed {
		return false
	}
	k.clients[c] = true
	return true
}

func (k *keeper) drop(c *client) {
	k.life.answered(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clients, c)
}

func (k *keeper) everyone() []*client {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.clients))
}

// listener is the socket that has the name, see relisten.
func (k *keeper) listener() *socket.Listener {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.socket
}

// relisten makes the socket again when its name is gone: the directory of a
// user who logs out is removed, and files in /tmp that are old. No client could
// connect any more, not even to end the environment.
func (k *keeper) relisten() {
	old := k.listener()
	if old.Stands() {
		return
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	l, err := k.newSocket()
	if err != nil {
		k.log.Warn("the socket is gone, and another could not be made", "err", err)
		return
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		l.Remove()
		_ = l.Close()
		return
	}
	k.socket = l
	k.mu.Unlock()
	k.log.Warn("the socket was gone", "now", l.Path())
	k.saveInfo()
	k.accepting.Go(func() { k.acceptClients(l) })
	_ = old.Close()
}

// acceptClients serves whoever connects, until the socket is closed.
func (k *keeper) acceptClients(l *socket.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if k.listener() == l && k.life.Why() == nil {
				k.life.stop(ending{text: "its socket failed: " + err.Error()})
			}
			return
		}
		k.serving.Go(func() { k.serve(conn) })
	}
}

// again refuses a request because the environment is ending.
func (k *keeper) again() wire.ExitMessage {
	why := "the environment is just ending"
	if w := k.life.Why(); w != nil {
		why += ": " + w.text
	}
	return wire.ExitMessage{Again: true, Exit: jobs.Exit{Code: codeFailed, Error: why}}
}

// noteSession remembers the names of sessions.
func (k *keeper) noteSession(m *wire.StartMessage) {
	if m.Session == "" || m.File != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	const most = 1000
	if len(k.sessions) < most {
		k.sessions[m.Session] = true
	}
}

// state is the answer to [wire.KeepStatus].
func (k *keeper) state() *wire.KeepState {
	running := 0
	for _, c := range k.everyone() {
		for _, s := range c.streams.All() {
			if r, ok := s.(*relay); ok && !r.over.Load() {
				running++
			}
		}
	}
	k.mu.Lock()
	sessions := slices.Sorted(maps.Keys(k.sessions))
	notes := slices.Clone(k.notes)
	k.mu.Unlock()
	return &wire.KeepState{Host: k.info.Host, PID: k.info.PID, Opened: k.info.Opened, Guest: k.hello, Running: running, BG: k.bg.runningCount(),
		Sessions: sessions, Idle: k.life.idleFor(), Lifetime: k.spec.Lifetime,
		MaxRSS: jobs.Bytes(container.TreeMemory(os.Getpid())), Notes: notes, NoRelay: k.noRelay(),
		Usage: k.egress.Load().Usage()}
}

// oomSettles is how long after a kill for memory an end by SIGKILL is taken
// for its effect.
const oomSettles = 3 * time.Second

// overMemory ends what takes most of the memory: the smallest tree of
// processes that holds more than half of what all commands take.
func (k *keeper) overMemory(used int64) (again bool) {
	k.mu.Lock()
	k.oom = time.Now()
	k.mu.Unlock()
	had := k.box.Session().Guest().Network
	what, held := container.KillLargest(os.Getpid(), k.hello.PID, had != nil && had.Room)
	k.note(fmt.Sprintf("%d MiB of memory were used, more than the %s of this environment: %s, which held %d MiB, was ended",
		used>>20, k.opening.Memory, what, held>>20))
	return true
}

// explain says of an end by a signal what it came from, where this keeper knows:
// it was just after a kill for memory, or the environment is ending. Of a command that
// ran when a cap was met, or failed after that, it says so.
func (k *keeper) explain(exit []byte, begun time.Time) []byte {
	k.mu.Lock()
	oom := !k.oom.IsZero() && time.Since(k.oom) < oomSettles
	met, metAt := k.met, k.metAt
	k.mu.Unlock()
	why := k.life.Why()
	if !oom && why == nil && met == "" {
		return exit
	}
	var m wire.ExitMessage
	if json.Unmarshal(exit, &m) != nil {
		return exit
	}
	const signalled = 128
	noted := met != "" && m.Note == "" && (begun.Before(metAt) || !m.Exit.OK())
	if noted {
		m.Note = met
	}
	switch {
	case m.Exit.Error != "" && !noted:
		return exit
	case m.Exit.Error != "":
	case oom && m.Exit.Code == signalled+int(syscall.SIGKILL):
		m.Exit.OOM = true
		m.Exit.Error = fmt.Sprintf("it was ended because the environment used more than its %s of memory", k.opening.Memory)
	case why != nil && m.Exit.Code > signalled:
		m.Exit.Error = "it was ended because the environment ended: " + why.text
	case !noted:
		return exit
	}
	if b, err := json.Marshal(m); err == nil {
		return b
	}
	return exit
}

// beat gives the sign of life.
func (k *keeper) beat(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := k.box.Session()
	supervise.Heartbeat{Dir: k.dir, Times: k.times.Times, Log: k.log, Stands: func() bool {
		if k.lease.Stands() {
			return true
		}
		k.life.stop(ending{text: "another keeper has taken it over", fenced: true})
		cancel() // the beat is the other one's
		return false
	}, Ping: func() {
		if s.Unanswered() > k.times.Unanswered {
			k.life.stop(ending{text: "the guest in it did not answer any more", broken: true})
		}
		_ = s.Ping() // its end is watched elsewhere
	}, Also: func() {
		k.relisten()
		k.egress.Load().Look()
		if k.life.settled() {
			debug.FreeOSMemory() // it may be idle for long
		}
		for _, c := range k.everyone() {
			if c.silent(k.times.client) {
				k.log.Info("a client has fallen silent")
				_ = c.conn.Close()
			}
		}
	}}.Run(ctx)
}

// watch ends the keeper when the place inside has ended.
func (k *keeper) watch(ctx context.Context) {
	go k.box.WatchFuse(ctx, func(name string) {
		k.life.stop(ending{text: "the container's file system died (" + name + " ended): what was written last may be lost", broken: true})
	})
	if k.opening.Memory > 0 {
		go container.WatchMemory(ctx, k.opening.Memory, k.overMemory)
	}
	select {
	case <-ctx.Done():
	case <-k.box.Session().Gone():
		// A scheduler's TERM to all processes reaches this one, too.
		select {
		case <-k.life.Done():
			return
		case <-k.box.Ended():
		case <-time.After(time.Second):
		}
		k.life.stop(ending{text: "the guest in it is gone", broken: true})
	}
}
