package engine

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"berth/internal/network/wayout"
	"berth/jobs"
)

// Jobs with via = "login" get a relay while they run, one that waits for a supervisor, and it
// ends with them.
func TestRelay(t *testing.T) {
	run := t.TempDir()
	must(t, os.Chmod(run, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", run)
	f := newFixture(t)
	f.Sleep = func(ctx context.Context, _ time.Duration) error {
		f.pass(time.Second)
		return Sleep(ctx, time.Millisecond)
	}
	var recs []*jobs.Record
	for _, via := range []string{jobs.ViaLogin, ""} {
		tk := task(func(t *jobs.Task) { t.Retry = nil })
		s := f.plan(tk, Choice{})
		s.Network.Via = via
		r, err := f.Submit(t.Context(), s, tk)
		must(t, err)
		recs = append(recs, r)
	}
	r := recs[0]
	needs := func() (out string) {
		all, err := f.RelayNeeds()
		must(t, err)
		for _, n := range all {
			switch {
			case n.PID != 0:
				out += n.Name + " has one;"
			case n.Runs:
				out += n.Name + " waits;"
			default:
				out += n.Name + " later;"
			}
		}
		return out
	}
	name := "job " + jobs.Short(r.Spec.ID)
	if got := needs(); got != name+" later;" {
		t.Error(got)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Relay(t.Context(), RelayOptions{}) }()
	f.claim(r)
	way, err := wayout.Listen(r.Current().Dir)
	must(t, err)
	defer func() { _ = way.Close() }()
	must(t, way.Ready(t.Context()))
	if _, err := way.Dial(t.Context(), "tcp", netip.MustParseAddrPort("127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "the relay does not dial") {
		t.Error(err)
	}
	for needs() != name+" has one;" { // it is recorded beside
		must(t, Sleep(t.Context(), time.Millisecond))
	}
	if since := WaitsForRelay(f.load(r)); !since.IsZero() {
		t.Error(since)
	}
	f.exit(r, jobs.StateCompleted, 0)
	must(t, <-ended)
	if got := needs(); got != "" {
		t.Error(got)
	}
}

// Without a relay a job waits, which is shown.
func TestWaitsForRelay(t *testing.T) {
	run := t.TempDir()
	must(t, os.Chmod(run, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", run)
	f := newFixture(t)
	tk := task()
	s := f.plan(tk, Choice{})
	s.Network.Via = jobs.ViaLogin
	r, err := f.Submit(t.Context(), s, tk)
	must(t, err)
	f.claim(r)
	if since := WaitsForRelay(f.load(r)); !since.IsZero() {
		t.Error(since)
	}
	way, err := wayout.Listen(r.Current().Dir)
	must(t, err)
	if since := WaitsForRelay(f.load(r)); since.IsZero() {
		t.Error("it is not shown")
	}
	_ = way.Close()
	if since := WaitsForRelay(f.load(r)); !since.IsZero() {
		t.Error(since)
	}
}
