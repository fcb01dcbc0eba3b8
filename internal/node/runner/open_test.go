package runner

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// A program that opens no environment, in all the ways it can.
func TestNoGuest(t *testing.T) {
	for _, c := range []struct {
		name   string
		argv   []string
		code   int
		reason string
	}{
		{"says why", []string{"sh", "-c", "echo one >&2; echo two >&2; echo three >&2; echo four >&2; exit 255"}, 5, "the guest did not start: two; three; four"},
		{"says nothing", []string{"true"}, 5, "the guest did not start: "},
		{"talks to the stream", []string{"echo", "Welcome!"}, 5, "Welcome!"},
		{"hangs", []string{"sh", "-c", "trap '' TERM; sleep 60; sleep 60"}, 5, "no guest answered within 500ms"},
		{"hangs and holds the stream", []string{"sh", "-c", "(setsid sleep 60 &); exit 3"}, 5, "the guest did not start"},
		{"is not there", []string{"/no/such/program"}, 5, "start /no/such/program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, "echo never", nil)
			j.argv, j.periods.Start = c.argv, 20*time.Second
			if strings.HasPrefix(c.name, "hangs") {
				j.periods.Start = 500 * time.Millisecond
			}
			code, rec := j.run()
			if code != c.code || rec.Code != c.code || rec.State != jobs.StateError || rec.Exit.Started || !strings.Contains(rec.Reason, c.reason) || rec.Hint == "" && c.name != "is not there" {
				t.Errorf("exit %d, %+v", code, rec)
			}
			if left := j.scratches(); len(left) > 0 {
				t.Errorf("left on the node: %q", left)
			}
		})
	}
}

// TERM ends an environment that is just being opened.
func TestStoppedWhileOpening(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo never", nil)
	j.argv = []string{"sh", "-c", "echo opening >&2; sleep 60; sleep 60"}
	j.start()
	eventually(t, "it is being opened", func() bool { return strings.Contains(j.read(store.FileRuntime), "opening\n") })
	j.signal(syscall.SIGTERM)
	code, rec := j.wait()
	if code != jobs.CodeInterrupted || rec.State != jobs.StateCancelled || rec.Exit.Started || j.read(store.FileStdout) != "" {
		t.Errorf("exit %d, %+v", code, rec)
	}
}

// The scratch directory of a profile is checked on the node.
func TestNoScratch(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo never", func(n *store.New) { n.Spec.Profile.Scratch = "/no/such/$USER" })
	code, rec := j.run()
	if code != jobs.CodeConfig || !strings.Contains(rec.Reason, "/no/such/alice is not on this node") || !strings.Contains(rec.Hint, "scratch") {
		t.Errorf("exit %d, %+v", code, rec)
	}
}
