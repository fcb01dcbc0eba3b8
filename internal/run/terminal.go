package run

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"berth/jobs"
)

// OnTerminal runs a program to its end in this process's own process group, so
// that it may ask the person at the terminal for something, such as a
// password; a Ctrl-C there reaches both. Its input is empty: what asks for
// secrets opens /dev/tty. The receivers of c's outputs may be files. When ctx
// ends, the program is killed.
func OnTerminal(ctx context.Context, c jobs.Cmd) (jobs.Exit, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return jobs.Exit{}, errors.New("start a command: no program is named")
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdout, c.Stderr
	// What it leaves in the background may hold the outputs open for ever.
	cmd.WaitDelay = drainSilence
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if cmd.ProcessState == nil {
		return jobs.Exit{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	if ctx.Err() != nil {
		return jobs.Exit{}, fmt.Errorf("%s: %w", c.Argv[0], context.Cause(ctx))
	}
	return exitOf(cmd, err)
}
