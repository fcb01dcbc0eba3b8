package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// Background is a process that goes on when its client has left.
type Background = jobs.Background

// EnvState is what the keeper of a running environment says of it.
type EnvState struct {
	Host     string        `json:"host"`
	PID      int           `json:"pid"`
	Opened   time.Time     `json:"opened"`
	Guest    GuestState    `json:"guest"`
	Running  int           `json:"running"`  // commands
	BG       int           `json:"bg"`       // background processes
	Sessions []string      `json:"sessions"` // with a shell
	Idle     time.Duration `json:"idle_ns"`  // since the last of anything ended; 0 while something runs
	Lifetime time.Duration `json:"lifetime_ns"`
	MaxRSS   jobs.Bytes    `json:"memory_bytes,omitempty"` // used now
	Notes    []string      `json:"notes,omitempty"`
	// NoRelay is since when what commands connect to waits for a relay; zero is not at all.
	NoRelay time.Time `json:"no_relay_since,omitzero"`
	// Usage is what commands have asked models for, with credentials; nil is nothing. It
	// counts from when the environment was made, or stopped by [Environment.Stop].
	Usage *jobs.Usage `json:"usage,omitempty"`
}

// GuestState is what the process inside of an environment says of it.
type GuestState struct {
	Version         int        `json:"version"`
	PID             int        `json:"pid,omitempty"`
	OwnPIDNamespace bool       `json:"own_pid_namespace,omitempty"` // said and verified
	UID             int        `json:"uid"`
	Kernel          string     `json:"kernel,omitempty"`
	Home            string     `json:"home,omitempty"`
	Path            string     `json:"path,omitempty"` // the variable PATH
	Shell           string     `json:"shell,omitempty"`
	Seen            *jobs.Seen `json:"seen,omitempty"`
}

// Start begins a background process from a copy of the session's state. Its
// output goes to a log of its own, and its standard input stays open. Here a
// Timeout of 0 is never.
func (s *Session) Start(ctx context.Context, req ExecRequest) (Background, error) {
	if len(req.Command.Shell) >= jobs.MaxArgument { // it is recorded, and listed
		return Background{}, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("the command of a background process has at most %d bytes", jobs.MaxArgument-1),
			Hint: "put it into a file there, and run that"}
	}
	m := wire.StartMessage{
		Shell: wire.Text(req.Command.Shell), Argv: wire.Texts(req.Command.Argv), Env: wire.Texts(s.env.variables(req.Env)), Dir: wire.Text(req.Dir),
		Session: s.name, Fork: true, Timeout: max(0, req.Timeout), Grace: endGrace,
	}
	return s.env.one(ctx, wire.KeepRequest{Op: wire.KeepBGStart, Start: &m}, nil)
}

// one asks for an operation that answers with one background process.
func (v *Environment) one(ctx context.Context, req wire.KeepRequest, stdin io.Reader) (Background, error) {
	a, err := v.keep(ctx, false, req, stdin, nil)
	if err != nil {
		return Background{}, err
	}
	return first(a.BG), nil
}

func first(list []Background) Background {
	if len(list) == 0 {
		return Background{}
	}
	return list[0]
}

// Backgrounds lists the background processes, those that have ended too. Nothing
// is started where their records can be read from here.
func (v *Environment) Backgrounds(ctx context.Context) ([]Background, error) {
	start, err := v.recordsAway()
	if err != nil {
		return nil, err
	}
	a, err := v.keep(ctx, !start, wire.KeepRequest{Op: wire.KeepBGList}, nil, nil)
	if errors.Is(err, ErrNotRunning) {
		return v.onDisk(func() ([]Background, error) { return keeper.Backgrounds(v.dir) })
	}
	if err != nil {
		return nil, err
	}
	return a.BG, nil
}

// recordsAway tells whether the records of background processes are on a machine
// where only a keeper reads them: for them it is started, but for no allocation.
func (v *Environment) recordsAway() (bool, error) {
	b, err := v.e.backend(v.Spec.Backend)
	if err != nil {
		return false, err
	}
	_, away := b.(dialer)
	return v.Spec.Scheduler == "" && (away || v.oneShot()), nil
}

// onDisk reads what a keeper has left that does not run any more.
func (v *Environment) onDisk(read func() ([]Background, error)) ([]Background, error) {
	if v.Spec.Login != nil {
		return nil, &jobs.Error{Kind: jobs.KindAgain,
			Msg:  "the environment " + v.Spec.Name + " has no allocation now, and its records are on " + v.Spec.Login.Host,
			Hint: "the next command gets one: berth exec --env " + v.Spec.Name + " -- true"}
	}
	return read()
}

// Log writes the log of a background process to w, from the byte offset on,
// which counts from the end when it is negative; with follow it goes on until
// the process has ended.
func (v *Environment) Log(ctx context.Context, id string, offset int64, follow bool, w io.Writer) (Background, error) {
	start, err := v.recordsAway()
	if err != nil {
		return Background{}, err
	}
	a, err := v.keep(ctx, !start, wire.KeepRequest{Op: wire.KeepBGLog, ID: id, Offset: offset, Follow: follow}, nil, w)
	if errors.Is(err, ErrNotRunning) {
		list, err := v.onDisk(func() ([]Background, error) {
			b, err := keeper.BackgroundLog(ctx, v.dir, id, offset, w)
			return []Background{b}, err
		})
		return first(list), err
	}
	if err != nil {
		return Background{}, err
	}
	return first(a.BG), nil
}

// Wait waits for the end of a background process.
func (v *Environment) Wait(ctx context.Context, id string) (Background, error) {
	return v.one(ctx, wire.KeepRequest{Op: wire.KeepBGWait, ID: id}, nil)
}

// Write gives a background process something to read; with end that was all.
func (v *Environment) Write(ctx context.Context, id string, r io.Reader, end bool) (Background, error) {
	return v.one(ctx, wire.KeepRequest{Op: wire.KeepBGWrite, ID: id, Close: end}, r)
}

// Kill ends a background process and all that it has started: TERM, and KILL
// after grace. With a signal, only that is sent, to its process group.
func (v *Environment) Kill(ctx context.Context, id string, signal int, grace time.Duration) (Background, error) {
	return v.one(ctx, wire.KeepRequest{Op: wire.KeepBGKill, ID: id, Signal: signal, Grace: grace}, nil)
}

// State asks the keeper; without one the error is [ErrNotRunning].
func (v *Environment) State(ctx context.Context) (*EnvState, error) {
	a, err := v.keep(ctx, true, wire.KeepRequest{Op: wire.KeepStatus}, nil, nil)
	if err != nil {
		return nil, err
	}
	st, g := a.State, a.State.Guest
	return &EnvState{
		Host: st.Host, PID: st.PID, Opened: st.Opened, Running: st.Running, BG: st.BG, Sessions: st.Sessions,
		Idle: st.Idle, Lifetime: st.Lifetime, MaxRSS: st.MaxRSS, Notes: st.Notes, NoRelay: st.NoRelay, Usage: st.Usage,
		Guest: GuestState{
			Version: g.Version, PID: g.PID, OwnPIDNamespace: g.OwnPIDNamespace, UID: g.UID, Kernel: g.Kernel,
			Home: string(g.Home), Path: string(g.Path), Shell: g.Shell, Seen: g.Seen,
		},
	}, nil
}
