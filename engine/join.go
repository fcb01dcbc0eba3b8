package engine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/join"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Joined is a way into the place of a job that runs, beside its command. Its
// commands have a session of their own, which begins where the job's command
// did, with its variables but those that were passed on by name. All that they
// start ends with Close, or with the job.
type Joined struct {
	commands
	Spec jobs.Spec

	e     *Engine
	dir   string // of the attempt
	task  []string
	link  *session.Session
	ended chan struct{}
	once  sync.Once

	failed atomic.Bool
}

// JoinOptions are how a job is joined.
type JoinOptions struct {
	// Wait is how long it is waited until the task runs; 0 is one minute while its
	// place is being prepared, and not at all while it is in a queue.
	Wait time.Duration
	// Progress is told, for people, what takes long; it may be nil.
	Progress func(string)
}

// Times of joining.
const (
	joinWait   = time.Minute
	joinSilent = time.Minute      // without a sign of life of the runner
	joinPing   = time.Minute      // without ours, and the guest leaves
	joinEnd    = 45 * time.Second // for a job's record, once its container has ended: to unmount it may take 20 s
	joinPause  = time.Second      // between two looks at a job that waits
	joinTries  = 5                // of a step that is refused for the moment
)

// Join comes into the place of a job that runs.
func (e *Engine) Join(ctx context.Context, rec *jobs.Record, o JoinOptions) (*Joined, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	v, err := e.awaitRunner(ctx, rec, o)
	if err != nil {
		return nil, err
	}
	if o.Wait == 0 {
		o.Wait = joinWait
	}
	on, c, err := e.reach(ctx, v, o.Wait)
	if err != nil {
		return nil, err
	}
	a := v.Current()
	// What is to be waited for on the node is waited for there.
	dctx, cancel := context.WithTimeoutCause(ctx, o.Wait+joinWait, &jobs.Error{Kind: jobs.KindAgain,
		Msg: "no answer from " + a.Claim.Host + " within " + (o.Wait + joinWait).String(), Hint: "berth status " + jobs.Short(v.Spec.ID)})
	defer cancel()
	for try := 1; ; try++ {
		j, again, err := e.join(ctx, dctx, v, on, c, o.Progress)
		if err == nil {
			return j, nil
		}
		if !again || try == joinTries || dctx.Err() != nil {
			return nil, e.joinError(v, c, err)
		}
		if err := e.Sleep(ctx, time.Duration(try)*500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// awaitRunner returns what is known of a job that can be joined.
func (e *Engine) awaitRunner(ctx context.Context, rec *jobs.Record, o JoinOptions) (*View, error) {
	deadline := e.Now().Add(o.Wait)
	for said := false; ; said = true {
		v := e.Reconcile(ctx, []*jobs.Record{rec})[0]
		err := e.joinable(&v)
		if err == nil || v.State.Final() || v.State == jobs.StateRunning || e.Now().After(deadline) {
			return &v, err
		}
		if !said {
			o.Progress(err.Error() + "; waiting")
		}
		if err := e.Sleep(ctx, joinPause); err != nil {
			return nil, err
		}
		if rec, err = store.LoadDir(rec.Dir); err != nil {
			return nil, err
		}
	}
}

func (e *Engine) join(ctx, dctx context.Context, v *View, on jobs.Starter, c jobs.Cmd, progress func(string)) (j *Joined, again bool, err error) {
	rw, in, err := join.Dial(dctx, on, c, progress)
	if err != nil {
		if sc, _, serr := e.schedulerOf(&v.Spec); serr == nil {
			if c, ok := sc.(jobs.Cluster); ok {
				err, again = join.Refused(err, c, jobs.Handle{NativeID: v.Current().Claim.NativeID})
			}
		}
		return nil, again, err
	}
	s, err := session.Open(ctx, rw, rw, session.Options{StartTimeout: joinWait, PingTimeout: joinPing,
		Home: in.Home, Dir: in.Dir, Env: in.Env, User: v.Spec.User,
		Confine: v.Spec.Level != "" && v.Spec.Level != jobs.LevelNone, NetworkWish: wire.NetworkWish{Visitor: in.Room}})
	if err != nil {
		return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "talk to the guest in the job's place", Err: err,
			Hint: "did the job just end? berth status " + jobs.Short(v.Spec.ID)}
	}
	j = &Joined{Spec: v.Spec, e: e, dir: v.Current().Dir, task: in.Task, link: s, ended: make(chan struct{})}
	j.commands = commands{j, jobs.DefaultSession}
	go ping(s, j.ended)
	return j, false, nil
}

// joinable says why a job cannot be joined.
func (e *Engine) joinable(v *View) error {
	short := jobs.Short(v.Spec.ID)
	switch {
	case v.State.Final():
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + short + " has ended: " + howEnded(v.Record),
			Hint: "berth logs " + short + " shows what it has written"}
	case v.State != jobs.StateRunning:
		msg := "job " + short + " does not run yet: it is " + string(v.State)
		if v.Status.Reason != "" {
			msg += " (" + v.Status.Reason + ")"
		}
		return &jobs.Error{Kind: jobs.KindAgain, Msg: msg,
			Hint: "berth status " + short + " tells why it waits; berth wait " + short + " waits for its end"}
	case v.Spec.External != nil:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: "job " + short + " runs in a sandbox of the backend " + v.Spec.Backend + ", which has no way in beside its command",
			Hint: "berth logs --follow " + short + " shows what it writes; environments there can be come into: berth shell --backend " +
				v.Spec.Backend}
	case v.Spec.Can().NeedsHost:
		host := "HOST"
		if v.Spec.SSH != nil {
			host = v.Spec.SSH.Host
		}
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "job " + short + " runs on " + host + " by ssh, with no container to come into",
			Hint: "ssh " + host}
	}
	a := v.Current()
	if age := e.Now().Sub(lastSign(a)); age > joinSilent {
		// The record may be what a file server remembers.
		if fresh, err := store.LoadFresh(a.Dir); err == nil {
			fresh.N = a.N
			age = e.Now().Sub(lastSign(fresh))
		}
		if age > joinSilent {
			return &jobs.Error{Kind: jobs.KindInfra,
				Msg:  fmt.Sprintf("the runner of job %s on %s has given no sign of life for %v", short, a.Claim.Host, age.Round(time.Second)),
				Hint: "was it killed or stopped, or is the node cut off? berth status " + short}
		}
	}
	return nil
}

// reach returns the command that comes into the place of a job, and what starts
// it: here, or on the login host of its cluster.
func (e *Engine) reach(ctx context.Context, v *View, wait time.Duration) (jobs.Starter, jobs.Cmd, error) {
	short, a := jobs.Short(v.Spec.ID), v.Current()
	sc, _, err := e.schedulerOf(&v.Spec)
	if err != nil {
		return nil, jobs.Cmd{}, err
	}
	at, err := e.selectSite(ctx, &v.Spec)
	if err != nil {
		return nil, jobs.Cmd{}, err
	}
	dir, err := e.attemptDir(&v.Spec, a.Info.Number)
	if err != nil {
		return nil, jobs.Cmd{}, err
	}
	argv := join.Command(at.node, dir, wait)
	if st, ok := sc.(jobs.Cluster); ok && a.Submitted != nil {
		node := a.Claim.Node
		if in, err := store.LoadInside(a.Dir); err == nil && in != nil {
			node = in.Node // of the first one of several tasks
		}
		return e.starterOf(v, st.Step(a.Submitted.Handle, node, argv))
	}
	// The runner is a process of the machine that its scheduler is on.
	if me := lease.Self(); !(lease.Process{Host: a.Claim.Host, BootID: a.Claim.BootID}).Near(me) {
		return nil, jobs.Cmd{}, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("job %s runs on %s, and this is %s", short, a.Claim.Host, me.Host),
			Hint: "ssh " + a.Claim.Host + ", and there: berth shell " + short}
	}
	return run.Local{}, jobs.Cmd{Argv: argv, Dir: "/"}, nil
}

// starterOf is what starts a command where the job's scheduler is asked.
func (e *Engine) starterOf(v *View, c jobs.Cmd) (jobs.Starter, jobs.Cmd, error) {
	site, err := e.site(&v.Spec)
	if err != nil {
		return nil, jobs.Cmd{}, err
	}
	if site == nil {
		return run.Local{}, c, nil
	}
	on, ok := site.(jobs.Starter)
	if !ok {
		short := jobs.Short(v.Spec.ID)
		return nil, jobs.Cmd{}, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "job " + short + " is on " + site.String() + ", and can only be joined from there",
			Hint: "ssh " + v.Spec.Login.Host + ", and there: berth shell " + short}
	}
	return on, c, nil
}

// joinError explains what kept the other side from being reached.
func (e *Engine) joinError(v *View, c jobs.Cmd, err error) error {
	short := jobs.Short(v.Spec.ID)
	if errors.Is(err, exec.ErrNotFound) {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  filepath.Base(c.Argv[0]) + " is not installed here, and job " + short + " runs on " + v.Current().Claim.Host,
			Hint: "on the cluster's login node it is: there, berth shell " + short}
	}
	// It may have ended meanwhile, which says more than how that was noticed.
	if rec, lerr := store.LoadDir(v.Dir); lerr == nil && jobs.StateOf(rec).Final() {
		return e.joinable(&View{Record: rec, State: jobs.StateOf(rec)})
	}
	if jobs.HintOf(err) == "" && jobs.KindOf(err) == jobs.KindUnknown {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "join job " + short, Err: err, Hint: "berth status " + short}
	}
	return err
}

// howEnded says in a few words how a job ended.
func howEnded(rec *jobs.Record) string {
	state := jobs.StateOf(rec)
	a := rec.Current()
	switch x := a.Exit; {
	case x != nil && (state == jobs.StateCompleted || state == jobs.StateFailed) && x.Exit.Started:
		return x.Exit.String()
	case x != nil && x.Reason != "" && x.Reason != string(state):
		return string(state) + ": " + x.Reason
	case x == nil && a.Verdict != nil && a.Verdict.Reason != "":
		return string(state) + ": " + a.Verdict.Reason
	}
	return string(state)
}

// Notes are what people should know before they begin.
func (j *Joined) Notes() []string {
	if len(j.Spec.EnvNames) == 0 {
		return nil
	}
	return []string{"what the job was given by name is not here: " + strings.Join(j.Spec.EnvNames, " ") + "; --var NAME passes it on"}
}

// Close ends all that was started, and nothing of the job.
func (j *Joined) Close() {
	j.once.Do(func() {
		close(j.ended)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = j.link.Quit(ctx)
	})
}

func (j *Joined) again(_ context.Context, _ bool, do func(*session.Session) error) error {
	err := do(j.link)
	if err != nil {
		j.failed.Store(true)
	}
	return err
}

func (j *Joined) variables(own []string) []string {
	return append(append([]string{}, j.task...), own...)
}

// takeNotes reports that the job ended while a command ran: without a container
// the command then gets TERM, which looks like a signal that a user sent.
func (j *Joined) takeNotes() []string {
	if j.failed.Load() {
		return nil // the error says so
	}
	if rec, err := store.LoadDir(store.JobDirOf(j.dir)); err == nil && jobs.StateOf(rec).Final() {
		return []string{"the job ended: " + howEnded(rec)}
	}
	return nil
}

func (j *Joined) kept() (dir, name string) { return j.e.outputs(), "job-" + jobs.Short(j.Spec.ID) }

// broken explains a conversation that ended: mostly because the job did. Its
// record comes a while after the end of its container.
func (j *Joined) broken(err error) error {
	if !errors.Is(err, session.ErrGuestGone) && !errors.Is(err, session.ErrAgain) {
		return err
	}
	short := jobs.Short(j.Spec.ID)
	state := jobs.StateRunning
	for deadline := time.Now().Add(joinEnd); ; time.Sleep(200 * time.Millisecond) {
		rec, lerr := store.LoadDir(store.JobDirOf(j.dir))
		if lerr == nil && j.Spec.Login != nil { // this is a copy
			ctx, cancel := context.WithTimeout(context.Background(), joinEnd)
			rec = j.e.Reconcile(ctx, []*jobs.Record{rec})[0].Record
			cancel()
		}
		if lerr == nil {
			state = jobs.StateOf(rec)
		}
		if lerr == nil && state.Final() {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "the job ended: " + howEnded(rec),
				Hint: "berth status " + short + "; what was started beside it has ended with it"}
		}
		if time.Now().After(deadline) {
			break
		}
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the task's container ended, or the link to it broke; job " + short + " is " + string(state), Err: err,
		Hint: "berth status " + short}
}
