package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/backends/all"
	"berth/backends/daytona"
	"berth/backends/external"
	"berth/engine"
	"berth/internal/config"
	"berth/internal/node/nodebin"
	"berth/internal/sys/failpoint"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
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
	lines          bool           // json: each object is one line
	object         map[string]any // that is printed at the end, with json
	args           []string       // of the command line
	running        bool           // a verb has begun: the command line was understood
	failCode       int            // of the verb's own failures; 0 follows from the error
	now            func() time.Time
	verb           *cobra.Command // that has begun
	noHelp         error          // help was asked for a command that does not exist
	cfg            *config.Config // see [app.config]
	unasked        sync.Once      // see [app.configured]
	read           *config.Config
	raw            atomic.Bool // the terminal does not go back to the left by itself
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, tty: isTerminal(stdout), errTTY: isTerminal(stderr), now: failpoint.Now}
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

// profileDirs is where profiles are looked up by name: the user's own
// directory, those of $BERTH_PROFILE_PATH, which a group shares, the machine's.
func profileDirs() []string {
	var dirs []string
	if own := ownProfileDir(); own != "" {
		dirs = append(dirs, own)
	}
	for _, d := range filepath.SplitList(os.Getenv("BERTH_PROFILE_PATH")) {
		if filepath.IsAbs(d) { // nothing from where we happen to be
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	return append(dirs, "/etc/berth/profiles")
}

// ownProfileDir is where the user's own profiles stand, or "".
func ownProfileDir() string {
	dir, err := configDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "profiles")
}

// engine assembles the parts.
func (a *app) engine() (*engine.Engine, error) {
	h, err := home()
	if err != nil {
		return nil, err
	}
	st, err := store.Open(h)
	if err != nil {
		return nil, err
	}
	return a.assemble(st)
}

// planner is an engine that only plans and renders: it makes no directory.
func (a *app) planner(home string) (*engine.Engine, error) {
	st, err := store.At(home)
	if err != nil {
		return nil, err
	}
	return a.assemble(st)
}

func (a *app) assemble(st *store.Store) (*engine.Engine, error) {
	on := run.Local{}
	cache, err := a.images(st.Home(), on)
	if err != nil {
		return nil, err
	}
	node := func() (string, error) { return nodebin.Install(st.Bin()) }
	program := all.Program(on, st.Home(), st.Owner, a.keys, a.options)
	program(daytona.Name).Builtin = daytona.Program()
	return &engine.Engine{
		Store:      st,
		Schedulers: all.Schedulers(on, st.Queue()),
		Backends:   all.Backends(on),
		Program: func(name string) engine.Program {
			if b := program(name); b != nil {
				return b
			}
			return nil
		},
		Programs:  programs,
		Git:       workspace.New(on),
		Sites:     a.sites(on),
		Images:    cache,
		Templates: templatesDir(),
		Node:      node,
		Aside: func(log string, words ...string) error {
			program, err := node()
			if err != nil {
				return err
			}
			_, err = run.Detach(append([]string{program}, words...), append(os.Environ(), "BERTH_HOME="+st.Home()), "/", log)
			return err
		},
		Getenv:   os.LookupEnv,
		Now:      a.now,
		Terminal: a.errTTY && isTerminal(a.stdin),
		Sleep:    engine.Sleep,
	}, nil
}

// programs are the backends that are programs: those that are installed, and
// Daytona, which this program has in it. Without a key that says so by itself.
func programs() []string {
	names := external.Names()
	if !slices.Contains(names, daytona.Name) {
		names = append(names, daytona.Name)
		slices.Sort(names)
	}
	return names
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

// eachOf does something for each of the words, once, whatever becomes of the others.
func eachOf(ctx context.Context, words []string, do func(word string) error) error {
	var errs []error
	done := map[string]bool{}
	for _, w := range words {
		if done[w] {
			continue
		}
		done[w] = true
		err := do(w)
		if ctx.Err() != nil {
			return errors.Join(append(errs, err, ctx.Err())...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findEach is find for verbs that do what they can: the error is of those that were
// not found.
func findEach(ctx context.Context, e *engine.Engine, words []string) (recs []*jobs.Record, err error) {
	err = eachOf(ctx, words, func(w string) error {
		r, err := find(e, []string{w})
		recs = append(recs, r...)
		return err
	})
	return recs, err
}

// warn tells a person about what could not be asked or read, once each.
func (a *app) warn(views []engine.View) {
	said := map[string]bool{}
	for _, v := range views {
		if v.AskError != nil && !said[v.AskError.Error()] {
			said[v.AskError.Error()] = true
			a.say("warning: the scheduler %s could not be asked: %v; showing the last known state", schedulerName(v.Spec), v.AskError)
			if h := jobs.HintOf(v.AskError); h != "" && v.Spec.Login != nil {
				a.say("hint: %s", h)
			}
		}
	}
}

// interrupted tells whether the context ended by a signal.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled))
}
