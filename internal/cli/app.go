package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/backends/all"
	"berth/engine"
	"berth/internal/nodebin"
	"berth/internal/queue"
	"berth/internal/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/slurm"
	"berth/templates"

	"golang.org/x/term"
)

// schemaVersion is the version of every --json output.
const schemaVersion = 1

// app is what the verbs share: the streams and the assembled parts.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	tty, errTTY    bool // stdout, stderr is a terminal
	json           bool
	running        bool // a verb has begun: the command line was understood
	failCode       int  // of the verb's own failures; 0 follows from the error
	now            func() time.Time
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, tty: isTerminal(stdout), errTTY: isTerminal(stderr), now: time.Now}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// home is the state directory: $BERTH_HOME, else $XDG_STATE_HOME/berth.
func home() (string, error) {
	if h := os.Getenv("BERTH_HOME"); h != "" {
		return h, nil
	}
	if h := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, "berth"), nil
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the state", Err: err, Hint: "set HOME or BERTH_HOME"}
	}
	return filepath.Join(h, ".local", "state", "berth"), nil
}

// profileDirs is where profiles are looked up by name.
func profileDirs() []string {
	if c := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(c) {
		return []string{filepath.Join(c, "berth", "profiles")}
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	return []string{filepath.Join(h, ".config", "berth", "profiles")}
}

// engine assembles the parts. This is the one place where schedulers are
// registered.
func (a *app) engine() (*engine.Engine, error) {
	h, err := home()
	if err != nil {
		return nil, err
	}
	st, err := store.Open(h)
	if err != nil {
		return nil, err
	}
	return a.assemble(st), nil
}

// planner is an engine that only plans and renders: it makes no directory.
func (a *app) planner(home string) (*engine.Engine, error) {
	st, err := store.At(home)
	if err != nil {
		return nil, err
	}
	return a.assemble(st), nil
}

func (a *app) assemble(st *store.Store) *engine.Engine {
	on := run.Local{}
	node := func() (string, error) { return nodebin.Install(st.Bin()) }
	return &engine.Engine{
		Store:      st,
		Schedulers: []jobs.Scheduler{slurm.New(on, slurm.Config{}), queue.New(queue.Config{Dir: st.Queue(), Script: templates.WithRemark})},
		Backends:   all.Backends(on),
		Git:        workspace.New(on),
		Node:       node,
		Getenv:     os.LookupEnv,
		Now:        a.now,
		Terminal:   a.errTTY && isTerminal(a.stdin),
		Sleep:      engine.Sleep,
	}
}

// find loads the jobs that the words name.
func find(e *engine.Engine, words []string) ([]*jobs.Record, error) {
	recs := make([]*jobs.Record, 0, len(words))
	for _, w := range words {
		// A variable of a script that is not set must not name the only job.
		if strings.TrimSpace(w) == "" {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a job id is empty", Hint: "berth ps --all lists the jobs"}
		}
		r, err := e.Store.Find(w)
		if err != nil {
			return nil, err
		}
		recs = append(recs, r)
	}
	return recs, nil
}

// warn tells a person about what could not be asked or read, once each.
func (a *app) warn(views []engine.View) {
	said := map[string]bool{}
	for _, v := range views {
		if v.AskError != nil && !said[v.AskError.Error()] {
			said[v.AskError.Error()] = true
			a.say("warning: the scheduler %s could not be asked: %v; showing the last known state", v.Spec.Scheduler, v.AskError)
		}
	}
}

// interrupted tells whether the context ended by a signal.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled))
}
