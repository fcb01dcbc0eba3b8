package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth/backends/docker"
	"berth/internal/container"
	"berth/internal/lease"
	"berth/internal/run"
	"berth/internal/session"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// Main is `berth-node runner --attempt DIR -- ARGV...`, the last line of every
// job script. It returns the exit code of the batch job.
func Main(args []string, stderr io.Writer) int {
	return start(args, stderr, defaultTimes())
}

func start(args []string, stderr io.Writer, periods times) int {
	// Before anything else: a signal that arrives now must not kill the
	// process, and SIGCONT, which Slurm sends before TERM, must not matter.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	syscall.Umask(0o077)

	fs := flag.NewFlagSet("runner", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("attempt", "", "the attempt's directory")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() == 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node runner --attempt DIR -- ARGV...")
		return jobs.CodeUsage
	}
	r, err := open(filepath.Clean(*dir), fs.Args(), stderr, periods)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: error: %v\n", err)
		if h := jobs.HintOf(err); h != "" {
			_, _ = fmt.Fprintf(stderr, "berth: hint: %s\n", h)
		}
		return jobs.CodeOf(err)
	}
	defer func() { _ = r.logFile.Close() }()
	return r.run(signals)
}

// attempt is one execution under way.
type attempt struct {
	dir, jobDir string
	argv        []string // as in the script, with holes
	spec        jobs.Spec
	info        jobs.AttemptInfo
	claim       jobs.Claim
	on          jobs.Starter
	log         *slog.Logger
	logFile     *os.File
	times       times
	began       time.Time
	jobEnd      time.Time // when Slurm will end the job; zero when it will not, or is not known

	scratch   *container.Scratch
	cgroup    *container.Cgroup // that this process is in
	jobCgroup *container.Cgroup // the same when it is the Slurm job's own, else nil
	ooms      int               // kills in jobCgroup before the task began
	docker    *docker.Job       // of backend docker, else nil
	far       *far              // of backend ssh, else nil
	box       *container.Cgroup // of docker's container, while it is open
	boxOOMs   int               // kills in it
	stop      stopper
	notes     []string

	sessionMu  sync.Mutex
	session    *session.Session // of the open container, or nil; guarded by sessionMu
	lastPong   time.Time        // of that session; guarded by sessionMu
	unanswered int              // pings in a row; guarded by sessionMu
}

// errClaimed says that another runner has the attempt.
var errClaimed = errors.New("the attempt is claimed by another runner")

// open reads what to do and claims it.
func open(dir string, argv []string, stderr io.Writer, periods times) (*attempt, error) {
	a, err := store.LoadAttempt(dir)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the attempt", Err: err, Hint: "does this node see " + dir + "? BERTH_HOME must be on a file system that the nodes share"}
	}
	if v := a.Verdict; v != nil {
		// Somebody may have submitted the job anew because of it.
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "attempt " + jobs.Short(a.Info.ID) + " counts as " + string(v.State) + " since " + v.Time.Format(time.RFC3339) + " (" + v.Reason + ")", Hint: "it came too late; nothing was touched"}
	}
	rec, err := store.LoadDir(store.JobDirOf(dir))
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	restart, _ := strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT"))
	r := &attempt{dir: dir, jobDir: rec.Dir, argv: argv, spec: rec.Spec, info: a.Info, on: run.Local{}, times: periods, began: time.Now(),
		claim: jobs.Claim{Version: 1, Attempt: a.Info.ID, NativeID: os.Getenv("SLURM_JOB_ID"), Restart: restart,
			Host: host, BootID: lease.BootID(), PID: os.Getpid(), Time: time.Now().UTC()}}
	won, err := store.SetClaim(dir, r.claim)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "claim the attempt", Err: err}
	}
	if !won {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "attempt " + jobs.Short(a.Info.ID), Err: errClaimed, Hint: "nothing was touched"}
	}
	r.logFile, err = os.OpenFile(filepath.Join(dir, store.FileRuntime), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "open the attempt's log", Err: err}
	}
	// Slurm keeps stderr in its own log: what goes wrong is wanted there too.
	r.log = slog.New(both{slog.NewTextHandler(r.logFile, nil), slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})}).With("attempt", jobs.Short(a.Info.ID))
	return r, nil
}

// run takes a claimed attempt to its end.
func (r *attempt) run(signals <-chan os.Signal) int {
	// Orphans of the container come to this process, so that they can be
	// found and ended; without it they would go to init, out of reach.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// Without a container the task is another process of the same user, and
	// could read the key of the conversation with the guest from here.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.event("claimed", "on "+r.claim.Host)
	r.stop.init()
	if r.spec.Scheduler == jobs.SchedulerSlurm {
		r.jobEnd = slurmEnd(ctx, r.on, r.claim.NativeID)
	}
	go r.watchSignals(ctx, signals)
	go r.beat(ctx)

	out := r.execute(ctx)
	rec := r.conclude(out)
	// Before the record: who waits for the end may at once want the overlay.
	r.cleanup(out)
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
	return rec.Code
}

// record writes the exit, and tries for a while: a full quota or a file server
// that restarts must not cost the word on a job that has run for days.
func (r *attempt) record(rec jobs.ExitRecord) (won bool, err error) {
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		won, err = store.SetExit(r.dir, rec)
		if w := r.stop.get(); err == nil || pause > time.Minute/2 || (w != nil && w.hurry > 0) {
			return won, err
		}
		r.log.Warn("the exit could not be recorded; trying again", "err", err)
		time.Sleep(pause)
	}
}

func (r *attempt) event(name, text string) {
	if err := store.AppendEvent(r.dir, store.Event{Time: time.Now().UTC(), Event: name, Text: text}); err != nil {
		r.log.Warn("an event could not be written", "event", name, "err", err)
	}
	r.log.Info(name, "text", text)
}

func (r *attempt) note(text string) { r.notes = append(r.notes, text) }
