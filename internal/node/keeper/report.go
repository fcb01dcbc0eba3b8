package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"berth/internal/link/wire"
	"berth/jobs"
)

// Report is a line of what a keeper says of its start, or a joined session of its
// own: any number with Progress or Meter, and one with Ready or Error, which is the last.
type Report struct {
	Version  int       `json:"version"` // of the protocol that the keeper speaks
	Progress string    `json:"progress,omitempty"`
	Meter    *Meter    `json:"meter,omitempty"`
	Ready    bool      `json:"ready,omitempty"`
	Opened   time.Time `json:"opened,omitzero"` // when the environment was; it tells one start from another
	Ends     time.Time `json:"ends,omitzero"`   // when the time of the keeper's allocation is up; zero is never
	Notes    []string  `json:"notes,omitempty"` // choices made and limits dropped, of a fresh start
	// Rebuilt says why sessions start from the beginning, or files were lost: the
	// environment had been open before, and was started again.
	Rebuilt string `json:"rebuilt,omitempty"`
	// Inside is, of a session that joins a job, how the job's place is entered.
	Inside *jobs.Inside `json:"inside,omitempty"`
	Error  string       `json:"error,omitempty"`
	Kind   jobs.Kind    `json:"kind,omitempty"`
	Hint   string       `json:"hint,omitempty"`
	// NotRunning is [ErrNotRunning].
	NotRunning bool `json:"not_running,omitempty"`
}

// Meter is how many bytes of something long are done, see [jobs.OpenPlace]. Only the process
// that has started the keeper is told of it.
type Meter struct {
	What string `json:"what"`
	Done int64  `json:"done"`
	Of   int64  `json:"of,omitempty"`
}

// Failed is the report of an error.
func Failed(err error) Report {
	return Report{Version: wire.Version, Error: err.Error(), Kind: jobs.KindOf(err), Hint: jobs.HintOf(err), NotRunning: errors.Is(err, ErrNotRunning)}
}

// ReadReport reads a line that a report may be in, after prefix; ok reports whether
// one is. last is the one that ends the opening; progress, which may be nil, takes what
// the others say.
func ReadReport(line, prefix string, progress func(string)) (last *Report, ok bool) {
	text, ok := strings.CutPrefix(line, prefix)
	var r Report
	switch {
	case !ok || json.Unmarshal([]byte(text), &r) != nil:
		return nil, false
	case r.Ready || r.Err() != nil:
		return &r, true
	case r.Progress != "" && progress != nil:
		progress(jobs.Printable(r.Progress))
	}
	return nil, true
}

// Err is the error that a report brings, or nil.
func (r Report) Err() error {
	switch {
	case r.NotRunning:
		return ErrNotRunning
	case r.Error == "":
		return nil
	}
	return &jobs.Error{Kind: r.Kind, Msg: r.Error, Hint: r.Hint}
}

// Write sends a report as one line, after prefix.
func (r Report) Write(w io.Writer, prefix string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(append([]byte(prefix), b...), '\n'))
	return err
}

// ErrNotRunning says that an environment has no keeper at the moment, and that
// none was to be started.
var ErrNotRunning = errors.New("the environment does not run")

// OpenOptions say how to reach an environment's keeper.
type OpenOptions struct {
	Node     string       // the program to start: berth-node, or berth itself
	Progress func(string) // tells a person what takes long; may be nil
	// Meter is told how far that is, see [jobs.OpenPlace]; without one Progress has it, in lines.
	Meter   func(what string, done, of int64)
	NoStart bool // without a keeper the error is [ErrNotRunning]
	// ID is that of the environment which is meant: another one that was made
	// in its place meanwhile is an error. "" is any.
	ID string
	// Wait bounds the time until the environment is open; 0 is 30 minutes,
	// because an image may have to be fetched first.
	Wait time.Duration
	// Env is the environment of a keeper that is started; nil is a selection
	// of this process's, without tokens. Commands never see it.
	Env []string
	// Stays says that a keeper that is started belongs to the job in which this
	// process runs, and stays among its processes.
	Stays bool
	// Keys are further variables of it, for the program of the backend alone.
	Keys []string
	// Input returns what one that is started reads on its standard input: the keys of the
	// environment's credentials, NAME=VALUE, each with a NUL behind it. nil is nothing. One
	// in an allocation reads none: there it is asked before the allocation is, and what it
	// returns handed over when the environment is open.
	Input func(context.Context) ([]byte, error)
}
