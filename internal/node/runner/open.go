package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

var errStopped = errors.New("stopped before the command began")

// preparing records what the attempt's place is made ready with.
func (r *attempt) preparing(text string) { r.event(store.EventPreparing, text) }

// openPlace has the backend open the attempt's place.
func (r *attempt) openPlace(ctx context.Context, p *place) (*jobs.Opening, error) {
	s := r.spec.Environment(r.info, r.stateDir())
	for _, o := range r.openers {
		if o.Name() != s.Backend && (s.External == nil || o.Name() != jobs.BackendExternal) {
			continue
		}
		op, err := o.Open(ctx, s, jobs.OpenPlace{Dir: r.dir, Guest: r.node, Scratch: r.scratch.Dir, On: r.on,
			Progress: r.preparing, Meter: jobs.MeterLines(r.preparing),
			Attempt: &jobs.OpenAttempt{
				Spec: &r.spec, Name: r.info.Name, User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()),
				Keys: r.keys, Note: r.note, LayerDir: r.layerDir(),
				Layer: func(ctx context.Context, over jobs.LayerOver) (string, error) { return r.openLayer(ctx, p, over) },
			}})
		if op != nil {
			for _, n := range op.Notes {
				r.note(n)
			}
		}
		return op, err
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth-node cannot open places of the backend " + s.Backend,
		Hint: "use the berth-node of the berth that submitted the job"}
}

// open starts a container in a place, and waits for the guest's handshake. Where the
// program cannot start the guest from the scratch directory, as a daemon with a /tmp
// of its own, this and every later container of the attempt has it from the state
// directory: only the start of one shows that. It returns the argv of the last try.
func (r *attempt) open(ctx context.Context, p *place, phase string) (c *container.Container, argv []string, err error) {
	if argv, err = r.line(p); err != nil {
		return nil, nil, err
	}
	c, err = r.openContainer(ctx, argv, phase)
	note, again, err := egress.WithoutRoom(&r.spec.Network, err)
	if again {
		r.note(note)
		if argv, err = r.line(p); err != nil {
			return nil, nil, err
		}
		c, err = r.openContainer(ctx, argv, phase)
	}
	if err == nil || r.opening.Unseen == nil || !r.opening.Unseen(err.Error(), r.node) {
		return c, argv, err
	}
	own, oerr := os.Executable()
	if oerr != nil || own == r.node {
		return nil, argv, err
	}
	r.note("the guest runs from " + own + ", and ends when that file system goes away: the daemon does not start it from " + r.node)
	r.node = own
	if argv, err = r.line(p); err != nil {
		return nil, argv, err
	}
	c, err = r.openContainer(ctx, argv, phase)
	return c, argv, err
}

func (r *attempt) openContainer(ctx context.Context, argv []string, phase string) (*container.Container, error) {
	opening, first := *r.opening, 0 // the container's first process, where a daemon has it
	opening.Argv, opening.Level = argv, r.level()
	if opening.Init != nil {
		opening.Init = func(ctx context.Context) int {
			first = r.opening.Init(ctx)
			return first
		}
	}
	network, wish := r.network(phase)
	var ask func(context.Context, wire.AskMessage) wire.AskAnswer
	var stubs []jobs.Stub
	if r.spec.Submit != nil && phase == "" {
		if r.asks == nil {
			r.asks = &asks{dir: r.dir, log: r.log, children: r.newChildren()}
		}
		ask = r.asks.answer
		if r.spec.Submit.Jobs() {
			stubs = batch.AllStubs()
		}
	}
	c, err := container.Open(ctx, container.Options{
		Network: network, NetworkWish: wish, Ask: ask, Stubs: stubs,
		Opening: &opening, On: r.on, User: r.spec.User, Backend: r.spec.Backend, Stderr: r.logFile, Log: r.log,
		Start: r.times.Start, GuestWait: r.times.GuestWait, Unmount: func() time.Duration { return r.hurried(r.times.Unmount) },
		Stop: r.stop.Done(), Stopping: func() bool { return store.Cancelled(r.jobDir) }, Note: r.note, TellEnv: r.far == nil,
		Binds: r.spec.Mounts, Allow: r.spec.HostSockets,
	})
	if err != nil {
		if r.stop.Why() != nil || ctx.Err() != nil {
			return nil, errStopped
		}
		if errors.As(err, new(*session.NoRoomError)) {
			return nil, err
		}
		if opening.Trouble != nil && jobs.HintOf(err) == "" {
			if kind, hint := opening.Trouble(err.Error()); hint != "" {
				err = &jobs.Error{Kind: kind, Err: err, Hint: hint}
			}
		}
		if jobs.HintOf(err) == "" {
			err = &jobs.Error{Kind: jobs.KindOf(err), Err: err, Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
		}
		return nil, err
	}
	if opening.Init != nil {
		r.box = container.OwnCgroup(filepath.Join("/proc", strconv.Itoa(first), "cgroup"), "/sys/fs/cgroup")
	}
	r.egress.Load().Opened(c.Session())
	r.setSession(c.Session())
	if ask != nil {
		r.asks.children.bringTo(c.Session())
	}
	return c, nil
}

// recordInside records how other processes enter the task's container, in which its
// command has the variables task. The task also runs without this record. Of
// several tasks the container of the first one is recorded.
func (r *attempt) recordInside(c *container.Container, task []string) {
	if r.far != nil {
		return // a task on another host cannot be joined, and its environment is the host's
	}
	g, self := c.Session().Guest(), lease.Self()
	in := jobs.Inside{Version: 1, Env: g.Env, Task: task, Home: g.Home, Dir: r.workDir(c),
		Host: self.Host, BootID: self.BootID, PID: self.PID, Start: self.Start, Node: r.claim.Node, Image: r.image,
		Room: g.Network != nil && g.Network.Room}
	if _, err := store.SetInside(r.dir, in); err != nil {
		r.log.Warn("the place of the task could not be recorded; berth shell will not find it", "err", err)
	}
}

// oomKills counts the processes of the task that the kernel has killed for
// memory.
func (r *attempt) oomKills() int {
	return r.jobCgroup.OOMKills() - r.ooms + max(r.boxOOMs, r.box.OOMKills())
}

// close ends the container and the pings of its guest.
func (r *attempt) close(c *container.Container) {
	r.setSession(nil)
	c.Close()
	r.asks.end()
}

// abandoned closes the container, and returns an error if its guest ended the
// command because pings were missing: the exit then says nothing about the task.
// An exit of the command itself that the guest has reported is believed, also by a
// runner that receives the report after the guest has ended.
func (r *attempt) abandoned(c *container.Container, unpinged bool) error {
	r.setSession(nil)
	c.Close()
	r.asks.end()
	if !unpinged {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindInfra,
		Msg:  "the guest has ended the command because no ping reached it: this runner was stopped, or could not write to " + r.dir,
		Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
}

// lostFuse is the reason to stop when a part of the container's file system
// has ended.
func (r *attempt) lostFuse(name string) why {
	return why{state: jobs.StateError, fuse: true, reason: "the container's file system died (" + name + " ended): what the command wrote may be lost",
		hint: "was the node out of memory? ask for more, or see " + r.dir}
}

// fileSystemGone reports whether a command could not be started because the server
// of the container's files had died unnoticed. The guest passes on the kernel's
// errors for that, and the task has not caused them.
func fileSystemGone(e jobs.Exit) bool {
	if e.Started {
		return false
	}
	for _, errno := range []syscall.Errno{syscall.ENOTCONN, syscall.ESTALE, syscall.EIO} {
		if strings.HasSuffix(e.Error, ": "+errno.Error()) || e.Error == errno.Error() {
			return true
		}
	}
	return false
}
