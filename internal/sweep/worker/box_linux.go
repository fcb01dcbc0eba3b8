package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	places "berth/internal/node/keeper"
	"berth/internal/sweep/journal"
	"berth/internal/sweep/metric"
	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// box is a container in which tasks of a worker run. The worker itself stays
// outside of it, with its records.
type box struct {
	dir     string // of the keeper that has it
	session *session.Session
	notes   []string       // choices made where it was opened
	hold    *io.PipeWriter // keeps it open while nothing runs in it
	end     context.CancelFunc
}

// Times of a container.
const (
	boxLife                = time.Minute                       // for which it stays without a worker
	boxPing                = 10 * time.Second                  // between two signs of life to it
	boxTold                = 2 * time.Second                   // between the ends of two processes of a job
	boxEnd                 = 3 * time.Minute                   // for which its end is waited for: a service may take long
	boxAgain, boxAgainMost = 2 * time.Second, 16 * time.Second // until a service is asked again, each time twice as long
)

// contained tells whether the worker's tasks run in a container, or a sandbox of a service.
func contained(p *jobs.Place) bool {
	return p != nil && (p.External != nil || p.Level != jobs.LevelNone && p.Can().Here())
}

// openBox opens a container whose keeper has its records in dir. The job of the worker, if it
// has one, holds its limits; a service holds those of its sandboxes.
func (p *place) openBox(ctx context.Context, dir string, in jobs.Place) (opened *box, err error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	b := &box{dir: dir, end: func() {}}
	in.Scheduler = ""
	service := in.External != nil
	if !service {
		in.Resources = jobs.Resources{}
	}
	spec := jobs.EnvSpec{Version: jobs.EnvVersion, ID: id, Name: "sweep-" + jobs.Short(id), Place: in, Lifetime: boxLife, Created: time.Now().UTC(),
		User: os.Getenv("USER"), Host: host, Home: p.home, Strict: service}
	if _, _, err := store.CreateEnv(b.dir, spec); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close(func(string, ...any) {}) // why it did not open is said
		}
	}()
	o := places.OpenOptions{Node: program, ID: id, Stays: p.job != "", Keys: p.alone, Input: func(context.Context) ([]byte, error) {
		if len(p.keys) == 0 {
			return nil, nil
		}
		return []byte(strings.Join(p.keys, "\x00") + "\x00"), nil
	}}
	conn, report, err := places.Open(ctx, b.dir, o)
	for wait := boxAgain; err != nil && service && passes(err) && wait <= boxAgainMost; wait *= 2 {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
		conn, report, err = places.Open(ctx, b.dir, o) // by the same name, so that what was made is found
	}
	if err != nil {
		return nil, err
	}
	if report != nil {
		b.notes = report.Notes
	}
	if b.session, err = session.Open(ctx, conn, conn, session.Options{PingTimeout: -1}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	ctx, b.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for t := time.NewTicker(boxPing); ; {
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
				_ = b.session.Ping() // that it is gone is told to whoever waits for it
			}
		}
	}()
	stdin, hold := io.Pipe()
	b.hold = hold
	if _, err = b.session.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"/bin/sh", "-c", "read -r end"}}, Stdin: stdin},
		nil, nil); err != nil {
		return nil, err
	}
	return b, nil
}

// passes tells whether what a service could not do now it may do later.
func passes(err error) bool {
	k := jobs.KindOf(err)
	return k == jobs.KindAgain || k == jobs.KindInfra || k == jobs.KindUnclear
}

// refuses tells whether a service will never do what it was asked for.
func refuses(err error) bool {
	k := jobs.KindOf(err)
	return k == jobs.KindUsage || k == jobs.KindConfig
}

// close ends it, and waits a moment until what was mounted for it is no more.
func (b *box) close(log func(string, ...any)) {
	if b.hold != nil {
		_ = b.hold.Close()
	}
	b.end()
	if b.session != nil {
		_ = b.session.Close()
	}
	info, err := places.Peek(b.dir)
	if err != nil || info == nil || info.Process.Gone(lease.Self()) {
		return
	}
	_ = unix.Kill(info.PID, unix.SIGTERM)
	for until := time.Now().Add(boxEnd); places.Alive(b.dir); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			log("the container of the worker does not end: see %s", b.dir)
			return
		}
	}
}

// run runs a task's command in it, or in a room below it, with so much memory at most; 0 is
// any.
func (b *box) run(ctx context.Context, c run.QuickCmd, own *wire.OwnRoom, memory jobs.Bytes) (end run.QuickEnd, err error) {
	var one sync.Mutex
	to := func(stream int) io.Writer {
		return writer(func(data []byte) error {
			one.Lock()
			defer one.Unlock()
			return c.Output(stream, data)
		})
	}
	p, err := b.session.Start(session.StartRequest{Command: jobs.Command{Argv: c.Argv},
		Env: c.Env, Dir: c.Dir, Timeout: c.Limit, Grace: c.Grace, Own: own, MaxMemory: memory,
		Report: metric.Var, Reports: to(int(journal.Progress))}, to(1), to(2))
	if err != nil {
		return end, fmt.Errorf("%w: %w", errBox, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Terminate(c.Grace) })
	res, err := p.Wait()
	end.Stopped = !stop()
	switch {
	case err != nil:
		return end, fmt.Errorf("%w: %w", errBox, err)
	case res.Unpinged || res.Exit.Signal != 0 && !end.Stopped && !res.TimedOut && !res.OverMemory && b.ending(ctx):
		return end, errBox
	case res.NoRoom && !end.Stopped && !res.TimedOut:
		return end, fmt.Errorf("%w: %s", errNoPlace, res.Exit.Error)
	case !res.Exit.Started && res.Exit.Code == 127:
		return end, fmt.Errorf("%s: %w", cmp.Or(res.Exit.Error, "the program was not found"), os.ErrNotExist)
	case !res.Exit.Started:
		return end, errors.New(cmp.Or(res.Exit.Error, "the program could not be started"))
	}
	end.Exit, end.Memory, end.TimedOut, end.Over, end.Err = res.Exit, int64(res.MaxRSS), res.TimedOut, res.OverMemory, res.Output
	return end, nil
}

// ending tells whether the container takes nothing more: it may be what has ended a task.
func (b *box) ending(ctx context.Context) bool {
	_, err := b.session.Stat(context.WithoutCancel(ctx), "", "/")
	return errors.Is(err, session.ErrAgain) || errors.Is(err, session.ErrGuestGone) || jobs.KindOf(err) == jobs.KindAgain
}

// errBox is that a task's end is not known, because the container has ended under it.
// It is a death of the worker, for which the task may be to blame.
var errBox = errors.New("the container of the worker has ended")

// told tells whether the container has ended because all of the worker's job is to: its
// processes are told so one by one. Then no task is to blame.
func told(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return !errors.Is(context.Cause(ctx), errBox)
	case <-time.After(boxTold):
		return false
	}
}

type writer func([]byte) error

func (w writer) Write(b []byte) (int, error) {
	if err := w(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
