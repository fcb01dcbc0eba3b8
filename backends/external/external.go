package external

import (
	"context"
	"os"
	"strings"
	"sync"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Backend is a backend that is a program. Its zero value, in the keeper, opens
// and removes environments of every one of them, by their records.
type Backend struct {
	Word string       // NAME
	On   jobs.Starter // starts the program
	// Owner names the state directory, at services that many have their
	// sandboxes at.
	Owner func() (string, error)
	// Home is the state directory; only its environments and snapshots are listed.
	Home string
	// Environ is whose variables the program gets, see [Environ]; nil is
	// [os.Environ].
	Environ func() []string
	// Builtin is the command line where no program is installed; nil is none.
	Builtin []string
	// Options are the configuration's, for requests that are about no environment;
	// nil is none. What is about one has its own.
	Options func() map[string]string

	times   times // zero are the protocol's
	mu      sync.Mutex
	program []string // that has answered checked
	checked *protocol.Checked
}

var _ jobs.Opener = (*Backend)(nil)

// Name returns NAME.
func (b *Backend) Name() string {
	if b.Word == "" {
		return jobs.BackendExternal
	}
	return b.Word
}

// Level is what the program says of its sandboxes, once it was checked: the
// guest looks at that when one is open. Before, nothing is known to contain.
func (b *Backend) Level() jobs.Level {
	if _, c := b.known(); c != nil {
		return jobs.Level(c.Level)
	}
	return jobs.LevelNone
}

// Check asks the program, unless it has given a good answer before.
func (b *Backend) Check(ctx context.Context) jobs.Checked {
	program, c, err := b.check(ctx)
	switch {
	case program == nil:
		return jobs.Checked{Health: jobs.Undetected, Reason: err.Error(), Hint: jobs.HintOf(err)}
	case err != nil:
		return jobs.Checked{Health: jobs.Unhealthy, Reason: strings.TrimPrefix(err.Error(), "the backend "+b.Word+": "), Hint: jobs.HintOf(err)}
	}
	reason := c.Service
	if reason == "" {
		reason = program[0]
	}
	if c.Region != "" {
		reason += ", " + c.Region
	}
	return jobs.Checked{Health: jobs.Healthy, Reason: reason, Version: c.Version}
}

// Installed is nil when the program is there, else what to say of that.
func (b *Backend) Installed() error {
	_, err := Find(b.Word, b.Builtin)
	return err
}

// Keys are the variables here that the program gets, see [Environ]: where it is
// started from another process they have to be carried there.
func (b *Backend) Keys() []string { return Environ(b.Word, b.environ()) }

// Checked is the whole of the program's answer to check.
func (b *Backend) Checked(ctx context.Context) (*protocol.Checked, error) {
	_, c, err := b.check(ctx)
	return c, err
}

// known is the program with its answer to check, or nil.
func (b *Backend) known() ([]string, *protocol.Checked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.program, b.checked
}

// check finds the program and has it answer check. Only a good answer is kept: a
// key may be set, and a service come back, while this process lives. Two at once
// ask twice: neither waits for a program that the other has given up on.
func (b *Backend) check(ctx context.Context) ([]string, *protocol.Checked, error) {
	if program, c := b.known(); c != nil {
		return program, c, nil
	}
	program, err := Find(b.Word, b.Builtin)
	if err != nil {
		return program, nil, err
	}
	var c protocol.Checked
	call := b.caller(program)
	if err = call.ask(ctx, protocol.Request{Verb: protocol.VerbCheck, Options: b.options()}, nil, &c); err == nil {
		err = call.checkChecked(&c)
	}
	if err != nil {
		return program, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.checked == nil {
		b.program, b.checked = program, &c
	}
	return b.program, b.checked, nil
}

// caller starts a program of this backend's.
func (b *Backend) caller(program []string) *caller {
	return &caller{name: b.Word, program: program, env: Environ(b.Word, b.environ()), on: b.On, times: b.patience()}
}

func (b *Backend) patience() times {
	if b.times.verbs != nil {
		return b.times
	}
	return defaultTimes()
}

func (b *Backend) options() map[string]string {
	if b.Options == nil {
		return nil
	}
	return b.Options()
}

func (b *Backend) environ() []string {
	if b.Environ != nil {
		return b.Environ()
	}
	return os.Environ()
}

// of is the caller for an environment, by its record: with the program that it
// was made with, or where that is no more, the one that is installed.
func (b *Backend) of(s *jobs.EnvSpec, on jobs.Starter) (*caller, error) {
	if s.External == nil || len(s.External.Program) == 0 {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record of the environment " + s.Name + " names no program for the backend " + s.Backend}
	}
	if on == nil {
		on = run.Local{}
	}
	program := s.External.Program
	if !runs(program[0]) {
		found, err := Find(s.Backend, b.Builtin)
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the program of the backend " + s.Backend + " is not there any more: " + program[0],
				Hint: "install it again; the environment " + s.Name + " stands at the service"}
		}
		program = found
	}
	if err := guarded(program[0]); err != nil {
		return nil, err
	}
	return &caller{name: s.Backend, program: program, env: Environ(s.Backend, b.environ()), on: on, times: b.patience()}, nil
}

// Argv shows how the guest of an attempt is reached. What stands behind the verb
// is made where the attempt begins.
func (b *Backend) Argv(_ jobs.Invocation, guestArgs []string) ([]string, error) {
	return append([]string{prefix + b.Word, protocol.VerbStream}, guestArgs...), nil
}
