package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"berth/engine"
	"berth/internal/sys/termsafe"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) logsCmd() *cobra.Command {
	var follow, done, runtime, onlyOut, onlyErr, raw bool
	c := &cobra.Command{
		Use: "logs ID", Short: "show the output of a job",
		Long: `Show what a job's command has written: its stdout on stdout, its stderr on stderr.
--done shows the output of the done commands; --runtime shows the messages of the
runner, of the container program and of the scheduler.

` + rawHelp + `
` + exitHelp + `0 ok, 2 an ambiguous id, 3 no such job or nothing written yet, 130
interrupted.`,
		Example: `  berth logs 0a1b2c3d
  berth logs -f 0a1b2c3d            # until it ends; ctrl-C leaves it running
  berth logs --runtime 0a1b2c3d     # when the container did not start`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth logs needs one job id", Hint: "berth ps --all lists the jobs"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case done && runtime:
				return usage("--done and --runtime show different logs: give one of them")
			case onlyOut && onlyErr:
				return usage("--stdout and --stderr: give one of them, or none for both")
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, err := find(e, args)
			if err != nil {
				return err
			}
			rec := recs[0]
			if !follow && rec.Spec.Login != nil && !jobs.StateOf(rec).Final() {
				views := e.Reconcile(cmd.Context(), recs)
				a.warn(views)
				rec = views[0].Record
			}
			files := []string{store.FileStdout, store.FileStderr}
			switch {
			case done:
				files = []string{store.FileDoneStdout, store.FileDoneStderr}
			case runtime:
				files = []string{store.FileRuntime, jobs.SchedulerLog}
			}
			logs := a.logFiles(raw, files...)
			if onlyOut {
				logs = logs[:1]
			} else if onlyErr {
				logs = logs[1:]
			}
			l := a.followFiles(rec.Current().Dir, logs)
			defer l.stop()
			if follow {
				reached := a.reached()
				_, err := e.Wait(cmd.Context(), rec.Spec.ID, func(v engine.View) {
					l.move(v.Current().Dir) // of the next attempt
					reached(v)
				})
				if err != nil {
					if interrupted(cmd.Context(), err) {
						return exitCode(jobs.CodeInterrupted)
					}
					return err
				}
			}
			l.drain()
			if !l.any() && !follow && !jobs.StateOf(rec).Final() {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + jobs.Short(rec.Spec.ID) + " has written nothing yet: it is " + string(jobs.StateOf(rec)),
					Hint: "berth logs -f " + jobs.Short(rec.Spec.ID)}
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "show new output until the job has ended")
	fl.BoolVar(&done, "done", false, "show the output of the done commands")
	fl.BoolVar(&runtime, "runtime", false, "show the messages of the runner, the container program and the scheduler")
	fl.BoolVar(&onlyOut, "stdout", false, "show only stdout")
	fl.BoolVar(&onlyErr, "stderr", false, "show only stderr")
	rawFlag(fl, &raw)
	return c
}

type logFile struct {
	name string
	to   io.Writer
}

// follower copies growing files by looking at them: nothing notifies of a
// change that another machine made on a shared file system.
type follower struct {
	dir    string
	files  []logFile
	offset []int64
	quit   chan struct{}
	once   sync.Once
	idle   chan struct{} // closed when the loop has left
	mu     sync.Mutex
	seen   bool
}

// rawHelp says what becomes of a task's words on a terminal.
const rawHelp = `On a terminal, colours are shown and other control sequences (titles, the clipboard,
cursor moves, clearing) are removed; --raw passes them on. A pipe gets everything.`

func rawFlag(fl *pflag.FlagSet, raw *bool) {
	fl.BoolVar(raw, "raw", false, "pass on all control sequences to the terminal")
}

// shown is where a task's words go: each of the two as itself, but a terminal,
// which they would drive.
func (a *app) shown(raw bool) (stdout, stderr io.Writer) {
	stdout, stderr = a.stdout, a.stderr
	if a.tty && !raw {
		stdout = termsafe.New(stdout)
	}
	if a.errTTY && !raw {
		stderr = termsafe.New(stderr)
	}
	return stdout, stderr
}

// logFiles are the files of the two streams, and where they go.
func (a *app) logFiles(raw bool, names ...string) []logFile {
	stdout, stderr := a.shown(raw)
	return []logFile{{names[0], stdout}, {names[1], stderr}}
}

func (a *app) follow(dir string, raw bool) *follower {
	return a.followFiles(dir, a.logFiles(raw, store.FileStdout, store.FileStderr))
}

func (a *app) followFiles(dir string, files []logFile) *follower {
	f := &follower{dir: dir, files: files, offset: make([]int64, len(files)), quit: make(chan struct{}), idle: make(chan struct{})}
	go f.loop()
	return f
}

func (f *follower) loop() {
	defer close(f.idle)
	const fast, slow = 100 * time.Millisecond, time.Second
	pause := fast
	for {
		if f.copy() {
			pause = fast
		} else {
			pause = min(pause*3/2, slow)
		}
		select {
		case <-f.quit:
			return
		case <-time.After(pause):
		}
	}
}

// move goes on with another directory, once all of the one before was passed on.
func (f *follower) move(dir string) {
	if dir == f.dir {
		return
	}
	f.copy()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset()
	f.dir, f.offset = dir, make([]int64, len(f.files))
}

// copy passes on what is new.
func (f *follower) copy() (any bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, lf := range f.files {
		n, err := copyFrom(filepath.Join(f.dir, lf.name), f.offset[i], lf.to)
		f.offset[i] += n
		if err == nil {
			f.seen = true
		}
		any = any || n > 0
	}
	return any
}

func copyFrom(path string, offset int64, to io.Writer) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.Copy(to, file)
	if errors.Is(err, fs.ErrClosed) {
		err = nil
	}
	return n, err
}

// stop ends the loop.
func (f *follower) stop() {
	f.once.Do(func() { close(f.quit) })
	<-f.idle
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reset()
}

// drain ends the loop and passes on the rest.
func (f *follower) drain() {
	f.stop()
	f.copy()
	f.stop()
}

// reset takes a task's colours off the terminal, which hide what berth says, or
// say something else.
func (f *follower) reset() {
	for _, lf := range f.files {
		unpaint(lf.to)
	}
}

func unpaint(w io.Writer) {
	if p, ok := w.(*termsafe.Writer); ok {
		_ = p.Reset()
	}
}

func (f *follower) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// secondInterrupt hears the next ctrl-C after the first has ended the context.
func secondInterrupt() (<-chan os.Signal, context.CancelFunc) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt)
	return ch, func() { signal.Stop(ch) }
}
