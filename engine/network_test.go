package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/network/record"
	"berth/jobs"
)

// Words are refused that would open nothing, each with the reason.
func TestAddable(t *testing.T) {
	list := jobs.Network{Mode: jobs.NetworkAllow, Allow: []string{"a.example"}, Deny: []string{"evil.example"},
		Bounds: []jobs.NetworkBound{{Origin: "site S", Mode: jobs.NetworkAllow, Allow: []string{"*.example", "10.0.0.7:443"}}}}
	closed := jobs.Network{Mode: jobs.NetworkNone}
	done := jobs.Network{Mode: jobs.NetworkNone, Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Allow: []string{"a.example"}}}}
	for _, c := range []struct {
		n             jobs.Network
		backend, word string
		kind          jobs.Kind
		want          string
	}{
		{list, jobs.BackendSingularity, "b.example", jobs.KindUnknown, ""},
		{list, jobs.BackendDocker, "*.b.example", jobs.KindUnknown, ""},
		{list, jobs.BackendBwrap, "10.0.0.7:443", jobs.KindUnknown, ""},
		{list, jobs.BackendBwrap, "evil.example", jobs.KindUsage, "evil.example stays refused: it is denied by evil.example (task)"},
		{list, jobs.BackendBwrap, "b.test", jobs.KindUsage, "b.test stays refused: no rule allows it; the rule b.test would (site S)"},
		{list, jobs.BackendBwrap, "b example", jobs.KindUsage, "no character of a host name"},
		{list, "modal", "b.example", jobs.KindConfig, "is on the backend modal, whose own list is settled when it begins"},
		{closed, jobs.BackendBwrap, "b.example", jobs.KindUsage, "has no network (mode none)"},
		{done, jobs.BackendBwrap, "b.example", jobs.KindUnknown, ""},
		{jobs.Network{}, jobs.BackendBwrap, "b.example", jobs.KindUsage, "has the network open"},
	} {
		err := addable(&jobs.Place{Backend: c.backend, Network: c.n}, "job 1", []string{"a.example", c.word})
		if (err == nil) != (c.want == "") || err != nil && (jobs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s on %s: %v", c.word, c.backend, err)
		}
	}
}

// Who waits for words hears that they hold, that they do not, or after three heartbeats that it is not known.
func TestNetworkAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "network.jsonl")
	now := time.Unix(0, 0)
	e := &Engine{Now: func() time.Time { return now }}
	e.Sleep = func(_ context.Context, d time.Duration) error {
		if now = now.Add(d); now.Equal(time.Unix(20, 0)) {
			return os.WriteFile(path, []byte(`{"allow":{"id":"here"}}`+"\n"+`{"allow":{"id":"wrong","trouble":"it is a URL"}}`+"\n"), 0o600)
		}
		return nil
	}
	read := func() (*record.File, error) { return record.Read(path) }
	for id, want := range map[string]string{"here": "", "wrong": "it is a URL"} {
		now = time.Unix(0, 0)
		_ = os.Remove(path)
		if ok, err := e.awaitAdded(t.Context(), id, 0, false, read); !ok || (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v", id, ok, err)
		}
	}
	now = time.Unix(0, 0)
	if ok, err := e.awaitAdded(t.Context(), "none", time.Second, true, read); ok || err != nil || now.After(time.Unix(6, 0)) {
		t.Error(ok, err, now)
	}
}
