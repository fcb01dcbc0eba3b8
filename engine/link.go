package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"berth/internal/link/mux"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// Environment is a named, contained place with its own files. It is made when
// it is first used, and outlives this process. It is safe for concurrent use.
type Environment struct {
	Spec jobs.EnvSpec
	// Progress is told, for people, what takes long while it opens; it may be
	// nil and must not be changed once the environment is used.
	Progress func(string)
	// Immediate bounds the time that a held environment waits in its
	// scheduler's queue; 0 waits as long as it takes.
	Immediate time.Duration

	e   *Engine
	dir string

	mu    sync.Mutex
	link  *session.Session
	ended chan struct{} // closed by Close
	notes []string      // of the last opening, not told yet
	ends  time.Time     // of its allocation
	owed  bool          // the keeper at its end waits for the keys of the environment's credentials
	fresh bool          // recorded by this client, and not open yet
	made  bool          // recorded by this client, see [Environment.Leave]

	asked jobs.Cluster // answers for the one of its allocation; nil is that one itself
}

// dialer is a backend whose environments are kept on another machine.
type dialer interface {
	jobs.Backend
	// Connect makes sure that the machine can be reached; with terminal, the
	// person there may be asked for what it takes.
	Connect(ctx context.Context, s *jobs.EnvSpec, terminal bool) error
	// Dial reaches the keeper of an environment, and starts it unless
	// o.NoStart is set.
	Dial(ctx context.Context, s *jobs.EnvSpec, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error)
	// Far is the command of this machine that joins its streams to the far side of
	// package mux beside a keeper that runs. It must work without asking anybody.
	Far(ctx context.Context, s *jobs.EnvSpec) (jobs.Cmd, error)
}

// ErrNotRunning says that an environment has no keeper at the moment.
var ErrNotRunning = keeper.ErrNotRunning

// Open makes sure that the environment runs, and returns its keeper's notes about
// that: choices, limits, a restart.
func (v *Environment) Open(ctx context.Context) (notes []string, err error) {
	if _, err := v.open(ctx, false); err != nil {
		return nil, err
	}
	return v.takeNotes(), nil
}

func (v *Environment) takeNotes() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.notes
	v.notes = nil
	return n
}

// open returns the conversation with the keeper, which is kept as long as it
// lives. With noStart an environment that does not run is [ErrNotRunning].
func (v *Environment) open(ctx context.Context, noStart bool) (*session.Session, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := v.lentKeys(ctx)
	if v.link != nil {
		select {
		case <-v.link.Gone():
			v.drop()
		default:
			err := v.handKeys(ctx, noStart, keys)
			if err == nil {
				return v.link, nil
			}
			if v.drop(); !ends(err) {
				return nil, err
			}
		}
	}
	progress, meter := v.Progress, v.e.meter
	if progress == nil {
		progress, meter = func(string) {}, nil
	}
	// A keeper that is just ending refuses its last clients before anything
	// of theirs has run.
	for try := 1; ; try++ {
		conn, rep, err := v.dial(ctx, keeper.OpenOptions{Progress: progress, Meter: meter, NoStart: noStart, Input: keys})
		if err != nil {
			if v.fresh && !noStart {
				v.forget()
			}
			return nil, err
		}
		v.fresh = false
		s, err := session.Open(ctx, conn, conn, v.options())
		if err == nil {
			v.link, v.ended, v.owed = s, make(chan struct{}), s.Guest().NoKeys
			if rep != nil {
				if rep.Rebuilt != "" {
					v.notes = append(v.notes, rep.Rebuilt)
				}
				v.notes = append(v.notes, rep.Notes...)
				v.ends = rep.Ends
				if text := endsSoon(rep.Ends, v.e.Now()); text != "" {
					v.notes = append(v.notes, text)
				}
				go warn(progress, rep.Ends, v.ended)
			}
			go ping(s, v.ended)
			if err = v.handKeys(ctx, noStart, keys); err == nil {
				return s, nil
			}
			if v.drop(); !ends(err) {
				return nil, err
			}
		}
		if ctx.Err() != nil || try == 3 {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "talk to the keeper of the environment " + v.Spec.Name, Err: err,
				Hint: "berth env show " + v.Spec.Name}
		}
	}
}

// ends reports whether a keeper has ended before it did what it was asked for.
func ends(err error) bool {
	return errors.Is(err, session.ErrAgain) || errors.Is(err, session.ErrGuestGone)
}

// options are those of the conversation with the keeper, whose guest lives by
// the keeper's pings and not by ours.
func (v *Environment) options() session.Options {
	o := session.Options{PingTimeout: -1}
	if b, err := v.e.backend(v.Spec.Backend); err == nil {
		if p, ok := b.(jobs.Piper); ok && v.Spec.Scheduler != "" {
			if at, err := v.place(); err == nil {
				o.Pipes = at.Pipes(p)
			}
		} else if ok {
			o.Pipes = session.LocalPipes(p.Pipes(v.dir))
		}
	}
	return o
}

func (v *Environment) dial(ctx context.Context, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	if v.Spec.Scheduler != "" {
		p, err := v.place()
		if err != nil {
			return nil, nil, err
		}
		return p.Dial(ctx, o)
	}
	if v.oneShot() && !o.NoStart {
		return nil, nil, v.noStream()
	}
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		return nil, nil, err
	}
	if d, ok := b.(dialer); ok {
		return v.dialFar(ctx, d, o)
	}
	if !o.NoStart {
		if o.Node, err = v.e.Node(); err != nil {
			return nil, nil, err
		}
	}
	if p, ok := b.(Program); ok {
		o.Keys = p.Keys()
	}
	o.ID = v.Spec.ID // another one of this name may be less contained
	return keeper.Open(ctx, v.dir, o)
}

// heldIdle is how long the holder of a connection stays without clients. It has one
// of the sessions that a server allows on a connection (sshd_config(5), MaxSessions).
const heldIdle = 2 * time.Minute

// heldBy is the connection to the keeper on another machine through a process of this one.
func (v *Environment) heldBy() mux.Link {
	return mux.Link{Dir: v.dir, ID: v.Spec.ID, Progress: v.Progress, Idle: heldIdle}
}

// dialFar reaches the keeper on another machine: through the process that holds a
// connection to it, else by a connection of its own. That is as fast as it gets for
// the first command, and leaves a holder behind for those after it.
func (v *Environment) dialFar(ctx context.Context, d dialer, o keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	link := v.heldBy()
	conn, rep, err := link.Join(ctx)
	switch {
	case err == nil:
		return conn, rep, nil
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, ErrNotRunning) && !o.NoStart: // a new one is not for the old connection
		if err := link.End(ctx); err != nil {
			return nil, nil, err
		}
	}
	// Whatever is wrong with a holder, the direct way says it best.
	if err := d.Connect(ctx, &v.Spec, v.e.Terminal); err != nil {
		return nil, nil, err
	}
	if conn, rep, err = d.Dial(ctx, &v.Spec, o); err != nil || o.NoStart {
		return conn, rep, err
	}
	link.Command = func(ctx context.Context) (jobs.Cmd, error) { return d.Far(ctx, &v.Spec) }
	if link.Node, err = v.e.holds(); err == nil {
		err = link.Hold(ctx)
	}
	if err != nil && v.Progress != nil {
		v.Progress("each command will open a connection of its own: " + err.Error())
	}
	return conn, rep, nil
}

// drop forgets the conversation. The caller holds v.mu.
func (v *Environment) drop() {
	if v.link != nil {
		_ = v.link.Close()
		close(v.ended)
		v.link = nil
	}
}

// Close ends this client's use of the environment: its commands that still run
// are ended, background processes and the environment go on.
func (v *Environment) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
}

// tries bounds how often a request is sent that came too late for a keeper:
// each time nothing of it has run.
const tries = 5

// again does something in the conversation with the keeper, and once more in a
// new one when the keeper was just ending and has done nothing of it.
func (v *Environment) again(ctx context.Context, noStart bool, do func(*session.Session) error) error {
	for try := 1; ; try++ {
		s, err := v.open(ctx, noStart)
		if err != nil {
			return err
		}
		if err = do(s); !errors.Is(err, session.ErrAgain) || try == tries || ctx.Err() != nil {
			return err
		}
		v.Close()
	}
}

// keep asks the keeper for something of its own.
func (v *Environment) keep(ctx context.Context, noStart bool, req wire.KeepRequest, stdin io.Reader, stdout io.Writer) (*wire.KeepAnswer, error) {
	var res session.Result
	err := v.again(ctx, noStart, func(s *session.Session) (err error) {
		res, err = askKeeper(ctx, s, req, stdin, stdout)
		return err
	})
	if err != nil {
		return nil, v.broken(err)
	}
	a, err := v.said(res)
	if err == nil && res.Output != nil {
		return a, res.Output
	}
	return a, err
}

// askKeeper asks the keeper at the end of a conversation for something of its own.
func askKeeper(ctx context.Context, s *session.Session, req wire.KeepRequest, stdin io.Reader, stdout io.Writer) (session.Result, error) {
	p, err := s.Do(wire.StartMessage{Keep: &req}, stdin, stdout)
	if err != nil {
		return session.Result{}, err
	}
	return waitFor(ctx, p)
}

// said is the keeper's answer.
func (v *Environment) said(res session.Result) (*wire.KeepAnswer, error) {
	if res.Keep == nil {
		return nil, fmt.Errorf("the keeper of the environment %s gave no answer: %s", v.Spec.Name, res.Exit)
	}
	var a wire.KeepAnswer
	if err := json.Unmarshal(res.Keep, &a); err != nil {
		return nil, fmt.Errorf("the keeper's answer: %w", err)
	}
	if a.Error != "" {
		return nil, &jobs.Error{Kind: a.Kind, Msg: a.Error, Hint: a.Hint}
	}
	return &a, nil
}

// broken explains a conversation that ended.
func (v *Environment) broken(err error) error {
	if !errors.Is(err, session.ErrGuestGone) {
		return err
	}
	msg := "the environment " + v.Spec.Name + " ended, or the link to it broke, before the answer came"
	if fate := v.fate(); fate != "" {
		msg += "; " + fate
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err,
		Hint: "what the command did is not known; the next one starts the environment again; berth env show " + v.Spec.Name}
}

// answer is what Wait says of a process.
type answer struct {
	res session.Result
	err error
}

// endOf waits for a process in a goroutine of its own.
func endOf(p *session.Process) <-chan answer {
	ended := make(chan answer, 1)
	go func() {
		res, err := p.Wait()
		ended <- answer{res, err}
	}()
	return ended
}

// waitFor waits for the end of a request, and ends it when ctx does.
func waitFor(ctx context.Context, p *session.Process) (session.Result, error) {
	ended := endOf(p)
	select {
	case a := <-ended:
		return a.res, a.err
	case <-ctx.Done():
		_ = p.Terminate(0)
	}
	select {
	case a := <-ended:
		if a.err == nil && a.res.Exit.OK() {
			return a.res, nil
		}
	case <-time.After(5 * time.Second):
	}
	return session.Result{}, context.Cause(ctx)
}
