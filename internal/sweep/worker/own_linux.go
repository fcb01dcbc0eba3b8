package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// place is where the tasks of a worker run.
type place struct {
	home  string // the state directory
	dir   string // of the worker
	spec  jobs.Place
	job   string
	keys  []string                             // of credentials
	alone []string                             // variables of the program of a service, for that alone
	left  func(dir string, now time.Time) bool // whether the sandbox whose keeper had its records there may run still
	own   sweep.Own
	box   *box         // in which all of them run, or their rooms are; nil is that each has its own
	boxes atomic.Int64 // that were opened for one task
	count sync.Mutex   // of what these have asked models for
}

// openPlace opens the place of a worker whose records are in dir. Its tasks each have for
// themselves what the sweep says, where that holds. cpus are those of the worker; nil is that
// tasks have none alone. keys are those of credentials.
func openPlace(ctx context.Context, dir string, c *Config, cpus []int, keys []string) (p *place, err error) {
	s := c.Sweep
	own, spec := s.Spec.Own, *s.Spec.Worker
	p = &place{home: s.Home(), dir: dir, spec: spec, job: c.Job, keys: keys, alone: c.Keys,
		left: c.Left, own: sweep.Own{Version: 1, Own: command.OwnNothing}}
	if s.Spec.Sandboxes() {
		p.own.Own = command.OwnContainer // none is made and paid for only to see that one opens
		return p, nil
	}
	rooms := own == command.OwnRoom || own == command.OwnAuto
	can := spec.Can()
	if rooms && can.Daemon {
		rooms, p.own.Why = false, "containers of "+spec.Backend+" let none be made"
	}
	if rooms && spec.Network.Mode == jobs.NetworkAllow && spec.Network.Transparent == jobs.TransparentNever {
		rooms, p.own.Why = false, `in a room names are what is reached, and [network] transparent is "never"`
	}
	first := spec
	if first.Rooms = rooms; rooms {
		first.Overlay = jobs.OverlaySpec{} // a job's driver is settled; the one that unpacks the image is chosen first
	}
	if p.box, err = p.openBox(ctx, filepath.Join(dir, sweep.BoxDir), first); err != nil {
		return nil, fmt.Errorf("open the container of the worker: %w", err)
	}
	if rooms {
		if p.own.Why = p.tryRoom(); p.own.Why == "" {
			p.own.Own = command.OwnRoom
			p.own.CPUs = cpus
			return p, nil
		}
		for _, n := range p.box.notes {
			if strings.HasPrefix(n, "overlay driver ") { // why the image is not unpacked
				p.own.Why += "; " + n
			}
		}
	}
	if own != command.OwnRoom && own != command.OwnAuto && own != command.OwnContainer {
		return p, nil
	}
	// That one opens is seen. What could be left of it is seen, too, when the worker ends.
	p.close(func(string, ...any) {})
	p.box = nil
	if own == command.OwnRoom {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "no room can be made for each task: " + p.own.Why,
			Hint: `--own container gives each a container, and --own auto where there is no room; both say so`}
	}
	p.own.Own = command.OwnContainer
	return p, nil
}

// tryRoom makes a room, as for a task, and says why there is none.
func (p *place) tryRoom() string {
	c, err := p.box.session.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"/bin/sh", "-c", ":"}}, Own: p.room(nil)}, nil, nil)
	if err != nil {
		return err.Error()
	}
	switch res, err := c.Wait(); {
	case err != nil:
		return err.Error()
	case res.Exit.Error != "":
		return res.Exit.Error
	case res.Exit.Code != 0:
		return fmt.Sprintf("a command in it ended with %d", res.Exit.Code)
	}
	return ""
}

// room is what a task's room is made with.
func (p *place) room(cpus []int) *wire.OwnRoom {
	o := &wire.OwnRoom{CPUs: cpus}
	for _, m := range p.spec.Mounts {
		o.Binds = append(o.Binds, wire.Text(m.Destination))
	}
	return o
}

// run runs a task's command with what it has: in a room on its CPUs (none is any), and with
// no more memory than it has said.
func (p *place) run(ctx context.Context, c run.QuickCmd, has taken, log func(string, ...any)) (end run.QuickEnd, err error) {
	switch p.own.Own {
	case command.OwnRoom:
		return p.box.run(ctx, c, p.room(has.on), has.share.Memory)
	case command.OwnContainer:
		dir, service := filepath.Join(p.dir, sweep.BoxDir+"."+strconv.FormatInt(p.boxes.Add(1), 10)), p.spec.External != nil
		b, err := p.openBox(ctx, dir, p.sized(has.share))
		defer func() {
			if service && (b != nil || passes(err) || ctx.Err() != nil) && p.left(dir, time.Now()) {
				log("a sandbox of %s was not seen to end, and costs until it does; berth env gc ends it: see %s", p.spec.Backend, dir)
				return
			}
			if err := p.remove(dir); err != nil {
				log("%v", err)
			}
		}()
		if err != nil {
			end.Stopped = ctx.Err() != nil // then it runs again
			if service && !end.Stopped && refuses(err) && (has.share.CPUs > 0 || has.share.Memory > 0) {
				return end, fmt.Errorf("open the sandbox of the task, of the size that it asks for: %w", err)
			}
			return end, fmt.Errorf("%w: open the container of the task: %w", errNoPlace, err)
		}
		end, err = b.run(ctx, c, nil, has.share.Memory)
		b.close(log)
		switch {
		case errors.Is(err, errBox) && service && !told(ctx):
			end.Err = c.Output(2, []byte("berth: its sandbox has ended under it\n"))
			return end, errSandbox
		case errors.Is(err, errBox):
			return ownEnd(ctx, c)
		}
		return end, err
	}
	return p.box.run(ctx, c, nil, has.share.Memory)
}

// remove removes the records of the container of one task, but for what it has asked models for.
func (p *place) remove(box string) error {
	p.count.Lock()
	defer p.count.Unlock()
	if err := sweep.KeepUsage(box); err != nil {
		return fmt.Errorf("count what a task has asked models for: %w", err)
	}
	return disk.RemoveTree(box)
}

// sized is the place of a task that asks for so much: a sandbox of a service is as large as that.
func (p *place) sized(share command.Share) jobs.Place {
	spec := p.spec
	if spec.External != nil {
		spec.Resources.CPUs = cmp.Or(share.CPUs, spec.Resources.CPUs)
		spec.Resources.Memory = cmp.Or(share.Memory, spec.Resources.Memory)
	}
	return spec
}

// errSandbox is that the sandbox of a task has ended under it: by the service, or by what the task
// did. It counts as the end of a worker does.
var errSandbox = errors.New("the sandbox of the task has ended")

// errNoPlace is that a task's room or container could not be made, for which no task is to blame.
var errNoPlace = errors.New("a task has no place of its own")

// ownEnd is the end of a task whose own container has ended under it: it is to blame, but
// where all of the worker's job is to end. No other task was in there.
func ownEnd(ctx context.Context, c run.QuickCmd) (end run.QuickEnd, err error) {
	if told(ctx) {
		end.Stopped = true
		return end, nil
	}
	end.Exit = jobs.Exit{Started: true, Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)}
	return end, c.Output(2, []byte("berth: its container has ended under it\n"))
}

// close ends what all tasks have used.
func (p *place) close(log func(string, ...any)) {
	if p.box != nil {
		p.box.close(log)
	}
}
