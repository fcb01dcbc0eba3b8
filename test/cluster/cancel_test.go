//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// stubborn is a task that does not want to end: it ignores TERM, and has children
// in sessions of their own, of which one has lost its parents.
const stubborn = `trap '' TERM
setsid sh -c "trap '' TERM; sleep 311" &
(setsid setsid sh -c "trap '' TERM; while :; do sleep 312; done" & ) &
echo x > /written
echo ready
while :; do sleep 0.3; done`

// TestCancelLeavesNothing ends two such jobs at once, of which one writes an
// overlay in an image, and one that waits: no process, mount or helper, no scratch
// directory, no lease and no job that would follow is left.
func TestCancelLeavesNothing(t *testing.T) {
	s := standard
	s.need(t)
	s.unhurried(t)
	name := fmt.Sprintf("cancel-%d", time.Now().UnixNano())
	s.ok(t, "berth overlay create --driver ext3 --size 100MiB --image "+s.image+" "+name)
	t.Cleanup(func() { s.sh(t, "berth overlay rm --wait=60s "+name) })
	first := s.submit(t, "--retry on --time 5m --overlay "+name, stubborn)
	second := s.submit(t, "--retry on --time 5m", stubborn)
	waits := s.submit(t, "--retry on --time 5m --slurm --begin=now+1hour", "true")
	natives := map[string]string{waits: s.status(t, waits).NativeID}
	for _, id := range []string{first, second} {
		s.state(t, id, "running")
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
		natives[id] = s.status(t, id).NativeID
	}
	all := first + " " + second + " " + waits
	s.ok(t, "berth cancel "+all)
	for id := range natives {
		if st := s.wait(t, id, 130); st.State != "cancelled" || st.CancelBy == "" {
			t.Errorf("%+v", st)
		}
	}
	// Once more is no error, and says how it is.
	if a := s.sh(t, "berth cancel "+all); a.code != 0 || strings.Count(a.err, "has ended already") != 3 {
		t.Errorf("%+v", a)
	}
	s.quiet(t)
	dirs := ""
	for id := range natives {
		dirs += " " + s.status(t, id).Dir
	}
	// Neither the jobs nor what waits for their end.
	waitFor(t, patience, func() bool {
		queue := s.ok(t, "squeue --me -h -O 'JobID:|,WorkDir:|'")
		for dir := range strings.FieldsSeq(dirs) {
			if strings.Contains(queue, strings.TrimSuffix(dir, "/0001")) {
				return false
			}
		}
		return true
	})
	if out := s.ok(t, "berth overlay show "+name); strings.Contains(out, "in use") || strings.Contains(out, "held by") {
		t.Errorf("the overlay is held:\n%s", out)
	}
	s.ok(t, "berth run --image "+s.image+" --overlay "+name+" -- 'test ! -e /nothing'")
}

// TestExplain asks why jobs wait on a real Slurm, and what would start them.
func TestExplain(t *testing.T) {
	each(t, every, explain)
}

func explain(t *testing.T, s site) {
	over := s.submit(t, "--time 10m --memory 300MiB", "true")
	later := s.submit(t, "--slurm --begin=now+1hour", "true")
	t.Cleanup(func() { s.sh(t, "berth cancel "+over+" "+later) })
	s.wait(t, over, 0)
	waitFor(t, patience, func() bool { return strings.Contains(s.ok(t, "berth explain "+over), "scheduler\tCOMPLETED") }) // Slurm learns of the end after us
	if out := s.ok(t, "berth explain "+over); !strings.Contains(out, "next\tnothing: it is over") {
		t.Errorf("%s", out)
	}
	var x struct {
		Explain struct {
			Waiting  string `json:"scheduler_reason"`
			Plain    string `json:"scheduler_plain"`
			Expected string `json:"expected_start"`
			Hint     string
			Next     []struct{ Who, Does, When string }
		}
	}
	look := func() bool {
		if err := json.Unmarshal([]byte(s.ok(t, "berth explain --json "+later)), &x); err != nil {
			t.Fatal(err)
		}
		return x.Explain.Waiting != ""
	}
	waitFor(t, patience, look)
	if e := x.Explain; e.Waiting != "BeginTime" || !strings.Contains(e.Plain, "has not come") || e.Next[0].Who != "scheduler" {
		t.Errorf("%+v", e)
	}
	native := s.status(t, later).NativeID
	s.ok(t, "scontrol hold "+native)
	waitFor(t, patience, func() bool { return look() && x.Explain.Waiting == "JobHeldUser" })
	if e := x.Explain; !strings.Contains(e.Hint, "scontrol release "+native) || e.Next[0].Who != "you" {
		t.Errorf("%+v", e)
	}
}

// TestGC finds a job in the queue whose record is gone, and leaves it to --force.
func TestGC(t *testing.T) {
	each(t, every, collectGarbage)
}

func collectGarbage(t *testing.T, s site) {
	home := s.dir(t) + "/home"
	id := s.ok(t, "BERTH_HOME="+home+" berth submit "+s.flags()+" "+s.place()+" --slurm --begin=now+1hour -- true")
	gc := "BERTH_HOME=" + home + " berth gc "
	if out := s.ok(t, gc+"--dry-run"); strings.Contains(out, "job\t") {
		t.Errorf("%s", out)
	}
	s.ok(t, "rm -r "+home+"/jobs/*/*"+id)
	if out := s.ok(t, gc); !strings.Contains(out, "needs --force") || !strings.Contains(out, "there is no record in "+home) {
		t.Errorf("%s", out)
	}
	if out := s.ok(t, gc+"--force"); !strings.Contains(out, "removed") {
		t.Errorf("%s", out)
	}
	waitFor(t, patience, func() bool { return !strings.Contains(s.ok(t, gc+"--dry-run"), "there is no record") })
}
