package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// secretPlace is a directory with a configuration, a state and a repository of a test's own, and secrets where
// people have theirs.
type secretPlace struct {
	testing.TB
	dir     string
	env     []string
	secrets map[string]string // by where each one stands
}

// secretConfig has a credential from each of the places that there are, and what else of a configuration is secret.
const secretConfig = `[terminal]
backend = "bwrap"
env_passthrough = ["PASSED"]

[terminal.daytona]
api_token = %[1]q

[notify]
webhook_file = %[2]q

[credentials.file]
from = "file:%[3]s"
%[5]s
[credentials.variable]
from = "env:KEY_OF_USER"
%[6]s
[credentials.command]
from = "command:cat %[4]s"
%[7]s
[credentials.failing]
from = "command:cat %[4]s; exit 3"
%[8]s
[credentials.twolines]
from = "file:%[9]s"
%[10]s`

func newSecretPlace(t testing.TB) *secretPlace {
	t.Helper()
	p := &secretPlace{TB: t, dir: t.TempDir(), secrets: map[string]string{}}
	for _, name := range []string{"file", "command", "twolines", "variable", "passed", "api", "webhook", "unused"} {
		p.secrets[name] = "canary-" + name + "-" + rand.Text()
	}
	at := func(name string) string { return filepath.Join(p.dir, name) }
	reached := func(name string) string {
		return fmt.Sprintf("upstream = \"https://%[1]s.invalid/api\"\nmethods = [\"GET\"]\npaths = [\"/**\"]\n"+
			"base_url_env = \"%[2]s_URL\"\nkey_env = \"%[2]s_KEY\"\n", name, strings.ToUpper(name))
	}
	for path, text := range map[string]string{
		"keys/file": p.secrets["file"] + "\n", "keys/command": p.secrets["command"] + "\n",
		"keys/webhook":  "https://127.0.0.1:1/" + p.secrets["webhook"] + "\n",
		"keys/twolines": p.secrets["twolines"] + "\n" + p.secrets["twolines"] + "\n",
		"config/berth/config.toml": fmt.Sprintf(secretConfig, p.secrets["api"], at("keys/webhook"), at("keys/file"), at("keys/command"),
			reached("file"), reached("variable"), reached("command"), reached("failing"), at("keys/twolines"), reached("twolines")),
		"home/.keep": "", "repo/one.txt": "one\n",
	} {
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append(os.Environ(), "HOME="+at("home"), "BERTH_HOME="+at("state"), "XDG_CONFIG_HOME="+at("config"), "XDG_CACHE_HOME="+at("cache"),
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org",
		"KEY_OF_USER="+p.secrets["variable"], "PASSED="+p.secrets["passed"], "AWS_SECRET_ACCESS_KEY="+p.secrets["unused"])
	t.Cleanup(func() {
		p.do("berth", "env", "rm", "--force", "work")
		for n := 0; os.RemoveAll(p.dir) != nil && n < 100; n++ { // a runner writes its last lines after its job has ended
			time.Sleep(50 * time.Millisecond)
		}
	})
	p.do("git", "init", "-q")
	p.do("git", "add", ".")
	p.do("git", "commit", "-qm", "one")
	return p
}

// do runs a program in the repository.
func (p *secretPlace) do(args ...string) {
	p.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = p.env, filepath.Join(p.dir, "repo")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Errorf("%v: %v\n%s", args, err, out)
	}
}

// found names the secrets that a text has.
func (p *secretPlace) found(text []byte) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(p.secrets)) {
		if bytes.Contains(text, []byte(p.secrets[name])) {
			names = append(names, name)
		}
	}
	return names
}

// below is what all files below a directory have.
func (p *secretPlace) below(dir string) (text []byte) {
	p.Helper()
	err := filepath.WalkDir(filepath.Join(p.dir, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		text = append(text, b...)
		return err
	})
	if err != nil {
		p.Fatal(err)
	}
	return text
}

// written keeps all that a stream has had.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) all() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.text.Bytes())
}

// mcpClient is a client of one berth mcp, which keeps each byte that this writes.
type mcpClient struct {
	*secretPlace
	*sdk.ClientSession
	wire, log written
	told      atomic.Int32 // times that it was told of progress
	asked     atomic.Int32 // times that its user was asked
	well      map[string]bool
	end       func()
}

func (p *secretPlace) client(flags ...string) *mcpClient {
	p.Helper()
	c := &mcpClient{secretPlace: p, well: map[string]bool{}}
	cmd := exec.Command("berth", append([]string{"mcp"}, flags...)...)
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.WaitDelay = p.env, filepath.Join(p.dir, "repo"), &c.log, time.Minute
	in, err := cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	c.end = sync.OnceFunc(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			p.Errorf("berth mcp: %v\n%s", err, c.log.all())
		}
	})
	p.Cleanup(c.end)
	client := sdk.NewClient(&sdk.Implementation{Name: "x", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			c.asked.Add(1)
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"submit": true}}, nil
		},
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { c.told.Add(1) },
	})
	read := struct {
		io.Reader
		io.Closer
	}{io.TeeReader(out, &c.wire), out}
	if c.ClientSession, err = client.Connect(p.Context(), &sdk.IOTransport{Reader: read, Writer: in}, nil); err != nil {
		p.Fatal(err, string(c.log.all()))
	}
	return c
}

// mcpArgs are arguments of a tool.
type mcpArgs = map[string]any

// call calls a tool, and returns the string below these keys of its answer.
func (c *mcpClient) call(tool string, args mcpArgs, keys ...string) (text string) {
	c.Helper()
	params := &sdk.CallToolParams{Name: tool, Arguments: args}
	params.SetProgressToken(rand.Text())
	r, err := c.CallTool(c.Context(), params)
	if err != nil {
		c.Fatalf("%s %v: %v", tool, args, err)
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		c.Fatal(err)
	}
	c.well[tool] = c.well[tool] || !r.IsError
	var at any
	if err := json.Unmarshal(b, &at); err != nil {
		c.Fatal(err)
	}
	for _, key := range keys {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	if text, _ = at.(string); text == "" && len(keys) > 0 {
		c.Fatalf("%s %v: no %v in %s", tool, args, keys, b)
	}
	return text
}

// secretTask is a task with credentials of these names, whose output has what a hostile one would look for.
const secretTask = `+++
name = "look"
credentials = [%s]
done = ["test -s two.txt"]
[agent]
command = "env | grep -v ^PASSED=; cat /proc/self/environ | tr '\\0' '\\n' | grep -v ^PASSED= >&2; sleep 6; echo two >two.txt"
[workspace]
+++
Look.
`

// Secrets of a user, which a place's credentials, its variables, its notices and its configuration have, are nowhere in what berth mcp
// writes, whatever of it is called, and how wrongly: neither what its client reads nor its log.
func TestMCPSecrets(t *testing.T) {
	p := newSecretPlace(t)
	// They are found where they stand, and in what a client reads when a command writes a variable that it was given.
	there := slices.Concat(p.below("keys"), p.below("config"), []byte(strings.Join(p.env, "\n")))
	if got := p.found(there); len(got) != len(p.secrets) {
		t.Fatalf("of %d secrets these stand where they should: %v", len(p.secrets), got)
	}
	flags := []string{"--enable", "run", "--env", "work", "--credential", "file", "--credential", "variable", "--credential", "command"}
	first := p.client(flags...)
	first.call("run_command", mcpArgs{"command": "echo $PASSED"})
	if got := p.found(first.wire.all()); !slices.Equal(got, []string{"passed"}) {
		t.Fatalf("of a variable that a command writes a client reads %v: %s%s", got, first.wire.all(), first.log.all())
	}
	first.end()

	c := p.client(append(flags, "--enable", "submit")...)
	submitted := mcpArgs{"task": fmt.Sprintf(secretTask, `"file", "variable", "command"`), "idempotency_key": "1"}
	job := c.call("task_submit", submitted, "job", "id")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "task_wait",
			Arguments: mcpArgs{"id": job, "timeout_s": 300}, Meta: sdk.Meta{"progressToken": "w"}})
		if err != nil || r.IsError {
			t.Errorf("task_wait: %+v, %v", r, err)
		}
	})
	process := c.call("start_process", mcpArgs{"command": "echo begun; cat; echo $0 >&2"}, "id")
	calls := []struct {
		tool string
		args mcpArgs
	}{
		{"run_command", mcpArgs{"command": `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -v ^PASSED=; false`}},
		{"run_command", mcpArgs{"command": `set | grep -v PASSED`}},
		{"run_command", mcpArgs{"command": "env >/dev/null; exec sleep 60", "timeout_s": 0.2}},
		{"run_command", mcpArgs{"command": "x", "env": mcpArgs{"A=B": "c"}}},
		{"run_command", mcpArgs{"command": "x", "workdir": "/nope"}},
		{"write_file", mcpArgs{"path": "/tmp/a/b.txt", "content": "hello\n", "create_directories": true}},
		{"write_file", mcpArgs{"path": "/proc/nope", "content": "x"}},
		{"edit_file", mcpArgs{"path": "/tmp/a/b.txt", "old_string": "hello", "new_string": "bye"}},
		{"edit_file", mcpArgs{"path": "/tmp/a/b.txt", "old_string": "hello", "new_string": "bye"}},
		{"read_file", mcpArgs{"path": "/tmp/a/b.txt"}},
		{"read_file", mcpArgs{"path": filepath.Join(p.dir, "keys", "file")}},
		{"read_file", mcpArgs{"path": filepath.Join(p.dir, "config", "berth", "config.toml")}},
		{"list_directory", mcpArgs{"path": "/tmp", "depth": 3}},
		{"list_directory", mcpArgs{"path": filepath.Join(p.dir, "keys")}},
		{"search", mcpArgs{"pattern": "canary-[a-z]+", "path": "/tmp"}},
		{"search", mcpArgs{"pattern": "canary-[a-z]+", "path": p.dir}},
		{"interact_with_process", mcpArgs{"id": process, "input": "hi\n"}},
		{"interact_with_process", mcpArgs{"id": "bg-77", "input": "hi\n"}},
		{"list_processes", nil},
		{"read_process_output", mcpArgs{"id": process}},
		{"read_process_output", mcpArgs{"id": "out-77"}},
		{"kill_process", mcpArgs{"id": process}},
		{"kill_process", mcpArgs{"id": process, "signal": 99}},
		{"task_list", nil},
		{"task_list", mcpArgs{"state": "nope"}},
		{"queue", nil},
		{"task_submit", mcpArgs{"task": fmt.Sprintf(secretTask, `"failing"`), "idempotency_key": "2"}},
		{"task_submit", mcpArgs{"task": fmt.Sprintf(secretTask, `"twolines"`), "idempotency_key": "3"}},
		{"task_submit", mcpArgs{"task": fmt.Sprintf(secretTask, `"nope"`), "idempotency_key": "4"}},
		{"task_submit", mcpArgs{"task": "no task", "idempotency_key": "5"}},
		{"task_submit", mcpArgs{"file": "../keys/file", "idempotency_key": "6"}},
		{"task_submit", mcpArgs{"file": "../config/berth/config.toml", "idempotency_key": "7"}},
		{"task_status", mcpArgs{"id": job}},
	}
	for _, o := range calls {
		c.call(o.tool, o.args)
	}
	waiting.Wait()
	c.well["task_wait"] = true
	for _, o := range []struct {
		tool string
		args mcpArgs
	}{
		{"task_wait", mcpArgs{"id": "zzz"}},
		{"task_status", mcpArgs{"id": job}},
		{"task_status", mcpArgs{"id": "zzz"}},
		{"task_logs", mcpArgs{"id": job}},
		{"task_logs", mcpArgs{"id": job, "stream": "stderr"}},
		{"task_logs", mcpArgs{"id": job, "of": "done"}},
		{"task_logs", mcpArgs{"id": job, "of": "runtime", "stream": "stderr"}},
		{"task_diff", mcpArgs{"id": job}},
		{"review_get", mcpArgs{"id": job}},
		{"review_get", mcpArgs{"id": job, "onto": "nope"}},
		{"task_cancel", mcpArgs{"id": job}},
	} {
		c.call(o.tool, o.args)
	}
	for tool, err := range c.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !c.well[tool.Name] {
			t.Errorf("%s was not called, or failed each time", tool.Name)
		}
	}
	resources := 0
	for template, err := range c.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		resources++
		of := func(id string) *sdk.ReadResourceParams {
			return &sdk.ReadResourceParams{URI: strings.ReplaceAll(template.URITemplate, "{id}", id)}
		}
		if _, err := c.ReadResource(t.Context(), of(job)); err != nil {
			t.Errorf("%s: %v", template.URITemplate, err)
		}
		if _, err := c.ReadResource(t.Context(), of("zzz")); err == nil {
			t.Errorf("%s of no job was read", template.URITemplate)
		}
	}
	for prompt, err := range c.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]string{"goal": "x", "agent": "claude"}
		if _, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: prompt.Name, Arguments: said}); err != nil {
			t.Error(err)
		}
	}
	if resources == 0 || c.told.Load() == 0 || c.asked.Load() == 0 {
		t.Errorf("%d resources; told of progress %d times, and asked %d times", resources, c.told.Load(), c.asked.Load())
	}
	c.end()
	for name, text := range map[string][]byte{"what its client reads": c.wire.all(), "its log": c.log.all(), "its requests": p.below("state/mcp")} {
		if got := p.found(text); len(got) > 0 || len(text) == 0 && name != "its log" {
			t.Errorf("in %d bytes of %s stand the secrets %v:\n%s", len(text), name, got, text)
		}
	}
}
