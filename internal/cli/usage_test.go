package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/jobs"
	"berth/jobs/store"
)

// TestUsageOfKilled: what an attempt has used that left no last word is in the sum, by its
// counts and its transcript, and what cannot be read is said.
func TestUsageOfKilled(t *testing.T) {
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	transcript := `{"time":"2026-11-21T11:00:00Z","kind":"turn"}
{"time":"2026-11-21T11:00:01Z","kind":"usage","usage":{"input_tokens":30,"output_tokens":5}}
{"time":"2026-11-21T11:00:02Z","kind":"tool","tool":"Bash","id":"t"}
{"time":"2026-11-21T11:00:09Z","kind":"result","id":"t"}
{"time":"2026-11-21T11:00:10Z","kind":"tool","to`
	events, counted, torn := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{events, counted} {
		write(dir, store.FileTranscript, transcript)
	}
	if err := store.SetUsage(counted, jobs.Usage{Requests: 2, Input: 40, Output: 7, USD: 0.25}); err != nil {
		t.Fatal(err)
	}
	write(torn, store.FileUsage, "{")
	claim := &jobs.Claim{Time: noon.Add(-time.Hour)}
	killed := &jobs.Verdict{Time: noon.Add(-30 * time.Minute)}
	v := view(jobs.StateLost, func(v *engine.View) {
		v.Spec.Agent = &jobs.Agent{Name: "claude"}
		v.Attempts = []jobs.Attempt{{N: 1, Dir: events, Claim: claim, Verdict: killed}, {N: 2, Dir: counted, Claim: claim, Verdict: killed},
			{N: 3, Dir: torn, Claim: claim, Verdict: killed}, {N: 4, Dir: events}}
	})
	v.Spec.Credentials = []jobs.Credential{{Name: "anthropic"}}
	a, _, errs := onTerminal(false)
	views := []engine.View{v}
	a.counted(views)
	all := usageSums(views, byJob, time.Time{}).all
	if all.Attempts != 3 || all.Turns != 2 || all.Calls != 2 || all.ToolSeconds != 14 || all.Input != 70 || all.Output != 12 || all.USD != 0.25 || all.ByEvents != 1 {
		t.Errorf("%+v", all)
	}
	if text := errs.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "warning: job 456789ab: not all that it has used is counted: read ") ||
		!strings.Contains(text, filepath.Join(torn, store.FileUsage)) {
		t.Errorf("said: %s", text)
	}
	if s := spentOf(view(jobs.StateLost, func(o *engine.View) { *o = v })); s.Turns != 0 || s.Input != 40 { // a list reads no transcripts
		t.Errorf("in a list: %+v", s)
	}
}
