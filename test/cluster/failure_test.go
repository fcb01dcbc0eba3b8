//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// A task that kills all that there is in its container, berth's guest too, has
// failed by itself: it is no trouble of the site's, and is not tried again.
func TestGuestKilledInside(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--retry on --memory 300MiB --time 5m", `echo begun; kill -9 -1; sleep 315`)
	if st := s.wait(t, id, 1); st.State != "failed" || !strings.Contains(st.Reason, "berth's own process in the container was killed (signal 9), by the task or by") {
		t.Errorf("%+v", st)
	}
	if x := s.tried(t, id); len(x.Attempts) != 1 || x.Attempts[0].Decision.Class != "task" {
		t.Errorf("%+v", x)
	}
	s.quiet(t)
}

// A node whose scratch is full is the node's trouble for as long as it lasts: the
// job is tried elsewhere, and where there is no other node on the same again. With
// room, the next job runs there: nothing was remembered.
func TestFullScratch(t *testing.T) {
	s := standard
	s.need(t)
	fill := `for d in /tmp /var/tmp; do mount -t tmpfs -o size=300k,mode=1777 tmpfs $d && head -c 250000 /dev/zero >$d/filler; done`
	empty := `for d in /tmp /var/tmp; do while grep -q " $d tmpfs" /proc/mounts; do umount -l $d || exit 1; done; done`
	home := s.dir(t)
	t.Cleanup(func() { s.on(t, "c1", "root", "bash", "-c", empty) })
	if a := s.on(t, "c1", "root", "bash", "-c", fill); a.code != 0 {
		t.Skipf("no tmpfs can be mounted on this node: %+v", a)
	}
	run := "BERTH_HOME=" + home + "/state berth run --image " + s.image + " --memory 400MiB --time 5m "
	a := s.sh(t, run+"--retry off --slurm --nodelist=c1 -- echo there is room")
	if a.code != 5 || strings.Contains(a.err, "is not available on") {
		t.Errorf("exit code %d\n%s", a.code, a.err)
	}
	// Told to keep away from it, by itself.
	a = s.sh(t, run+"--retry on -- hostname")
	if a.code != 0 || strings.TrimSpace(a.out) != "c2" {
		t.Errorf("exit code %d: %s\n%s", a.code, a.out, a.err)
	}
	if a := s.on(t, "c1", "root", "bash", "-c", empty); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	a = s.sh(t, run+"--retry off --slurm --nodelist=c1 -- echo there is room")
	if a.code != 0 || !strings.Contains(a.out, "there is room") {
		t.Errorf("with room: exit code %d\n%s", a.code, a.err)
	}
}

// Where there is one node only, trouble on it is no reason to keep away from it,
// and what is told in the end is that trouble.
func TestOneNode(t *testing.T) {
	s := standard
	s.need(t)
	// The node's trouble is a scratch without room, until the second attempt.
	fill := `mount -t tmpfs -o size=300k,mode=1777 tmpfs /tmp && head -c 250000 /dev/zero >/tmp/filler; mount -t tmpfs -o size=300k,mode=1777 tmpfs /var/tmp && head -c 250000 /dev/zero >/var/tmp/filler`
	empty := `for d in /tmp /var/tmp; do while grep -q " $d tmpfs" /proc/mounts; do umount -l $d || exit 1; done; done`
	t.Cleanup(func() { s.on(t, "c1", "root", "bash", "-c", empty) })
	if a := s.on(t, "c1", "root", "bash", "-c", fill); a.code != 0 {
		t.Skipf("no tmpfs can be mounted on this node: %+v", a)
	}
	id := s.submit(t, "--retry on --memory 400MiB --time 5m --slurm --nodelist=c1", "hostname")
	waitFor(t, patience, func() bool { return len(s.tried(t, id).Attempts) == 2 })
	if a := s.on(t, "c1", "root", "bash", "-c", empty); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	if st := s.wait(t, id, 0); st.State != "completed" {
		t.Errorf("%+v", st)
	}
	if x := s.tried(t, id); len(x.Attempts) < 2 || x.Attempts[0].Decision.Class != "infrastructure" {
		t.Errorf("%+v", x)
	}
}
