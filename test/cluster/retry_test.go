//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// tried is what `berth explain --json` says of a job's attempts.
type tried struct {
	State    string
	Attempts []struct {
		Number   int
		State    string
		Decision *struct {
			Verb, Class, Reason, By string
			Evidence                []string
		}
	}
}

func (s site) tried(t *testing.T, id string) tried {
	t.Helper()
	var x struct{ Explain tried }
	if err := json.Unmarshal([]byte(s.ok(t, "berth explain --json "+id)), &x); err != nil {
		t.Fatal(err)
	}
	return x.Explain
}

// TestRetryMemory has a task that needs more memory than it asked for, and
// no one looks: the runners decide and submit.
func TestRetryMemory(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--retry on --memory 200MiB --time 5m", `python3 -c 'b = bytearray(250 << 20); import time; time.sleep(3); print(len(b))'`)
	// The ledger's own files tell, without a client that would act.
	done := fmt.Sprintf("grep -l '\"accept\"' ~/.local/state/berth/jobs/*/*%s/attempts/*/decision.json 2>/dev/null || true", id)
	waitFor(t, patience, func() bool { return s.ok(t, done) != "" })
	if st := s.wait(t, id, 0); st.State != "completed" {
		t.Errorf("%+v", st)
	}
	x := s.tried(t, id)
	if len(x.Attempts) != 2 {
		t.Fatalf("%+v", x)
	}
	d := x.Attempts[0].Decision
	if d == nil || d.Verb != "retry" || d.Class != "memory" || !strings.Contains(d.By, "the runner") || !strings.Contains(strings.Join(d.Evidence, "\n"), "peak memory") {
		t.Errorf("%+v", d)
	}
	s.quiet(t)
}

// TestRetryRequeue has Slurm start a job again under its id, as after a
// preemption: what ran before is over, and this is the next attempt.
func TestRetryRequeue(t *testing.T) {
	each(t, every, retryRequeue)
}

func retryRequeue(t *testing.T, s site) {
	id := s.submit(t, "--retry on --time 5m", `echo begun; [ $BERTH_ATTEMPT_NUMBER -gt 1 ] || sleep 315; echo ended`)
	s.state(t, id, "running")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "begun") })
	native := s.status(t, id).NativeID
	s.ok(t, "scontrol requeue "+native)
	if st := s.wait(t, id, 0); st.State != "completed" || st.NativeID != native {
		t.Errorf("%+v", st)
	}
	x := s.tried(t, id)
	if len(x.Attempts) != 2 || x.Attempts[0].Decision.Class != "preempted" || x.Attempts[1].Decision.Verb != "accept" {
		t.Errorf("%+v", x)
	}
	if out := s.ok(t, "berth logs "+id); out != "begun\nended" {
		t.Errorf("the last attempt's output: %q", out)
	}
}

// TestRetryScancel leaves alone what someone has ended with Slurm's own
// command.
func TestRetryScancel(t *testing.T) {
	each(t, every, retryScancel)
}

func retryScancel(t *testing.T, s site) {
	id := s.submit(t, "--retry on --time 5m", `echo begun; sleep 300`)
	s.state(t, id, "running")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "begun") })
	s.ok(t, "scancel "+s.status(t, id).NativeID)
	if st := s.wait(t, id, 130); st.State != "cancelled" {
		t.Errorf("%+v", st)
	}
	if x := s.tried(t, id); len(x.Attempts) != 1 || x.Attempts[0].Decision.Class != "stop" {
		t.Errorf("%+v", x)
	}
}
