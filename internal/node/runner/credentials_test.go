package runner

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"berth/internal/network/credentials"
	"berth/jobs"
)

type fakeBroker struct{ used jobs.Usage }

func (fakeBroker) Serve(context.Context, string, net.Conn) {}
func (b fakeBroker) Usage() jobs.Usage                     { return b.used }
func (fakeBroker) Close()                                  {}

// TestTakeCredentials: keys are for the broker alone. Nothing begins without one.
func TestTakeCredentials(t *testing.T) {
	r := &attempt{broker: fakeBroker{}, spec: jobs.Spec{EnvNames: []string{"A"}, Place: jobs.Place{Credentials: []jobs.Credential{credentials.Ready()["openai"]}}}}
	passed := []string{"A=1", credentials.Variable("openai") + "=sk-real"}
	rest, err := r.takeCredentials(passed)
	if err != nil || !slices.Equal(rest, []string{"A=1"}) || r.brokered["openai"] != "sk-real" {
		t.Errorf("%q %v %v", rest, r.brokered, err)
	}
	r.spec.External = &jobs.ExternalSpec{} // the program of a backend has all that is passed
	task, program := r.ofTask(rest)
	if all := strings.Join(append(r.taskEnv(task, r.began), program...), " "); strings.Contains(all, "sk-real") {
		t.Error(all)
	}
	if env := r.inside(map[string]int{"openai": 4001}, map[string]string{"openai": "p"}); !slices.Contains(env, "OPENAI_API_KEY=p") {
		t.Errorf("%q", env)
	}
	if _, err := r.takeCredentials([]string{"A=1"}); err == nil || !strings.Contains(err.Error(), "openai") {
		t.Errorf("without a key: %v", err)
	}
	r.broker = nil
	if _, err := r.takeCredentials(passed); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("without a broker: %v", err)
	}
}

// TestCapMet: a task whose cap is met ends with 10, and its record has the figures.
func TestCapMet(t *testing.T) {
	r := &attempt{broker: fakeBroker{jobs.Usage{Requests: 41, Input: 120_000, USD: 5.02}}}
	r.capMet("cap max_usd met: 5.02 of 5.00 USD, 41 requests, 120k tokens")
	rec := r.conclude(&outcome{exit: jobs.Exit{Started: true, Code: 143, Signal: 15}})
	if rec.State != jobs.StateFailed || rec.Code != jobs.CodeCap || rec.Class != jobs.ClassTask || !strings.HasPrefix(rec.Reason, "cap max_usd met: 5.02") || rec.Usage.Requests != 41 {
		t.Errorf("%+v", rec)
	}
	if r.broker = (fakeBroker{}); r.usage() != nil {
		t.Error("nothing was asked, and that is recorded")
	}
}
