//go:build conformance

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/models"
)

// codexConfig has one model, which is played, and berth mcp for tools.
const codexConfig = `
model = "played"
model_provider = "played"
check_for_update_on_startup = false

[model_providers.played]
name = "played"
base_url = "http://%s/v1"
wire_api = "responses"
env_key = "PLAYED_KEY"

[mcp_servers.berth]
command = %q
args = ["mcp", "--enable", "run", "--env", "agent", "--backend", "local"]
cwd = %q
env = {BERTH_HOME = %q, XDG_CONFIG_HOME = %q}
required = true

[analytics]
enabled = false
`

// An agent's program, Codex, works in an environment through berth mcp: its model has it write
// a file, run a command on it, and read what came of that.
func TestAgent(t *testing.T) {
	key := strings.Repeat("k", 32)
	turns := []models.Reply{
		{Call: &models.Call{Name: "write_file", Arguments: map[string]any{"path": "greeting.txt", "content": "hello\n"}}},
		{Call: &models.Call{Name: "run_command", Arguments: map[string]any{"command": "tr a-z A-Z <greeting.txt >loud.txt; export SEEN=yes"}}},
		{Call: &models.Call{Name: "read_file", Arguments: map[string]any{"path": "loud.txt"}}},
		{Text: "it is done"},
	}
	server := models.StartPlain(t, key, func(r models.Request) models.Reply {
		n := bytes.Count(r.Body, []byte(`"function_call_output"`)) // a turn begins with the results of those before
		if n >= len(turns) {
			return models.Reply{Status: 500, Raw: "there is no such turn"}
		}
		reply := turns[n]
		reply.In, reply.Out = 10, 3
		if reply.Call != nil {
			reply.Call.Namespace = "mcp__berth"
		}
		return reply
	})
	home, work := t.TempDir(), t.TempDir()
	env := environ(t, "agent")
	value := func(name string) (v string) {
		for _, e := range env {
			if rest, is := strings.CutPrefix(e, name+"="); is {
				v = rest
			}
		}
		return v
	}
	config := fmt.Sprintf(codexConfig, server.Addr(), berth, work, value("BERTH_HOME"), value("XDG_CONFIG_HOME"))
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "node_modules", ".bin", "codex"), "exec", "--json", "--skip-git-repo-check",
		"--dangerously-bypass-approvals-and-sandbox", "make the greeting loud")
	cmd.Env, cmd.Dir = append(env, "CODEX_HOME="+home, "HOME="+home, "PLAYED_KEY="+key), t.TempDir()
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	var calls []string
	said := ""
	for line := range bytes.Lines(out) {
		var event struct {
			Type string
			Item struct{ Type, Server, Tool, Status, Text string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch i := event.Item; {
		case event.Type != "item.completed":
		case i.Type == "mcp_tool_call":
			calls = append(calls, i.Server+" "+i.Tool+" "+i.Status)
		case i.Type == "agent_message":
			said = i.Text
		}
	}
	if want := []string{"berth write_file completed", "berth run_command completed", "berth read_file completed"}; !slices.Equal(calls, want) || said != "it is done" {
		t.Errorf("calls %q, it said %q\n%s", calls, said, out)
	}
	// What the tools answered is what the model was told.
	requests := server.Requests()
	if last := requests[len(requests)-1]; len(requests) != len(turns) || !bytes.Contains(last.Body, []byte("HELLO")) {
		t.Errorf("%d requests, the last one: %s", len(requests), last.Body)
	}
	// It was in the environment, whose shell is as its command has left it.
	look := exec.CommandContext(ctx, berth, "exec", "--env", "agent", "--", `echo "$SEEN $PWD"`)
	look.Env, look.Dir = env, work
	got, err := look.Output()
	dir, seen := strings.CutPrefix(strings.TrimSpace(string(got)), "yes ")
	if err != nil || !seen {
		t.Fatalf("in the environment: %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "loud.txt")); err != nil || string(got) != "HELLO\n" {
		t.Errorf("loud.txt: %q, %v", got, err)
	}
}
