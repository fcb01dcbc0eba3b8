package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// A part of the container's file system that ends while the command runs makes
// its success worthless. With the container, or with an order to end it, it
// ends as well, and then it is not the reason.
func TestLostFuse(t *testing.T) {
	for _, c := range []struct {
		name, command string
		how           func(j *job)
		code          int
		reason        string
	}{
		{"alone", "echo ready; sleep 60", func(j *job) { j.signalHelper(syscall.SIGKILL) }, 5, "the container's file system died (fuse-overlayfs ended)"},
		{"just before the end", "echo ready; until [ -e $HOME/go ]; do sleep 0.02; done", func(j *job) {
			pid := j.signalHelper(syscall.SIGKILL)
			eventually(j.t, "it has ended", func() bool { return lease.StartTime(pid) == "" })
			if err := os.WriteFile(filepath.Join(j.tmp, "go"), nil, 0o600); err != nil {
				j.t.Fatal(err)
			}
		}, 5, "the container's file system died"},
		{"and the guest after a command that failed", "echo ready; until [ -e $HOME/go ]; do sleep 0.02; done; touch $HOME/told; exit 1", func(j *job) {
			pid := j.signalHelper(syscall.SIGKILL)
			eventually(j.t, "it has ended", func() bool { return lease.StartTime(pid) == "" })
			if err := os.WriteFile(filepath.Join(j.tmp, "go"), nil, 0o600); err != nil {
				j.t.Fatal(err)
			}
			eventually(j.t, "the command ends", func() bool {
				_, err := os.Stat(filepath.Join(j.tmp, "told"))
				return err == nil
			})
			time.Sleep(200 * time.Millisecond)
			j.killGuest()
		}, 5, "the container's file system died (fuse-overlayfs ended)"},
		{"with the guest", "echo ready; sleep 60", func(j *job) { j.killGuest(); j.signalHelper(syscall.SIGKILL) }, 5, "the container ended before its command did"},
		{"by a scheduler's TERM to all", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done", func(j *job) {
			j.signal(syscall.SIGTERM) // first: a command that ends well before the runner knows has ended well
			eventually(j.t, "it is known", func() bool { return strings.Contains(j.read(store.FileEvents), `"stopping"`) })
			j.termCommands()
		}, 130, "ended from outside"},
		{"by a cancel", "echo ready; sleep 60", func(j *job) { j.cancel(); j.signalHelper(syscall.SIGTERM); j.signal(syscall.SIGTERM) }, 130, "cancelled"},
		{"not at all", "echo ready", func(*job) {}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			j := newJob(t, c.command, nil)
			helper := filepath.Join(t.TempDir(), "fuse-overlayfs")
			if err := os.Symlink(self, helper); err != nil {
				t.Fatal(err)
			}
			j.argv = []string{"sh", "-c", `"$1" sleep & until grep -qx fuse-overlayfs /proc/$!/comm; do sleep 0.02; done; exec "$0" guest`, self, helper}
			j.start()
			j.says("ready")
			c.how(j)
			if code, rec := j.wait(); code != c.code || !strings.Contains(rec.Reason, c.reason) || (c.code == 5) != (rec.State == jobs.StateError) {
				t.Errorf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
			}
		})
	}
}

// A container program that is killed while a driver is tried leaves its helpers
// to the runner, which ends them; and the attempt may be tried again.
func TestProbeKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := layered(t, "echo never", nil)
	bin, _, _ := strings.Cut(strings.TrimPrefix(j.env[0], "PATH="), ":")
	helper, begun := filepath.Join(bin, "fuse-overlayfs"), filepath.Join(bin, "begun")
	program := "#!/bin/sh\n[ \"$1\" != --version ] || exit 0\n" + helper + " sleep & until grep -qx fuse-overlayfs /proc/$!/comm; do sleep 0.02; done; echo $! >" + begun + "; kill -9 $$\n"
	if err := errors.Join(os.Symlink(self, helper), writeProgram(filepath.Join(bin, "apptainer"), program)); err != nil {
		t.Fatal(err)
	}
	code, rec := j.run()
	if code != jobs.CodeInfra || rec.State != jobs.StateError || rec.Class != jobs.ClassInfra || !strings.Contains(rec.Reason, "could not be tried") {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if _, err := os.Stat(begun); err != nil {
		t.Fatal("there was no helper")
	}
	j.noHelper()
}

// A file system that dies before its server was known is told by what the
// kernel says of the command, and is not the task's own failure.
func TestFileSystemGone(t *testing.T) {
	for _, c := range []struct {
		exit jobs.Exit
		gone bool
	}{
		{jobs.Exit{Code: 126, Error: "/bin/sh: transport endpoint is not connected"}, true},
		{jobs.Exit{Code: 126, Error: "/bin/sh: input/output error"}, true},
		{jobs.Exit{Code: 126, Error: "/bin/sh: " + syscall.ESTALE.Error()}, true},
		{jobs.Exit{Code: 127, Error: "/bin/sh: no such file or directory"}, false},
		{jobs.Exit{Code: 126, Error: "/srv/transport endpoint is not connected: permission denied"}, false},
		{jobs.Exit{Started: true, Code: 126, Error: "/bin/sh: transport endpoint is not connected"}, false},
	} {
		if got := fileSystemGone(c.exit); got != c.gone {
			t.Errorf("%+v: %v", c.exit, got)
		}
	}
}

// noHelper fails the test when a helper is still there.
func (j *job) noHelper() {
	j.t.Helper()
	for pid, line := range j.processes() {
		if strings.HasSuffix(line, "fuse-overlayfs sleep ") {
			j.t.Errorf("process %d is left: %s", pid, line)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// signalHelper signals the container's helper alone, and returns its process id.
func (j *job) signalHelper(sig syscall.Signal) (pid int) {
	j.t.Helper()
	for p, line := range j.processes() {
		if strings.HasSuffix(line, "fuse-overlayfs sleep ") {
			pid = p
			if err := syscall.Kill(p, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				j.t.Fatal(err)
			}
		}
	}
	return pid
}
