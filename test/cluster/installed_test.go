//go:build cluster && agents && linux

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/test/fakes/internet"
	"berth/test/fakes/models"
)

// installed is an agent's program that scripts/test.d/agents has put into the image.
type installed struct {
	name, credential, model string
	run, write              string // the tools that it calls for a command, and for a file
}

var all = []installed{
	{"claude", "anthropic", "claude-sonnet-4-6", "Bash", "Write"},
	{"codex", "openai", "gpt-5.1-codex", "", ""},
	{"gemini", "gemini", "gemini-2.5-pro", "run_shell_command", "write_file"},
	{"opencode", "anthropic", "anthropic/claude-sonnet-4-5", "bash", "write"},
}

// searches is a script that looks for the key where a task can; it has only the halves of it.
const searches = `word=$(printf %s%s ` + "sk-test- 8f14e45f" + `)
for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\0' '\n' <$f; done 2>/dev/null >/tmp/all
inside=$(grep -c $word /tmp/all)
rm /tmp/all
files=$(grep -rlsa --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=opt $word / | wc -l)
echo "seen $(grep -c . wordcount.py) lines, the key: $inside in processes, $files in files"
`

// TestInstalledAgents has the programs themselves work on Slurm in containers whose network is the broker of their key alone;
// their models are played, see [models.Play].
func TestInstalledAgents(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes the nodes' name server
	s.internet(t)
	t.Cleanup(func() { s.quiet(t) })
	s.image = "/mnt/share/agents.sif"
	a := s.agents(t)
	a.repo = "night"
	a.ok(t, fmt.Sprintf(`cd %[1]s; cat >>config/berth/config.toml <<E
"claude*" = {input = 50, output = 50}
"gpt*" = {input = 50, output = 50}
"gemini*" = {input = 50, output = 50}
[credentials.openai]
from = "file:%[1]s/config/berth/key"
upstream = "https://model.test/v1"
ca = "/mnt/share/internet/ca.pem"
[credentials.gemini]
from = "file:%[1]s/config/berth/key"
upstream = "https://model.test"
ca = "/mnt/share/internet/ca.pem"
E
cd night && cat >look.sh <<'E' && git add look.sh && git commit -qm "Look for the key"
%[2]sE`, a.dir, searches))
	names := strings.Fields(os.Getenv("BERTH_AGENTS"))
	if len(names) == 0 {
		t.Fatal("BERTH_AGENTS names no agent: run scripts/test.d/agents")
	}
	for _, g := range all {
		if slices.Contains(names, g.name) {
			t.Run(g.name, func(t *testing.T) { a.installed(t, g) })
		}
	}
	for _, e := range s.arrived(t) {
		if e.Kind == "http" && e.Name != "model.test" {
			t.Errorf("beside the model something was asked: %+v", e)
		}
	}
}

// task has one submitted whose model says what the lines have.
func (a agents) task(t *testing.T, g installed, name, more string, lines ...string) string {
	t.Helper()
	file := a.dir + "/" + g.name + "-" + name + ".md"
	a.ok(t, "cat >"+file+" <<'E'\n+++\nname = '"+g.name+" "+name+"'\ncredentials = ['"+g.credential+"']\nretry = 'off'\n"+more+
		"\n[network]\nmode = 'allow'\n[agent]\nuse = '"+g.name+"'\nmodel = '"+g.model+"'\n+++\n"+strings.Join(lines, "\n")+"\n\n## Done when\n\n- [ ] it is done\nE")
	return a.berth(t, "submit --scheduler slurm --image "+a.image+" --workspace . --time 10m --memory 2GiB "+file)
}

func (a agents) installed(t *testing.T, g installed) {
	const done = "done = ['python3 -m unittest']\n[workspace]\nscope = ['*.py']"
	var long []string
	for i := range 8 {
		long = append(long, fmt.Sprintf("%secho step %d", models.PlayRun, i))
	}
	work := a.task(t, g, "work", done, models.PlayRun+`sed -i 's/\[: n - 1\]/[:n]/' wordcount.py`, models.PlayWrite+"/work/more.py MORE = 1",
		models.PlayRun+"sh look.sh", models.PlayRun+"python3 -m unittest")
	turns := a.task(t, g, "turns", "[caps]\nmax_turns = 2", long...)
	dollars := a.task(t, g, "dollars", "[caps]\nmax_usd = 0.2", long...)
	t.Run("work", func(t *testing.T) { a.works(t, g, work) })
	t.Run("turns", func(t *testing.T) { a.capped(t, turns, "cap max_turns met: 2 of 2 turns|own cap of turns") })
	t.Run("dollars", func(t *testing.T) { a.capped(t, dollars, "cap max_usd met") })
}

// ended waits for a job, and returns what went wrong with it as far as that is known.
func (a agents) ended(t *testing.T, id string, code int) string {
	t.Helper()
	w := a.sh(t, a.line("wait --timeout 20m "+id))
	status := a.berth(t, "status "+id)
	if w.code != code {
		t.Errorf("exit code %d, want %d\n%s\n%s\n%s\n%s", w.code, code, w.err, status, a.sh(t, a.line("logs --stdout "+id+" | tail -c 6000")).out,
			a.sh(t, a.line("logs --stderr "+id+" | tail -c 3000")).out)
	}
	return status
}

// works: it has called its tools, the repository's tests pass, the branch is there, and the record tells what was used.
func (a agents) works(t *testing.T, g installed, id string) {
	said := a.ended(t, id, 0)
	var got struct {
		Jobs []struct {
			status
			Agent struct {
				Version string
				Turns   int
				Tools   []struct {
					Name  string
					Calls int
				}
			}
			Spent struct {
				Turns    int
				Calls    int   `json:"tool_calls"`
				Input    int64 `json:"input_tokens"`
				Output   int64 `json:"output_tokens"`
				USD      float64
				ByEvents int `json:"by_events"`
			}
		}
	}
	if err := json.Unmarshal([]byte(a.berth(t, "status --json "+id)), &got); err != nil || len(got.Jobs) != 1 {
		t.Fatalf("%v\n%s", err, said)
	}
	j := got.Jobs[0]
	// Four calls and an end are five answers; some ask for a title, too.
	if u := j.Spent; j.Agent.Turns < 4 || u.Turns < 4 || u.Calls != 4 || u.Input < 5*models.PlayedIn || u.Output < 5*models.PlayedOut ||
		u.USD < 0.27 || u.ByEvents != 0 {
		t.Errorf("what it used: %+v, its own: %+v", j.Spent, j.Agent)
	}
	if j.Agent.Version == "" && !strings.Contains(said, "did not tell its version within") { // on a busy machine
		t.Errorf("its version is not in the record:\n%s", said)
	}
	for _, tool := range []string{g.run, g.write} {
		if tool != "" && !strings.Contains(fmt.Sprint(j.Agent.Tools), tool) {
			t.Errorf("the tool %s is not among %v", tool, j.Agent.Tools)
		}
	}
	if !j.Taken || j.Branch == "" {
		t.Fatalf("no branch:\n%s", said)
	}
	if branch := a.ok(t, fmt.Sprintf("cd %s/%s && git show %[3]s:wordcount.py | grep -c '\\[:n\\]' && git show %[3]s:more.py",
		a.dir, a.repo, quote(j.Branch))); branch != "1\nMORE = 1" {
		t.Errorf("the branch has %q", branch)
	}
	events := a.berth(t, "logs --transcript --json "+id)
	if !regexp.MustCompile(`seen [1-9]\d* lines, the key: 0 in processes, 0 in files`).MatchString(events) || !strings.Contains(events, models.PlayEnd) {
		t.Errorf("its events:\n%s", events)
	}
	if files := a.ok(t, "grep -rlsa '"+internet.ModelKey[:16]+"' "+quote(j.Dir)+"; true"); files != "" {
		t.Errorf("the key is in %s", files)
	}
}

// capped: a cap has ended it, berth's or its own, and is named.
func (a agents) capped(t *testing.T, id, says string) {
	if said := a.ended(t, id, 10); !regexp.MustCompile(says).MatchString(said) {
		t.Errorf("it does not say %s:\n%s", says, said)
	}
}
