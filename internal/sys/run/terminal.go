package run

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"

	"berth/jobs"
)

type unattended struct{}

// Unattended marks what the person at the terminal is not asked for: others are asked at the
// same time, and a person answers one after the other.
func Unattended(ctx context.Context) context.Context {
	return context.WithValue(ctx, unattended{}, true)
}

// IsUnattended reports whether a context is so marked.
func IsUnattended(ctx context.Context) bool { return ctx.Value(unattended{}) != nil }

// OnTerminal runs a program to its end in this process's own process group, so
// that it may ask the person at the terminal for something, such as a
// password; a Ctrl-C there reaches both. What asks for secrets, and a pager for
// keys, opens /dev/tty. The receivers of c's outputs may be files. When ctx
// ends, the program is killed.
func OnTerminal(ctx context.Context, c jobs.Cmd) (jobs.Exit, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return jobs.Exit{}, errors.New("start a command: no program is named")
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.Dir, c.Env, c.Stdin
	// What it leaves in the background may hold the outputs open for ever.
	var o outputs
	err := o.connect(cmd, c.Stdout, c.Stderr)
	var copying sync.WaitGroup
	for _, f := range o.copies {
		copying.Go(f)
	}
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range o.childEnds {
		_ = f.Close()
	}
	if err == nil {
		err = cmd.Wait()
	}
	for _, d := range o.drains {
		d.Ended()
	}
	copying.Wait()
	if ctx.Err() != nil { // also before it began
		return jobs.Exit{}, fmt.Errorf("%s: %w", c.Argv[0], context.Cause(ctx))
	}
	if cmd.ProcessState == nil {
		return jobs.Exit{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	return exitOf(cmd, err)
}
