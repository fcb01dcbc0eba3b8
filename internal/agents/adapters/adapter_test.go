package adapters

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"berth/internal/agents"
	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/templates"
)

func find(t *testing.T, dir, name string) *Adapter {
	t.Helper()
	a, err := Find(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sessionWords are the arguments that go on with a session.
var sessionWords = pattern.Lazy(` (--)?(resume|session)[ =]s-1`)

// TestBuiltin renders the command of each.
func TestBuiltin(t *testing.T) {
	want := map[string]string{
		"claude":         "claude --print --verbose --output-format stream-json --dangerously-skip-permissions --model m-1 --max-turns 5 --max-budget-usd 2.5 --resume s-1",
		"codex":          "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --model m-1 resume s-1 -",
		"gemini":         "gemini --output-format stream-json --approval-mode yolo --model m-1 --resume s-1",
		"opencode":       "opencode run --format json --model m-1 --session s-1",
		"copilot":        "copilot --output-format json --no-color --allow-all-tools --model m-1 --resume=s-1",
		"mini-swe-agent": "", // the task's own
	}
	all, err := All("")
	if err != nil || len(all) != len(want) {
		t.Fatal(len(all), err)
	}
	for _, a := range all {
		if a.Origin() != "built in" || a.Description == "" || a.Prompt != PromptStdin || !slices.Contains(agents.Formats(), a.Events) {
			t.Errorf("%+v", a)
		}
		s, err := a.Settle(Asked{Model: "m-1", MaxTurns: 5, MaxUSD: 2.5})
		if want[a.Name] == "" {
			if err == nil || jobs.HintOf(err) == "" {
				t.Error(a.Name, err)
			}
			continue
		}
		again, ok := s.Agent.ResumeWith("s-1")
		if err != nil || !ok || strings.Join(again.Argv, " ") != want[a.Name] {
			t.Errorf("%s: %q %v", a.Name, again, err)
		}
		if first := sessionWords().ReplaceAllString(want[a.Name], ""); strings.Join(s.Command.Argv, " ") != first {
			t.Errorf("%s: %q, want %q", a.Name, s.Command, first)
		}
		if a.Name != "copilot" && len(a.Versions) == 0 {
			t.Errorf("%s says no version that it was tried with", a.Name)
		}
		if s.Agent.Sandbox == "" || s.Agent.Name != a.Name || s.Agent.Model != "m-1" {
			t.Errorf("%+v", s.Agent)
		}
	}
}

func TestSettle(t *testing.T) {
	claude, gemini, mini := find(t, "", "claude"), find(t, "", "gemini"), find(t, "", "mini-swe-agent")
	s, err := claude.Settle(Asked{OwnSandbox: true})
	if err != nil || slices.Contains(s.Command.Argv, "--dangerously-skip-permissions") || slices.Contains(s.Env, "IS_SANDBOX=1") || !strings.Contains(s.Agent.Sandbox, "are on") {
		t.Errorf("%+v %v", s, err)
	}
	s, err = claude.Settle(Asked{})
	if err != nil || !slices.Contains(s.Env, "IS_SANDBOX=1") || s.Agent.Sandbox != "claude: its own permissions and sandbox are off (--dangerously-skip-permissions IS_SANDBOX)" {
		t.Errorf("%+v %v", s, err)
	}
	s, err = mini.Settle(Asked{Command: jobs.Command{Shell: "mini -c x.yaml"}})
	if err != nil || s.Command.Shell != "mini -c x.yaml" || s.Agent.Events != "mini-swe-agent" {
		t.Errorf("%+v %v", s, err)
	}
	for _, c := range []struct {
		a    *Adapter
		o    Asked
		want string
	}{
		{gemini, Asked{OwnSandbox: true}, "no sandbox of its own that works in a container"},
		{mini, Asked{}, "has no command of its own"},
		{claude, Asked{Model: "--settings"}, "cannot name a model"},
		{claude, Asked{Model: "a b"}, "cannot name a model"},
		{claude, Asked{Model: "m", Command: jobs.Command{Shell: "x"}}, "has a command"},
	} {
		if _, err := c.a.Settle(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// TestOwn: a user's file stands over the built-in one of its name, or begins with one.
func TestOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "claude", `
like = "claude"
args = ["--print", "it's $HOME; {x}"]
env = []
[options]
model = []
[tells]
usd = "each"
[home]
".claude/x.json" = "{}"
`)
	write(t, dir, "own", "program = \"my-agent\"\nargs = [\"--task\", \"{prompt_file}\", \"a b\"]\nprompt = \"file\"\nevents = \"none\"\n[options]\nsession = [\"--go-on={}\"]\n")
	a := find(t, dir, "claude")
	if a.Origin() != filepath.Join(dir, "claude.toml") || a.Like != "claude" || a.Tells != (jobs.Tells{Turns: "each", Tokens: "each", USD: "each"}) || len(a.Env) != 0 || a.Options["max_turns"] == nil {
		t.Errorf("%+v", a)
	}
	s, err := a.Settle(Asked{MaxTurns: 3})
	if want := []string{"claude", "--print", "it's $HOME; {x}", "--dangerously-skip-permissions", "--max-turns", "3"}; err != nil || !reflect.DeepEqual(s.Command.Argv, want) {
		t.Errorf("%q %v", s.Command.Argv, err)
	}
	if _, err := a.Settle(Asked{Model: "m"}); err == nil || !strings.Contains(err.Error(), "has no option for model") {
		t.Error(err)
	}
	if b := find(t, "", "claude"); b.Options["model"] == nil || len(b.Home) != 0 {
		t.Errorf("the built-in one was changed: %+v", b)
	}
	s, err = find(t, dir, "own").Settle(Asked{})
	if want := `exec my-agent --task "$BERTH_PROMPT_FILE" 'a b'`; err != nil || s.Command.Shell != want || s.Command.Argv != nil {
		t.Errorf("%q %v", s.Command, err)
	}
	again, ok := s.Agent.ResumeWith("s-1")
	if want := `exec my-agent --task "$BERTH_PROMPT_FILE" 'a b' '--go-on=s-1'`; !ok || again.Shell != want {
		t.Errorf("%q %v", again, ok)
	}
	all, err := All(dir)
	if err != nil || len(all) != 7 {
		t.Error(len(all), err)
	}
	_, err = Find(dir, "claud")
	if jobs.KindOf(err) != jobs.KindNotFound || !strings.Contains(err.Error(), `did you mean "claude"?`) {
		t.Error(err)
	}
	for _, name := range []string{"../x", "", "A", "a/b", "-x"} {
		if _, err := Find(dir, name); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name+strict.Ext), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: each mistake is told with its line.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"progam = \"x\"":                                 `a.toml:1: unknown key "progam": did you mean "program"?`,
		"\nprogram = \"/usr/bin/x\"":                     "a.toml:2: program must be the name of a program in the image, without a path",
		"program = 1":                                    "a.toml:1: program must be a string",
		"program = \"x\"\nargs = [\"{prompt}\"]":         "a.toml:2: args[0] has the prompt in an argument, which other users of a machine can read",
		"program = \"x\"\nargs = [\"-p={prompt_file}\"]": "a.toml:2: args[0] has the prompt in an argument",
		"program = \"x\"\nargs = [\"{prompt_file}\"]":    "a.toml:2: args have {prompt_file}, and the prompt is the standard input",
		"program = \"x\"\nprompt = \"file\"":             `a.toml:2: prompt is "file", and 0 of the arguments are {prompt_file}`,
		"program = \"x\"\nargs = [\"{session}\"]":        "a.toml:2: args[0] has {session}, which stands for a session",
		"args = [\"x\"]":                                 "a.toml:1: args stand without a program",
		"args = [\"a\\u001bb\"]":                         "a.toml:1: args[0] holds a control character",
		"prompt = \"argv\"":                              "prompt must be",
		"events = \"xml\"":                               "events must be",
		"like = \"cloude\"":                              "like must be",
		"env = [\"HOME\"]":                               "gives no value",
		"env = [\"LD_PRELOAD=x\"]":                       "gives LD_PRELOAD, which is not for an adapter to set",
		"env = [\"BERTH_X=x\"]":                          "begins with BERTH_",
		"env = [\"1=x\"]":                                "is not made of letters, digits and underscores",
		"needs = [\"a/b\"]":                              "is not the name of a program",
		"hosts = [\"http://x\"]":                         "a.toml:1: hosts[0]",
		"versions = [\"1\", \"2\", \"3\"]":               "has more than the first and the last version",
		"versions = [\"latest\"]":                        "is not a version",
		"[options]\nmodel = [\"--model\"]":               "options.model must have the value once",
		"[options]\nmodel = [\"{}\", \"{}\"]":            "options.model must have the value once",
		"[options]\ncolour = [\"{}\"]":                   `unknown key "colour" in [options]`,
		"[exit]\n0 = \"turns\"":                          "is not an exit code from 1 to 255",
		"[exit]\n01 = \"turns\"":                         "is not an exit code from 1 to 255",
		"[exit]\n53 = \"done\"":                          "exit.53 must be",
		"[tells]\nturns = \"each\"":                      "says what events tell, and there are none",
		"[tells]\nturns = \"often\"":                     "tells.turns must be",
		"[home]\n\"../x\" = \"a\"":                       "must be a path below HOME",
		"[home]\n\"/etc/x\" = \"a\"":                     "must be a path below HOME",
		"[home]\n\"a//b\" = \"a\"":                       "must be a path below HOME",
		"[home]\nx = \"a\\u001bb\"":                      "holds a control character",
		"[home]\nx = 1":                                  "must be a string",
		"program = \"x\"\n[home]\nx = \"token ghp_abcdefghijklmnopqrstuv\"": "adapters are recorded with each job",
		"model = \"m\"": "is the task's to say",
	} {
		_, err := Parse("a.toml", "a", []byte(text))
		if err == nil || !strings.Contains(err.Error()+jobs.HintOf(err), want) || jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: whatever a file says, it is an adapter or an error, and what is settled has
// no prompt in its arguments.
func FuzzParse(f *testing.F) {
	for _, a := range shelf.Names() {
		text, _ := shelf.Ready(a)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Parse("a.toml", "a", text)
		if err != nil {
			return
		}
		s, err := a.Settle(Asked{Model: "m"})
		if err != nil {
			return
		}
		for _, w := range append(s.Command.Argv, s.Command.Shell) {
			if strings.Contains(w, "{prompt}") || strings.Contains(w, PromptWord) {
				t.Errorf("%q", w)
			}
		}
	})
}

// TestTemplates: each adapter has a template that is built in, that installs the version
// with which it was tried and what it needs, and that the page about templates names.
func TestTemplates(t *testing.T) {
	list, err := os.ReadFile("../../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := All("")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		w, err := templates.FindWorkspace("", a.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, v := range a.Versions {
			if !strings.Contains(w.Bootstrap, "@"+v+"\n") {
				t.Errorf("%s does not install %s", w.Name, v)
			}
		}
		if slices.Contains(a.Needs, "git") && !strings.Contains(w.Bootstrap, " git ") || slices.Contains(a.Needs, "rg") && !strings.Contains(w.Bootstrap, " ripgrep ") {
			t.Errorf("%s lacks one of %q", w.Name, a.Needs)
		}
		if !strings.Contains(string(list), "| `"+a.Name+"` |") {
			t.Errorf("the list lacks %s", a.Name)
		}
	}
}
