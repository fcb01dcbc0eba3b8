package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"berth/jobs"
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
	return detach(argv, env, dir, log, nil, nil)
}

// DetachTalking is [Detach] with the standard output in a pipe, whose other end
// is returned. The command must survive that the pipe has no reader any more.
func DetachTalking(argv, env []string, dir, log string) (*Detached, *os.File, error) {
	return DetachFed(argv, env, dir, log, nil)
}

// DetachFed is [DetachTalking] with a standard input that holds these bytes.
func DetachFed(argv, env []string, dir, log string, input []byte) (*Detached, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer w.Close()
	var stdin *os.File
	if input != nil {
		fed, feed, err := os.Pipe()
		if err != nil {
			_ = r.Close()
			return nil, nil, fmt.Errorf("start %s: %w", argv[0], err)
		}
		defer fed.Close()
		go func() {
			_, _ = feed.Write(input) // ends when the command takes it, or does not begin
			_ = feed.Close()
		}()
		stdin = fed
	}
	d, err := detach(argv, env, dir, log, stdin, w)
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	return d, r, nil
}

func detach(argv, env []string, dir, log string, stdin, stdout *os.File) (*Detached, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("start a detached command: no program is named")
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of a detached command: %w", err)
	}
	defer out.Close()
	if stdout == nil {
		stdout = out
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, stdout, out
	if stdin != nil {
		cmd.Stdin = stdin
	}
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

// Scope is the prefix of a command line that moves a process out of the login
// session into a scope of the user's systemd, which survives
// KillUserProcesses=yes (logind.conf(5)). It is empty unless the user lingers:
// without that, it is the user's systemd that ends with the last session, and
// its scopes with it.
func Scope(user string, env []string) []string {
	if user == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/var/lib/systemd/linger", filepath.Base(user))); err != nil {
		return nil
	}
	program, err := exec.LookPath("systemd-run")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	prefix := []string{program, "--user", "--scope", "--quiet", "--collect", "--"}
	if _, err := Output(ctx, Local{}, jobs.Cmd{Argv: append(prefix, "true"), Env: env}); err != nil {
		return nil
	}
	return prefix
}
