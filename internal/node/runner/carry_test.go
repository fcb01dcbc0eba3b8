package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/network/credentials"
	"berth/jobs"
	"berth/jobs/store"
)

// TestCarry: what earlier attempts have used is found, however they ended.
func TestCarry(t *testing.T) {
	dir := func(name, text string) string {
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	killed := t.TempDir()
	if err := store.SetUsage(killed, jobs.Usage{Requests: 4, Input: 40, USD: 0.4}); err != nil {
		t.Fatal(err)
	}
	turns := `{"time":"2026-01-01T00:00:00Z","kind":"turn"}` + "\n"
	if err := os.WriteFile(filepath.Join(killed, store.FileTranscript), []byte(turns+turns+"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := dir(store.FileNetwork, `{"time":"2026-01-01T00:00:00Z",`+
		`"request":{"credential":"c","method":"POST","usage":{"requests":1,"input_tokens":5}}}`+"\n")
	claim := &jobs.Claim{}
	ended := func(n int, d string, x *jobs.ExitRecord) jobs.Attempt {
		return jobs.Attempt{Dir: d, Info: jobs.AttemptInfo{Number: n}, Claim: claim, Exit: x}
	}
	spec := jobs.Spec{Place: jobs.Place{Credentials: []jobs.Credential{credentials.Ready()["openai"]}},
		Agent: &jobs.Agent{Name: "a", Tells: jobs.Tells{Turns: jobs.TellsEach, Tokens: jobs.TellsEach}}}
	r := &attempt{spec: spec, info: jobs.AttemptInfo{Number: 6}}
	if err := r.carryOf([]jobs.Attempt{
		ended(1, t.TempDir(), &jobs.ExitRecord{Usage: &jobs.Usage{Requests: 2, Input: 20, USD: 0.2},
			Agent: &jobs.AgentUse{Turns: 3, Usage: &jobs.Usage{Input: 25}}}),
		ended(2, killed, nil),
		ended(3, old, nil),                               // of a runner that kept no counts
		{Dir: killed, Info: jobs.AttemptInfo{Number: 4}}, // never began
		ended(5, t.TempDir(), &jobs.ExitRecord{}),        // asked nothing
		ended(6, killed, nil), ended(7, killed, nil),     // itself, and one that is none of its
	}); err != nil {
		t.Fatal(err)
	}
	if u := r.carried.broker; u.Requests != 7 || u.Input != 65 || u.USD < 0.59 || u.USD > 0.61 {
		t.Errorf("by brokers: %+v", u)
	}
	if b := r.carried.meter; b.Turns != 5 || b.Usage.Requests != 7 || b.Usage.Input != 70 {
		t.Errorf("with events: %+v", b)
	}
	for _, text := range []string{"x", `{"version":1,"usage":{"requests":-5}}`, `{"version":9,"used":{"requests":5}}`, "{}", "null", ""} {
		r := &attempt{spec: spec, info: jobs.AttemptInfo{Number: 2}}
		err := r.carryOf([]jobs.Attempt{ended(1, dir(store.FileUsage, text), nil)})
		if err == nil || jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "the caps of the job cannot be held") {
			t.Errorf("%q: %v", text, err)
		}
		if c := classOf(fmt.Errorf("x: %w", err)); c != jobs.ClassPolicy { // another node would read the same
			t.Errorf("%q is of the class %s", text, c)
		}
	}
}
