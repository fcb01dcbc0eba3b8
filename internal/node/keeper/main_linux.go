package keeper

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"

	"berth/internal/config/sitefile"
	"berth/internal/link/wire"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/supervise"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// Main is `berth-node keep --env DIR [--reports FILE] [--id ID] [--guest PATH]`: it opens
// the environment in DIR and keeps it until it was idle for its lifetime.
// Standard output takes the reports of its start and is then given up. With
// --reports it is the batch process of an allocation: FILE takes the reports,
// and it ends before the time of the allocation is up. With --id it keeps that
// environment alone: by the time a job begins, DIR may be another one's. openers are the backends
// that this program has.
func Main(args []string, openers []jobs.Opener, stdout *os.File, stderr io.Writer) int {
	return start(args, openers, stdout, stderr, defaultTimes())
}

func start(args []string, openers []jobs.Opener, stdout *os.File, stderr io.Writer, periods times) int {
	signals := supervise.Signals()
	fs := flag.NewFlagSet("keep", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("env", "", "the environment's directory")
	reports := fs.String("reports", "", "in an allocation: the file for the reports")
	id := fs.String("id", "", "the environment's id, which must be the one in its directory")
	guest := fs.String("guest", "", "the program to run inside; it is this one if not set")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node keep --env DIR [--reports FILE] [--id ID] [--guest PATH]")
		return jobs.CodeUsage
	}
	if *reports != "" && givenUp(filepath.Dir(*reports)) {
		_, _ = fmt.Fprintln(stderr, "berth: this allocation was given up before it began (again)")
		return 0
	}
	if err := meant(*dir, *id); err != nil {
		_, _ = fmt.Fprintln(stderr, "berth:", err) // nothing is touched, not even for a report
		return jobs.CodeOf(err)
	}
	// It lives as long as the environment, beside what that does. Mostly it passes
	// on what others have written: a second thread would wake up only to
	// find that the first has done so.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	run.MakeThreads()
	supervise.Shield()
	k := &keeper{
		dir: filepath.Clean(*dir), times: periods, told: make(chan struct{}), gone: make(chan struct{}),
		clients: map[*client]bool{}, sessions: map[string]bool{},
	}
	out := &reporter{w: stdout}
	if *reports == "" {
		_, _ = unix.Setsid() // it may lead a session already
	} else {
		// In the session that its scheduler may know it by.
		f, err := os.OpenFile(*reports, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "berth:", err)
			return jobs.CodeInfra
		}
		out.w, k.batch, k.within = f, true, allocated(context.Background(), k.dir, os.Getenv)
	}
	err := k.run(signals, openers, *guest, out)
	if err != nil {
		out.send(Failed(err))
		return jobs.CodeOf(err)
	}
	return 0
}

// givenUp tells whether the end of an allocation is recorded. A job that begins
// all the same was submitted late, or requeued by its site: no client would come.
func givenUp(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, FileEnded))
	return err == nil
}

// meant tells whether the environment in dir is the one with this id, if one is
// named.
func meant(dir, id string) error {
	if id == "" {
		return nil
	}
	spec, err := store.LoadEnv(dir)
	if err != nil {
		return err
	}
	if spec.ID != id {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the environment " + id + " was removed; another one is in " + dir + " by now"}
	}
	return nil
}

// reporter sends the reports of a start, to whoever still reads them.
type reporter struct {
	mu sync.Mutex
	w  *os.File
}

func (r *reporter) send(rep Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w != nil {
		_ = rep.Write(r.w, "")
	}
}

func (r *reporter) meter(what string, done, of int64) {
	r.send(Report{Version: wire.Version, Meter: &Meter{What: what, Done: done, Of: of}})
}

func (r *reporter) progress(text string) { r.send(Report{Version: wire.Version, Progress: text}) }

// read tells whether anybody may still read the reports.
func (r *reporter) read() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		return false
	}
	// Of a pipe, an error is that its other end is closed (poll(2)).
	p := []unix.PollFd{{Fd: int32(r.w.Fd())}}
	n, err := unix.Poll(p, 0)
	return err != nil || n == 0 || p[0].Revents&unix.POLLERR == 0
}

// done sends the last report and gives the stream up: whoever reads it waits
// for its end.
func (r *reporter) done(rep Report) {
	r.send(rep)
	r.mu.Lock()
	defer r.mu.Unlock()
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, int(r.w.Fd()), 0)
		_ = unix.Close(null)
	}
	r.w = nil
}

// run takes the environment, opens it, keeps it and closes it. The error is of
// the opening; an environment that was open has ended in order.
func (k *keeper) run(signals <-chan os.Signal, openers []jobs.Opener, guest string, out *reporter) error {
	spec, err := store.LoadEnv(k.dir)
	if err != nil {
		return err
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.HoldHere(&spec.Place, false)
	}
	if err != nil {
		return err
	}
	k.spec, k.env = spec, spec.Env
	if _, job := batch.Here(os.Getenv); job.ID != "" {
		k.env = append(batch.Passed(os.Environ()), spec.Env...)
	}
	if err := k.takeCredentials(os.Stdin); err != nil {
		return err
	}
	var opener jobs.Opener
	for _, o := range openers {
		if o.Name() == spec.Backend || spec.External != nil && o.Name() == jobs.BackendExternal {
			opener = o
		}
	}
	if opener == nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth-node cannot keep environments of the backend " + spec.Backend,
			Hint: "use the berth-node of the berth that made it"}
	}
	logFile, err := container.OpenLog(filepath.Join(k.dir, fileLog))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "open the environment's log", Err: err}
	}
	defer func() { _ = logFile.Close() }()
	k.log = slog.New(slog.NewTextHandler(logFile, nil)).With("keeper", os.Getpid())
	k.life = newLife(spec.Lifetime, k.times.accept)

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go k.heed(ctx, signals, cancel)
	stood, err := k.take(ctx, out)
	if err != nil || stood {
		return err
	}
	defer func() {
		if err := k.lease.Release(); err != nil {
			k.log.Warn("the lease could not be given back", "err", err)
		}
		close(k.gone) // now the next keeper can begin, and clients may know it
		k.serving.Wait()
	}()
	rebuilt, err := k.open(ctx, opener, guest, logFile, out)
	if err != nil {
		k.log.Error("the environment could not be opened", "err", err)
		return err
	}
	k.log.Info("open", "environment", spec.Name, "rebuilt", rebuilt)
	k.life.open()
	out.done(Report{Version: wire.Version, Ready: true, Opened: k.info.Opened, Notes: k.info.Notes, Rebuilt: rebuilt, Ends: k.info.Ends})
	k.keep(ctx)
	return nil
}

// heed turns signals into the end: of the opening, or of what is open.
func (k *keeper) heed(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			if !supervise.Asks(sig) {
				continue
			}
			k.log.Info("told to end", "signal", sig.String())
			k.life.stop(ending{text: "its keeper was ended by a signal (" + sig.String() + ")"})
			cancel(&jobs.Error{Kind: jobs.KindAgain, Msg: "the keeper of the environment was ended by a signal (" + sig.String() + ")"})
		}
	}
}

// on starts programs on this machine.
var on jobs.Starter = run.Local{}
