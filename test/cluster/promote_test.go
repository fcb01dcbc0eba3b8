//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// overlayOf makes an overlay of the test's own and returns its name.
func (s site) overlayOf(t *testing.T, flags string) string {
	t.Helper()
	name := fmt.Sprintf("p%d", time.Now().UnixNano())
	s.ok(t, "berth overlay create "+flags+" "+name)
	t.Cleanup(func() { s.sh(t, "berth overlay rm "+name) })
	return name
}

// use is what the record of a job says of its overlay.
func (s site) use(t *testing.T, id string) (o struct {
	Name, Driver, Way, Why string
	Promoted               bool
}) {
	t.Helper()
	var got struct {
		Jobs []struct{ Overlay json.RawMessage }
	}
	if err := json.Unmarshal([]byte(s.ok(t, "berth status --json "+id)), &got); err != nil || len(got.Jobs) != 1 {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Jobs[0].Overlay, &o); err != nil {
		t.Fatalf("%v: %q", err, got.Jobs[0].Overlay)
	}
	return o
}

// holds checks whether the overlay has what the job wrote, that nothing of the
// job is left there, and that it passes its check.
func (s site) holds(t *testing.T, name string, want bool) {
	t.Helper()
	if got := strings.Contains(s.ok(t, "berth overlay diff "+name), "/said"); got != want {
		t.Errorf("the overlay has what the job wrote: %v, want %v", got, want)
	}
	if left := s.ok(t, `ls -A "${BERTH_HOME:-$HOME/.local/state/berth}/overlays/`+name+`"`); strings.Contains(left, ".attempt-") || strings.Contains(left, ".making-") {
		t.Errorf("left: %s", left)
	}
	s.ok(t, "berth overlay check "+name)
}

// Only a job that has succeeded changes its overlay, whatever ended the others.
func TestPromotion(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	const (
		said = "echo x >/said; "
		wait = said + "echo ready; sleep 317"
	)
	ready := func(t *testing.T, id string) status {
		st := s.state(t, id, "running")
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
		return s.status(t, st.Short)
	}
	const ext3 = "--driver ext3 --size 64MiB"
	for _, c := range []struct {
		name, overlay, flags, command string
		do                            func(t *testing.T, id string) // while it runs
		code                          int
		state, reason, hint           string
		kept                          bool
	}{
		{name: "success fuse", overlay: "--driver fuse", command: said, state: "completed", kept: true},
		{name: "success kernel", overlay: "--driver kernel", flags: "--memory 1GiB", command: said, state: "completed", kept: true},
		{name: "success ext3", overlay: ext3, command: said, state: "completed", kept: true},
		{name: "in place", overlay: "--driver fuse", flags: "--overlay-snapshot never", command: said + "exit 3", code: 1, state: "failed", kept: true},
		{name: "failure", overlay: ext3, command: said + "exit 3", code: 1, state: "failed"},
		{name: "memory", overlay: ext3, flags: "--memory 100MiB", command: said + `exec python3 -c 'x = bytearray(400 << 20)'`, code: 1, state: "out_of_memory"},
		{name: "time", overlay: "--driver fuse", flags: "--time 2s", command: wait, code: 124, state: "timeout"},
		{name: "cancel", overlay: ext3, command: wait, code: 130, state: "cancelled", do: func(t *testing.T, id string) {
			ready(t, id)
			s.ok(t, "berth cancel "+id)
		}},
		{name: "signal", overlay: "--driver fuse", command: said + "kill -9 $$", code: 1, state: "failed"},
		{name: "helper killed fuse", overlay: "--driver fuse", command: wait, code: 5, state: "error", reason: "fuse-overlayfs ended", do: func(t *testing.T, id string) {
			s.killHelper(t, ready(t, id), "fuse-overlayfs")
		}},
		{name: "helper killed ext3", overlay: ext3, command: wait, code: 5, state: "error", reason: "fuse2fs ended", do: func(t *testing.T, id string) {
			s.killHelper(t, ready(t, id), "fuse2fs")
		}},
		{name: "no space", overlay: ext3, command: said + "dd if=/dev/zero of=/big bs=1M count=100", code: 1, state: "failed", reason: "no space: .* is full", hint: "overlay grow"},
		{name: "no files", overlay: ext3 + " --inodes 200", command: said + "for i in $(seq 300); do echo >/$i || exit 1; done", code: 1, state: "failed", reason: "no space: .* as many files", hint: "overlay grow"},
		{name: "quota", overlay: "--driver fuse", flags: "--disk 20MiB", command: said + "dd if=/dev/zero of=/big bs=1M count=30; sleep 317", code: 1, state: "failed", reason: "no space: .* larger than the 20MiB", hint: "disk"},
		{name: "thrown away", flags: "--disk 32MiB", command: "dd if=/dev/zero of=/big bs=1M count=100", code: 1, state: "failed", reason: "no space: .* is full", hint: "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name, flags := "", c.flags
			if c.overlay != "" {
				name = s.overlayOf(t, c.overlay)
				flags += " --overlay " + name
			}
			id := s.submit(t, flags, c.command)
			if c.do != nil {
				c.do(t, id)
			}
			st := s.wait(t, id, c.code)
			if st.State != c.state || !matches(c.reason, st.Reason) || !matches(c.hint, st.Hint) {
				t.Errorf("%s: %q (%q)", st.State, st.Reason, st.Hint)
			}
			if name == "" {
				return
			}
			way := "snapshot"
			if strings.Contains(c.flags, "never") {
				way = "in place"
			}
			if o := s.use(t, id); o.Way != way || o.Promoted != (c.state == "completed") || o.Why == "" || o.Name != name {
				t.Errorf("%+v", o)
			}
			s.holds(t, name, c.kept)
		})
	}
	t.Run("a check fails", func(t *testing.T) {
		t.Parallel()
		name := s.overlayOf(t, ext3)
		d := s.dir(t)
		s.ok(t, "printf '+++\\nname = \"x\"\\ndone_over = \"task\"\\ndone = [\"test -e /said\", \"exit 1\"]\\n[agent]\\ncommand = \"echo x >/said\"\\n[terminal]\\noverlay = \""+name+"\"\\n+++\\n' >"+d+"/t.md")
		id := s.ok(t, "berth submit --image "+s.image+" "+d+"/t.md")
		if st := s.wait(t, id, 1); st.State != "failed" || s.use(t, id).Promoted {
			t.Errorf("%+v", st)
		}
		s.holds(t, name, false)
	})
	t.Run("runner killed", func(t *testing.T) {
		t.Parallel()
		name := s.overlayOf(t, ext3)
		id := s.submit(t, "--overlay "+name, wait)
		st := ready(t, id)
		s.on(t, st.Node, "root", "pkill", "-9", "-f", "berth-node.* runner --attempt "+st.Dir)
		// On its node that is seen, and its lease counts no more when its container
		// must have left, 30 s after its last beat.
		id = s.submit(t, "--overlay "+name+" --overlay-wait 5m --slurm --nodelist="+st.Node, "test ! -e /said")
		s.wait(t, id, 0)
		s.holds(t, name, false)
	})
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		name := s.overlayOf(t, ext3)
		s.ok(t, `chmod 400 "${BERTH_HOME:-$HOME/.local/state/berth}/overlays/`+name+`/layer.ext3"`)
		id := s.submit(t, "--overlay "+name, "true")
		if st := s.wait(t, id, 78); st.State != "error" || !strings.Contains(st.Reason, "not writable") || st.Exit.Started {
			t.Errorf("%+v", st)
		}
	})
}

// matches tells whether a text has a part like that.
func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// killHelper kills the process that serves a running job's layer.
func (s site) killHelper(t *testing.T, st status, program string) {
	t.Helper()
	a := s.on(t, st.Node, "root", "bash", "-c", "for p in $(pgrep -u alice -x "+program+"); do grep -q 'job_"+st.NativeID+"/' /proc/$p/cgroup && kill -9 $p && echo killed; done; true")
	if !strings.Contains(a.out, "killed") {
		t.Fatalf("there is no %s of job %s: %+v", program, st.NativeID, a)
	}
}
