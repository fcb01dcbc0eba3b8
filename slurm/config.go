package slurm

import (
	"context"
	"os"
	"time"
)

// Config is what a site or a test may set. The zero value is good.
type Config struct {
	// Environ is the environment to derive that of the Slurm commands from,
	// as NAME=VALUE; nil is this process's own.
	Environ []string
	// SubmitTimeout bounds one sbatch. Zero is 180 s: sbatch itself waits up
	// to about 2 minutes while a queue is full (MaxJobCount) before it gives
	// up, and killing it before that makes the answer unclear.
	SubmitTimeout time.Duration
	// QueryTimeout bounds every other command. Zero is 60 s.
	QueryTimeout time.Duration
	// Login names the machine, as people write it, in whose login the commands
	// start; "" is here. It has an environment of its own, which is then the
	// one that is cleaned; Environ is not used.
	Login string
	// Shared returns a directory on this machine's own disk, closed to other users,
	// where the user's processes share what was asked. It is called before the
	// first question; nil shares nothing.
	Shared func() (string, error)
	// Poll is the least time between two questions for the queue that no user waits
	// for, of all processes that share what was asked. Zero is 15 s, which sites ask for.
	Poll time.Duration
	// Note is told the name of each program of Slurm's that is started, to be counted;
	// it may be nil.
	Note func(program string)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Sleep waits; nil is a timer.
	Sleep func(context.Context, time.Duration) error
}

func (c Config) withDefaults() Config {
	if c.Environ == nil {
		c.Environ = os.Environ()
	}
	if c.SubmitTimeout == 0 {
		c.SubmitTimeout = 180 * time.Second
	}
	if c.QueryTimeout == 0 {
		c.QueryTimeout = 60 * time.Second
	}
	if c.Poll == 0 {
		c.Poll = 15 * time.Second
	}
	if c.Note == nil {
		c.Note = func(string) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = pause
	}
	return c
}

// exitRefused is the exit code that sbatch is told to use for its own errors
// (SLURM_EXIT_ERROR in sbatch(1)), so that they are told from a wrapper's.
const exitRefused = 94

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
