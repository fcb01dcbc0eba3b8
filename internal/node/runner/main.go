package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/session"
	"berth/internal/network/broker"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/egress"
	"berth/internal/node/supervise"
	"berth/internal/sys/failpoint"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/internal/sys/tally"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// mostAtOnce bounds how many threads of the runner run at once, whatever the node has: its work
// is to wait.
const mostAtOnce = 8

// Main is `berth-node runner --attempt DIR`, the last line of every job script. What
// stands there behind it shows people what it starts. It returns the exit code of
// the batch job. openers are the backends whose places it can open.
func Main(args []string, openers []jobs.Opener, stderr io.Writer) int {
	return start(args, openers, stderr, defaultTimes())
}

func start(args []string, openers []jobs.Opener, stderr io.Writer, periods times) int {
	signals := supervise.Signals()
	// A task that takes all the processes of its user must not end the runner.
	runtime.GOMAXPROCS(min(mostAtOnce, runtime.GOMAXPROCS(0)))
	run.MakeThreads()
	fs := flag.NewFlagSet("runner", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("attempt", "", "the attempt's directory")
	behind := fs.String("standby", "", "in place of --attempt: the directory of the attempt behind which this job is a standby")
	client := fs.String("follow", "", "the berth whose verb \"follow\" begins the next attempt")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if (*dir == "") == (*behind == "") {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node runner --attempt DIR")
		return jobs.CodeUsage
	}
	var r *attempt
	var err error
	if *behind != "" {
		r, err = openStandby(filepath.Clean(*behind), *client, stderr, periods, signals)
	} else {
		r, err = open(filepath.Clean(*dir), stderr, periods)
	}
	if r == nil && err == nil {
		_, _ = fmt.Fprintln(stderr, "berth: standby job not needed: no retry is due that asks for the same")
		return jobs.CodeOK
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: error: %v\n", err)
		if h := jobs.HintOf(err); h != "" {
			_, _ = fmt.Fprintf(stderr, "berth: hint: %s\n", h)
		}
		return jobs.CodeOf(err)
	}
	defer func() { _ = r.logFile.Close() }()
	r.client, r.openers = *client, openers
	return r.run(signals)
}

// attempt is one execution under way.
type attempt struct {
	dir, jobDir string
	image       *jobs.ImageUse
	spec        jobs.Spec
	info        jobs.AttemptInfo
	claim       jobs.Claim
	on          jobs.Starter
	log         *slog.Logger
	logFile     io.WriteCloser
	times       times
	began       time.Time
	batch       jobs.NodeScheduler // in whose job this is
	jobEnd      time.Time          // when the scheduler will end the job; zero when it will not, or is not known

	openers   []jobs.Opener
	opening   *jobs.Opening // of the attempt's containers
	scratch   *container.Scratch
	node      string            // the program for the nodes, in the scratch directory
	cgroup    *container.Cgroup // that this process is in
	jobCgroup *container.Cgroup // the same when it is the Slurm job's own, else nil
	ooms      int               // kills in jobCgroup before the task began
	far       *far              // of a place without this machine's files, else nil
	// credentials have their keys, for the broker alone.
	credentials []broker.Credential
	carried     carried                       // of the caps, by earlier attempts
	keys        []string                      // NAME=VALUE for the program of the backend alone
	box         *container.Cgroup             // of the container, where a daemon has it, while it is open
	boxOOMs     int                           // kills in it
	egress      atomic.Pointer[egress.Egress] // what commands reach; nil where there is nothing to decide
	stop        stopper
	clone       jobs.Bytes                    // of the workspace, before the task
	use         *jobs.OverlayUse              // of the writable layer; nil without one
	layer       atomic.Pointer[overlay.Layer] // the same while it is this attempt's
	notes       []string
	versions    versions     // of the programs that take part
	agentTold   string       // its version, as the agent's program says it; "" is not known
	receipted   bool         // how it is contained is recorded, by this process
	ranks       *ranks       // under way, else nil; guarded by sessionMu
	rank        *rank        // of which this process is, else nil
	whose       string       // after "the command": which rank's end is told
	decided     atomic.Bool  // what follows the attempt, by this process
	verb        jobs.Verb    // which is that; "" is not known here
	asks        *asks        // of the task; nil is that it may ask nothing
	client      string       // the berth that begins the next one, or ""
	killWait    atomic.Int64 // between the scheduler's TERM and KILL, as far as it is known
	resuming

	sessionMu sync.Mutex
	session   *session.Session // of the open container, or nil; guarded by sessionMu
}

// errClaimed says that another runner has the attempt.
var errClaimed = errors.New("the attempt is claimed by another runner")

// open reads what to do and claims it.
func open(dir string, stderr io.Writer, periods times) (*attempt, error) {
	a, err := store.LoadAttempt(dir)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the attempt", Err: err,
			Hint: "does this node see " + dir + "? BERTH_HOME must be on a file system that the nodes share"}
	}
	rec, err := store.LoadOf(dir)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	in, job := batch.Here(os.Getenv)
	if job.ID == "" {
		in = batch.Of(rec.Spec.Scheduler)
	}
	if job.Restart > 0 && rec.Spec.Retry != nil && in.Name() == rec.Spec.Scheduler {
		if a, err = restarted(rec, a, job); err != nil {
			return nil, err
		}
		dir = a.Dir
	}
	if err := tooLate(a); err != nil {
		return nil, err
	}
	if b := rec.Spec.Profile.Beat; b > 0 {
		periods = timesOf(b)
	}
	r := &attempt{dir: dir, jobDir: rec.Dir, spec: rec.Spec, info: a.Info, times: periods, began: time.Now(), batch: in,
		on: batch.Counted(run.Local{}, in, tally.Log{Dir: store.AskedIn(store.HomeOf(rec.Dir))}.Note),
		claim: jobs.Claim{Version: 1, Attempt: a.Info.ID, NativeID: job.ID, Restart: job.Restart,
			Host: host, BootID: lease.BootID(), PID: os.Getpid(), Start: lease.StartTime(os.Getpid()), Node: job.Node, Time: time.Now().UTC()}}
	r.spec.Resources = a.Info.Change.Resources(r.spec.Resources)
	failpoint.Hit("runner.claim")
	won, err := store.SetClaim(dir, r.claim)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "claim the attempt", Err: err}
	}
	if !won {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "attempt " + jobs.Short(a.Info.ID), Err: errClaimed, Hint: "nothing was touched"}
	}
	if rerr := store.Reserve(dir); rerr != nil { // it is the end that needs it
		_, _ = fmt.Fprintf(stderr, "berth: no room could be kept for the record of the attempt's end: %v\n", rerr)
	}
	r.logFile, err = container.OpenLog(filepath.Join(dir, store.FileRuntime))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "open the attempt's log", Err: err}
	}
	// The scheduler keeps stderr in its own log: what goes wrong is wanted there too.
	r.log = slog.New(both{
		slog.NewTextHandler(r.logFile, nil),
		slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	}).With("attempt", jobs.Short(a.Info.ID))
	return r, nil
}

// run takes a claimed attempt to its end.
func (r *attempt) run(signals <-chan os.Signal) int {
	supervise.Shield()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.event("claimed", "on "+r.claim.Host)
	if r.spec.Clustered() {
		_, job := batch.Here(os.Getenv)
		r.jobEnd = batch.End(ctx, r.on, r.batch, job)
	}
	go r.watchSignals(ctx, signals)
	go r.beat(ctx)
	go r.guard(ctx)

	failpoint.Hit("runner.begin")
	out := r.execute(ctx)
	failpoint.Hit("runner.executed")
	rec := r.conclude(out)
	r.reach(ctx, out, &rec)
	failpoint.Hit("runner.reached")
	r.decide(&rec)
	failpoint.Hit("runner.decided")
	r.promote(ctx, out, &rec)
	failpoint.Hit("runner.promoted")
	r.deliver(ctx, out)
	failpoint.Hit("runner.delivered")
	rec.KeptPlace = r.keepThrowAway(ctx, out, rec.State)
	r.forget(ctx)
	// Before the record: who waits for the end may at once want the overlay.
	r.cleanup(out)
	failpoint.Hit("runner.cleaned")
	rec.Destroyed = r.lookAfter(ctx, out, rec.KeptPlace)
	if err := r.writeReceipt(nil, nil, nil); err != nil { // of one that has not opened its container
		r.log.Warn("how the attempt was contained could not be recorded", "err", err)
	}
	rec.Notes = r.notes
	rec.Ended = time.Now().UTC()
	won, err := r.record(rec)
	if err != nil {
		r.log.Error("the exit could not be recorded", "err", err)
		return jobs.CodeInfra
	}
	if !won {
		r.log.Warn("another exit is recorded already")
	}
	r.event("ended", string(rec.State)+": "+rec.Reason)
	failpoint.Hit("runner.ended")
	r.tell(ctx)
	r.asks.settle()
	r.goOn(ctx)
	r.endChildren(ctx)
	failpoint.Hit("runner.followed")
	if rec.Class == jobs.ClassWaiting {
		return jobs.CodeOK // nothing has failed
	}
	return rec.Code
}

func (r *attempt) event(name, text string) {
	if r.rank != nil { // the record has one writer
		r.log.Info(name, "text", text)
		return
	}
	if err := store.AppendEvent(r.dir, store.Event{Time: time.Now().UTC(), Event: name, Text: text}); err != nil {
		r.log.Warn("an event could not be written", "event", name, "err", err)
	}
	r.log.Info(name, "text", text)
}

func (r *attempt) note(text string) {
	if !slices.Contains(r.notes, text) { // what every rank says is said once
		r.notes = append(r.notes, text)
	}
}
