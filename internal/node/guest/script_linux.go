package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// inEnvironment has the image's variables set by its own scripts, which the
// container program did not see, and then runs the shell as it was called.
const inEnvironment = `for berth_env in ` + jobs.BuildEnv + `/*.sh; do if [ -f "$berth_env" ]; then . "$berth_env"; fi; done; ` +
	`unset berth_env; exec ` + jobs.BuildShell + ` "$@"`

// IsScript tells whether this program was called as the shell of a build.
func IsScript(argv []string) bool { return len(argv) > 0 && argv[0] == jobs.BuildShell }

// ScriptMain is the shell of a build's scripts. The container program gives them
// every capability in the user namespace that owns the mounts, with which they
// could unmount what hides the host's files. So it calls this program in place of
// the image's shell: it uncovers that, and runs it confined as commands of tasks
// are. Whatever a script leaves running ends with it: the container program has
// yet to mount things over that tree.
func ScriptMain(args []string, stderr io.Writer) int {
	code, err := script(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: contain a script of the build: %v\n", err)
		return codeBroken
	}
	return code
}

func script(args []string) (code int, err error) {
	noCore()
	for _, err := range []error{unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)} {
		if err != nil {
			return 0, err
		}
	}
	for _, covered := range []string{jobs.BuildShell, jobs.BuildEnv} {
		if err := unix.Unmount(covered, unix.MNT_DETACH); err != nil {
			return 0, fmt.Errorf("uncover %s: %w", covered, err)
		}
	}
	conf, _, err := confine(^uint64(0), where{})
	if err != nil {
		return 0, err
	}
	argv := append([]string{"-c", inEnvironment, jobs.BuildShell}, args...)
	cmd := exec.Command(jobs.BuildShell, argv...) //nolint:forbidigo // from the confined thread, and with an end that is the shell's
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if _, err = conf.start(func() (int, error) { return 0, cmd.Start() }); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	endLeft()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return failed.ExitCode(), nil
	}
	return 0, err
}

// endLeft ends all that descends from this process, and returns when nothing is
// left: orphans become its children, and are killed in their turn.
func endLeft() {
	for {
		for _, p := range processes() {
			if p.ppid == os.Getpid() {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // ECHILD: there is none
		}
	}
}
