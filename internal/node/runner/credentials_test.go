package runner

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/network/credentials"
	"berth/jobs"
	"berth/jobs/store"
)

// TestTakeCredentials: keys are for the broker alone. Nothing begins without one.
func TestTakeCredentials(t *testing.T) {
	spec := jobs.Spec{EnvNames: []string{"A"}, Place: jobs.Place{Credentials: []jobs.Credential{credentials.Ready()["openai"]}}}
	r := &attempt{spec: spec}
	passed := []string{"A=1", credentials.Variable("openai") + "=sk-real"}
	rest, err := r.takeCredentials(passed)
	if err != nil || !slices.Equal(rest, []string{"A=1"}) || len(r.credentials) != 1 || r.credentials[0].Key != "sk-real" {
		t.Errorf("%q %v %v", rest, r.credentials, err)
	}
	if p := r.credentials[0].Placeholder; len(p) < 32 || strings.Contains(p, "sk-real") {
		t.Errorf("placeholder %q", p)
	}
	r.spec.External = &jobs.ExternalSpec{} // the program of a backend has all that is passed
	task, program := r.ofTask(rest)
	if all := strings.Join(append(r.taskEnv(task, r.began), program...), " "); strings.Contains(all, "sk-real") {
		t.Error(all)
	}
	r = &attempt{spec: spec}
	if _, err := r.takeCredentials([]string{"A=1"}); err == nil || !strings.Contains(err.Error(), "openai") {
		t.Errorf("without a key: %v", err)
	}
}

// TestUsageUnkept: requests that cannot be counted end an attempt with caps, and that is
// no fault of its task's.
func TestUsageUnkept(t *testing.T) {
	r := &attempt{dir: "/d", log: slog.New(slog.DiscardHandler)}
	if r.usageUnkept(errors.New("no space left on device")); r.stop.Why() != nil {
		t.Error("a job without caps has ended")
	}
	r.spec.Caps.Requests = 1
	r.usageUnkept(syscall.ENOSPC)
	rec := r.conclude(&outcome{exit: jobs.Exit{Started: true, Code: 143, Signal: 15}})
	if rec.State != jobs.StateError || rec.Code != jobs.CodeInfra || !strings.Contains(rec.Hint, "df -h /d") ||
		!strings.HasSuffix(rec.Reason, "the caps of the job would not hold: no space left on device") {
		t.Errorf("%+v", rec)
	}
}

// TestKeepUsage: an attempt that another one has followed asks models nothing more, and
// ends as one that was taken over.
func TestKeepUsage(t *testing.T) {
	dir := t.TempDir()
	r := &attempt{dir: dir, log: slog.New(slog.DiscardHandler), claim: jobs.Claim{Version: 1, Attempt: "a", Host: "here", PID: 1, Time: time.Now().UTC().Truncate(time.Second)}}
	r.spec.Caps.Requests = 9
	if _, err := store.SetClaim(dir, r.claim); err != nil {
		t.Fatal(err)
	}
	if err := r.keepUsage(jobs.Usage{Requests: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SetDecision(dir, jobs.Decision{Version: 1, Verb: jobs.VerbRetry}); err != nil {
		t.Fatal(err)
	}
	err := r.keepUsage(jobs.Usage{Requests: 2})
	if err == nil {
		t.Fatal("it goes on asking")
	}
	if r.usageUnkept(err); r.stop.Why() == nil || r.stop.Why().reason != takenOver.reason {
		t.Errorf("%v: %+v", err, r.stop.Why())
	}
}

// TestCapMet: a task whose cap is met ends with 10, its record has the figures, and nothing follows.
func TestCapMet(t *testing.T) {
	r := &attempt{}
	r.capMet("cap max_usd met: 5.02 of 5.00 USD, 41 requests, 120k tokens")
	rec := r.conclude(&outcome{exit: jobs.Exit{Started: true, Code: 143, Signal: 15}})
	if rec.State != jobs.StateFailed || rec.Code != jobs.CodeCap || rec.Class != jobs.ClassPolicy || !strings.HasPrefix(rec.Reason, "cap max_usd met: 5.02") || rec.Usage != nil {
		t.Errorf("%+v", rec)
	}
}
