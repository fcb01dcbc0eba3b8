package keeper

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"berth/internal/guest/wire"
	"berth/internal/lease"
	"berth/internal/run"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// Main is `berth-node keep --env DIR [--guest PATH]`: it opens the environment
// in DIR and keeps it until it was idle for its lifetime. Standard output takes
// the reports of its start and is then given up. openers are the backends that
// this program has.
func Main(args []string, openers []jobs.Opener, stdout *os.File, stderr io.Writer) int {
	return start(args, openers, stdout, stderr, defaultTimes())
}

func start(args []string, openers []jobs.Opener, stdout *os.File, stderr io.Writer, periods times) int {
	// SIGPIPE is caught because the client that waits for the reports may leave.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet("keep", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("env", "", "the environment's directory")
	guest := fs.String("guest", "", "the program to run inside; it is this one if not set")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node keep --env DIR [--guest PATH]")
		return jobs.CodeUsage
	}
	// It lives as long as the environment, beside what that does.
	debug.SetGCPercent(50)
	_, _ = unix.Setsid() // it may lead a session already
	// Orphans of the container come to this process, so that they can be found
	// and ended.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// On the bare host, commands are processes of the same user, and could read
	// the key of the conversation with the guest from here.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)

	k := &keeper{dir: filepath.Clean(*dir), times: periods, told: make(chan struct{}), gone: make(chan struct{}), clients: map[*client]bool{}, sessions: map[string]bool{}}
	out := &reporter{w: stdout}
	err := k.run(signals, openers, *guest, out)
	if err != nil {
		out.send(failed(err))
		return jobs.CodeOf(err)
	}
	return 0
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
		_ = rep.write(r.w, "")
	}
}

func (r *reporter) progress(text string) { r.send(Report{Version: wire.Version, Progress: text}) }

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
	k.spec = spec
	var opener jobs.Opener
	for _, o := range openers {
		if o.Name() == spec.Backend {
			opener = o
		}
	}
	if opener == nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth-node cannot keep environments of the backend " + spec.Backend, Hint: "use the berth-node of the berth that made it"}
	}
	if guest == "" {
		if guest, err = os.Executable(); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "find the program to run inside", Err: err}
		}
	}
	logFile, err := openLog(filepath.Join(k.dir, fileLog))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "open the environment's log", Err: err}
	}
	defer func() { _ = logFile.f.Close() }()
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
	out.done(Report{Version: wire.Version, Ready: true, Opened: k.info.Opened, Notes: k.info.Notes, Rebuilt: rebuilt})
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
			if sig != syscall.SIGTERM && sig != syscall.SIGINT {
				continue // it has no terminal; nobody hangs up
			}
			k.log.Info("told to end", "signal", sig.String())
			k.life.stop(ending{text: "its keeper was ended by a signal (" + sig.String() + ")"})
			cancel(&jobs.Error{Kind: jobs.KindAgain, Msg: "the keeper of the environment was ended by a signal (" + sig.String() + ")"})
		}
	}
}

// lookAgain is how often a keeper that came second looks what became of the
// first.
const lookAgain = 20 * time.Millisecond

// take takes the lease. stood is that another keeper has the environment open.
func (k *keeper) take(ctx context.Context, out *reporter) (stood bool, err error) {
	self := lease.Self()
	me := lease.Owner{Version: 1, Environment: k.spec.Name, Dir: k.dir, Host: self.Host, BootID: self.BootID, PID: self.PID, Start: self.Start, Time: time.Now().UTC()}
	gone := func(o lease.Owner) bool {
		who := o.Process()
		if who.Near(self) {
			return who.Gone(self)
		}
		if who.Gone(self) { // of an earlier boot
			return true
		}
		out.progress(fmt.Sprintf("process %d on %s had this environment open; waiting whether it still lives", o.PID, o.Host))
		return lease.Gone(ctx, o, self, lease.Patience{Look: k.times.beat / 10, Dead: k.times.silent, Silent: k.times.silent}, func(string) bool {
			held, err := lease.Holder(k.dir)
			return err == nil && held == nil
		})
	}
	told := false
	for {
		k.lease, err = lease.Acquire(k.dir, me, gone)
		var held *lease.HeldError
		if !errors.As(err, &held) {
			if err != nil {
				return false, &jobs.Error{Kind: jobs.KindOf(err), Msg: "take the environment " + k.spec.Name, Err: err, Hint: jobs.HintOf(err)}
			}
			return false, nil
		}
		who := held.Owner.Process()
		if !who.Near(self) {
			return false, &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("environment %s is open on %s (process %d) since %s", k.spec.Name, who.Host, who.PID, held.Owner.Time.Format(time.RFC3339)),
				Hint: "use it there, or stop it there: berth env stop " + k.spec.Name}
		}
		if i, err := Peek(k.dir); err == nil && i != nil && i.Phase == phaseReady && i.Process == who {
			if conn, err := dial(ctx, i.Socket); err == nil {
				_ = conn.Close()
				k.life.open()
	out.done(Report{Version: wire.Version, Ready: true, Opened: i.Opened})
				return true, nil
			}
		}
		if !told {
			told = true
			out.progress("another process is opening or ending it; waiting")
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// keep serves clients until something ends the environment, and closes it.
func (k *keeper) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { k.beat(ctx, func(n int) error { return store.Beat(k.dir, n, time.Now()) }) })
	all.Go(func() { k.watch(ctx) })
	all.Go(func() { k.life.run(ctx) })
	all.Go(k.acceptClients)
	<-k.life.done
	why := *k.life.reason()
	k.log.Info("ending", "why", why.text)
	// First nobody new: who has connected and was not yet served is told so.
	if !why.fenced {
		k.socket.remove()
	}
	for conn := k.socket.waiting(); conn != nil; conn = k.socket.waiting() {
		_, _ = conn.WriteString(greeting(false))
		_ = conn.Close()
	}
	_ = k.socket.f.Close()
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	for _, c := range k.everyone() {
		shutRead(c.conn)
	}
	k.endAll(why)
	cancel()
	all.Wait()
	k.closeBox()
	k.info.Phase, k.info.Ended, k.info.Why, k.info.Inside = phaseEnded, time.Now().UTC(), why.text, nil
	if !why.fenced {
		k.saveInfo()
	}
}

// endAll ends what runs, and lets all clients know how.
func (k *keeper) endAll(why ending) {
	if !why.broken {
		ctx, cancel := context.WithTimeout(context.Background(), k.times.grace+10*time.Second)
		if left, err := k.box.Session().End(ctx, k.times.grace); err != nil || left > 0 {
			k.log.Warn("not all could be ended", "left", left, "err", err)
		}
		cancel()
	}
	// What the guest has told is on its way; what it has not told by now,
	// nobody will.
	late, cancel := context.WithTimeout(context.Background(), k.times.flush)
	defer cancel()
	for _, c := range k.everyone() {
		for _, s := range c.all() {
			if _, ok := s.(*relay); ok && !why.broken {
				select {
				case <-s.wait():
				case <-late.Done():
				}
			}
			s.lose(why.text)
		}
	}
	if why.broken || !k.bg.settle(late) {
		_ = k.box.Session().Close() // now nobody will tell how they ended
		k.bg.settle(context.Background())
	}
	for _, c := range k.everyone() {
		for _, s := range c.all() {
			if r, ok := s.(*request); ok && r.req.Op != wire.KeepStop {
				select {
				case <-s.wait():
				case <-late.Done():
				}
			}
		}
	}
	close(k.told)
}

func (k *keeper) saveInfo() {
	if err := k.info.save(k.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("keeper.json could not be written", "err", err)
	}
}

// closeBox makes sure that nothing of the container is left, and gives back
// what it was made of.
func (k *keeper) closeBox() {
	if k.box != nil {
		k.box.Close()
	}
	if k.opening != nil && k.opening.Close != nil {
		if err := k.opening.Close(); err != nil {
			k.log.Warn("what the environment was made of could not be given back", "err", err)
		}
	}
	if k.scratch != nil {
		if err := k.scratch.Remove(); err != nil {
			k.log.Warn("the scratch directory could not be removed", "err", err)
		}
	}
}

// on starts programs on this machine.
var on jobs.Starter = run.Local{}
