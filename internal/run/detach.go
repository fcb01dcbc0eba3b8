package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Detached is a command that goes on when this process and its terminal end.
type Detached struct {
	// PID is its process id, which also leads its session and group.
	PID int
	// Done is closed when the command has ended while this process still
	// runs.
	Done <-chan struct{}
}

// Detach starts argv in a session of its own, so that no signal of this
// terminal reaches it (setsid(2)). Its input is empty and both its outputs are
// appended to the file log, made with mode 0600. An error means that nothing
// was started.
func Detach(argv, env []string, dir, log string) (*Detached, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("start a detached command: no program is named")
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of a detached command: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	done := make(chan struct{})
	go func() {
		// Without this a command that ends first stays as a zombie.
		_ = cmd.Wait()
		close(done)
	}()
	return &Detached{PID: cmd.Process.Pid, Done: done}, nil
}
