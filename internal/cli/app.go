package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/sys/failpoint"
	"berth/jobs"

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
	passing        atomic.Bool // [app.overwrite] has left a line
	columns        int         // of the terminal, where it is another machine's; 0 is to be looked up
	given          *farRequest // what another machine has this one run; nil is the usual
	raw            atomic.Bool // the terminal does not go back to the left by itself
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, tty: isTerminal(stdout), errTTY: isTerminal(stderr), now: failpoint.Now}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// engine opens the engine.
func (a *app) engine() (*engine.Engine, error) { return a.open(false) }

// planner is an engine that only plans and renders: it makes no directory.
func (a *app) planner() (*engine.Engine, error) { return a.open(true) }

// open follows the profile in verbs that read the configuration.
func (a *app) open(readOnly bool) (*engine.Engine, error) {
	p, err := a.profile()
	if err != nil {
		return nil, err
	}
	e, err := engine.Open(a.context(), engine.Options{
		ReadOnly: readOnly, Profile: p, Variables: a.keys, Settings: a.options, Credentials: a.credentials, Progress: a.progress, Meter: a.meter,
		Terminal: a.errTTY && isTerminal(a.stdin), Now: a.now,
	})
	if err == nil && a.given != nil {
		e.Getenv = a.given.getenv
	}
	return e, err
}

// context is the verb's.
func (a *app) context() context.Context {
	if a.verb == nil || a.verb.Context() == nil {
		return context.Background()
	}
	return a.verb.Context()
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
