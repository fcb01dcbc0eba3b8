package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
			j.signalHelper(syscall.SIGKILL)
			if err := os.WriteFile(filepath.Join(j.tmp, "go"), nil, 0o600); err != nil {
				j.t.Fatal(err)
			}
		}, 5, "the container's file system died"},
		{"with the guest", "echo ready; sleep 60", func(j *job) { j.killGuest(); j.signalHelper(syscall.SIGKILL) }, 5, "the container ended before its command did"},
		{"by a scheduler's TERM to all", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done", func(j *job) {
			j.signal(syscall.SIGTERM) // first: a command that ends well before the runner knows has ended well
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
			j.argv = []string{"sh", "-c", `"$1" sleep & exec "$0" guest`, self, helper}
			j.start()
			j.says("ready")
			c.how(j)
			if code, rec := j.wait(); code != c.code || !strings.Contains(rec.Reason, c.reason) || (c.code == 5) != (rec.State == jobs.StateError) {
				t.Errorf("exit %d, %+v\n%s", code, rec, j.read(store.FileRuntime))
			}
		})
	}
}

// signalHelper signals the container's helper alone.
func (j *job) signalHelper(sig syscall.Signal) {
	j.t.Helper()
	for pid, line := range j.processes() {
		if strings.HasSuffix(line, "fuse-overlayfs sleep ") {
			if err := syscall.Kill(pid, sig); err != nil {
				j.t.Fatal(err)
			}
		}
	}
}
