package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/agents"
	"berth/jobs"
	"berth/jobs/store"
)

// turn prints one of claude's, with a tool and its result.
func turn(n int) string {
	return fmt.Sprintf(`echo '{"type":"assistant","message":{"id":"%d","content":[{"type":"tool_use","id":"t%d","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":10,"output_tokens":5}}}'; `, n, n) +
		fmt.Sprintf(`echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t%d","content":"x"}]}}'; `, n)
}

// TestCaps: at a cap the task ends with 10, and the reason has the figures.
func TestCaps(t *testing.T) {
	claude := &jobs.Agent{Name: "claude", Events: "claude", Tells: jobs.Tells{Turns: jobs.TellsEach, Tokens: jobs.TellsEach}, Exit: map[string]string{"53": agents.ReasonTurns, "41": agents.ReasonAuth}}
	for _, c := range []struct {
		name, command string
		agent         *jobs.Agent
		caps          jobs.Caps
		code          int
		reason        string
	}{
		{"turns", turn(1) + turn(2) + turn(3) + "sleep 60", claude, jobs.Caps{Turns: 2}, jobs.CodeCap, "cap max_turns met: 2 of 2 turns, 2 requests, 30 tokens"},
		{"turns that are enough", turn(1) + turn(2), claude, jobs.Caps{Turns: 2}, 0, ""},
		{"tokens", turn(1) + turn(2) + "sleep 60", claude, jobs.Caps{Tokens: 20}, jobs.CodeCap, "cap max_tokens met: 30 of 20 tokens"},
		{"wall", "sleep 60", nil, jobs.Caps{Wall: 100 * time.Millisecond}, jobs.CodeCap, "cap max_wall met: "},
		{"idle", "echo x; sleep 60", nil, jobs.Caps{Idle: 100 * time.Millisecond}, jobs.CodeCap, "cap max_idle met: nothing was written"},
		{"output", "yes | head -c 100000; sleep 60", nil, jobs.Caps{Output: 1 << 10}, jobs.CodeCap, "cap max_output met: "},
		{"errors are output", "yes | head -c 100000 >&2; sleep 60", nil, jobs.Caps{Output: 1 << 10}, jobs.CodeCap, "cap max_output met: "},
		{"its own cap", turn(1) + "exit 53", claude, jobs.Caps{}, jobs.CodeCap, "claude ended at its own cap of turns: 1 turn"},
		{"its own cap by the job", turn(1) + "exit 53", claude, jobs.Caps{Turns: 9}, jobs.CodeCap, "claude ended at its own cap of turns (max_turns 9): 1 turn"},
		{"its key", "exit 41", claude, jobs.Caps{}, jobs.CodeAuth, "claude says that its key was refused"},
		{"another end", "exit 3", claude, jobs.Caps{}, 1, "exit code 3"},
		{"words of an end and it ended well", `echo '{"type":"result","subtype":"error_max_turns","is_error":true}'`, claude, jobs.Caps{}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, c.command, func(n *store.New) { n.Spec.Agent, n.Spec.Caps = c.agent, c.caps })
			code, rec := j.run()
			if code != c.code || !strings.HasPrefix(rec.Reason, c.reason) && !strings.Contains(rec.Reason, c.reason) || c.code == 0 && rec.State != jobs.StateCompleted {
				t.Errorf("exit %d, %s %q; want %d %q\n%s", code, rec.State, rec.Reason, c.code, c.reason, j.read(store.FileRuntime))
			}
		})
	}
}

// TestAgentUse: what an agent has done is in the record, and its transcript is kept.
func TestAgentUse(t *testing.T) {
	j := newJob(t, turn(1)+"echo no event; "+turn(2), func(n *store.New) {
		n.Spec.Agent = &jobs.Agent{Name: "claude", Events: "claude", Tells: jobs.Tells{Turns: jobs.TellsEach, Tokens: jobs.TellsEach}}
	})
	_, rec := j.run()
	if u := rec.Agent; u == nil || u.Turns != 2 || u.Text != 1 || u.Usage.Tokens() != 30 || len(u.Tools) != 1 || u.Tools[0].Calls != 2 {
		t.Errorf("%+v", u)
	}
	path := filepath.Join(j.dir, store.FileTranscript)
	fi, err := os.Stat(path)
	if err != nil || fi.Mode() != 0o600 {
		t.Fatal(fi, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	if err := agents.ReadTranscript(f, func(e agents.Event) error {
		if n++; e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
		return nil
	}); err != nil || n != 9 {
		t.Error(n, err)
	}
}

func TestFilled(t *testing.T) {
	env := []string{"URL=http://a", "URL=http://127.0.0.1:1", "EMPTY="}
	for in, want := range map[string]string{"x": "x", "u={env:URL}/v1 {x}": "u=http://127.0.0.1:1/v1 {x}", "{env:EMPTY}": "", "{env:NONE}": "none"} {
		got, ok := filled(fromEnv(), in, env)
		if want == "none" && ok || want != "none" && (!ok || got != want) {
			t.Errorf("%q: %q %v", in, got, ok)
		}
	}
}

// The agent's program is asked for its version before the command. Its answer is the image's:
// one line of it is recorded, without what drives a terminal, and what does not answer is ended.
func TestAgentVersion(t *testing.T) {
	agentWait = 20 * time.Second // there are many of them at once
	t.Cleanup(func() { agentWait = 5 * time.Second })
	for name, c := range map[string]struct{ program, want, note string }{
		"a version":      {"echo 2.1.197; echo more", "2.1.197", ""},
		"blank lines":    {"echo; echo '  1.0  '", "1.0", ""},
		"a terminal":     {`printf '\033[31m1.0\n'`, "[31m1.0", ""},
		"no end":         {"yes x | tr -d '\\n'", "", "did not tell its version"},
		"much":           {"yes x | tr -d '\\n' | head -c 100000", strings.Repeat("x", agentVersion), ""},
		"it fails":       {"echo 1.0; exit 1", "", ""},
		"it stays":       {"trap '' TERM; while :; do sleep 1; done", "", "did not tell its version"},
		"another's name": {"echo 6.6.6", "6.6.6", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := &jobs.Agent{Name: "berth", Events: "claude", VersionArgv: []string{"/bin/sh", "-c", c.program}}
			j := newJob(t, turn(1), func(n *store.New) { n.Spec.Agent = agent })
			code, rec := j.run()
			got, err := store.LoadReceipt(j.dir)
			if err != nil || code != 0 || got == nil {
				t.Fatalf("exit %d, %+v, %v", code, rec, err)
			}
			if v := got.Versions["agent berth"]; v != c.want || c.want != "" && rec.Agent.Version != c.want || got.Versions["berth"] == "6.6.6" {
				t.Errorf("got %q, %+v, %+v", v, got.Versions, rec.Agent)
			}
			if notes := strings.Join(rec.Notes, "\n"); strings.Contains(notes, "did not tell its version") != (c.note != "") {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}
