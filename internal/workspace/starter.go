package workspace

import (
	"context"

	"berth/jobs"
)

// New drives git through a starter.
func New(on jobs.Starter) *Git {
	return &Git{Run: func(ctx context.Context, c Cmd) error {
		p, err := on.Start(ctx, jobs.Cmd{Argv: c.Args, Dir: c.Dir, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr})
		if err != nil {
			return err
		}
		exit, err := p.Wait()
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err == nil && exit.Code != 0 {
			err = failed{exit}
		}
		return err
	}}
}

// failed is a git command that ended with something else than 0.
type failed struct{ exit jobs.Exit }

func (f failed) Error() string { return f.exit.String() }

// ExitCode is what [Git.Run] asks for.
func (f failed) ExitCode() int { return f.exit.Code }
