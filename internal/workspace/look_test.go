package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What programs of the user would obey is told, and out of scope unless the scope
// names it.
func TestLookAt(t *testing.T) {
	for _, c := range []struct {
		files   map[string]string
		scope   []string
		look    []string
		outside []Path
	}{
		{files: map[string]string{"b": "1"}},
		{files: map[string]string{".claude/settings.json": "{}", "notes.txt": "->/home/ada/.ssh/authorized_keys", "run.sh": "+x"},
			look:    []string{".claude/settings.json", "notes.txt -> /home/ada/.ssh/authorized_keys", "run.sh (executable)"},
			outside: []Path{".claude/settings.json", "notes.txt"}},
		{files: map[string]string{"sub/.VSCode/tasks.json": "{}"}, scope: []string{"sub/**"}, look: []string{"sub/.VSCode/tasks.json"}, outside: []Path{"sub/.VSCode/tasks.json"}},
		{files: map[string]string{"sub/.vscode/tasks.json": "{}"}, scope: []string{"**/.vscode"}, look: []string{"sub/.vscode/tasks.json"}},
		{files: map[string]string{".github/workflows/a.yml": "a", ".github/README": "r"}, scope: []string{"."}, look: []string{".github/README", ".github/workflows/a.yml"},
			outside: []Path{".github/README", ".github/workflows/a.yml"}},
		{files: map[string]string{".github/workflows/a.yml": "a"}, scope: []string{".github/"}, look: []string{".github/workflows/a.yml"}},
		{files: map[string]string{"berth.toml": "", ".envrc": "", ".gitmodules": "", "Jenkinsfile": "", ".gitlab-ci.yml": ""}, scope: []string{".*", "*"},
			look:    []string{".envrc", ".gitlab-ci.yml", ".gitmodules", "Jenkinsfile", "berth.toml"},
			outside: []Path{".envrc", ".gitlab-ci.yml", ".gitmodules", "Jenkinsfile", "berth.toml"}},
		{files: map[string]string{"CLAUDE.md": "do", "src/agents.md": "so", ".opencode/x": "1", ".gitattributes": "* filter=x", "sub/.gitignore": "*.o"},
			look:    []string{".gitattributes", ".opencode/x", "CLAUDE.md", "src/agents.md"},
			outside: []Path{".gitattributes", ".opencode/x", "CLAUDE.md", "src/agents.md"}},
		{files: map[string]string{"CLAUDE.md": "do"}, scope: []string{"a", "CLAUDE.md"}, look: []string{"CLAUDE.md"}},
		{files: map[string]string{"l": "->../up", "in": "->a"}, scope: []string{"l", "in"}, look: []string{"l -> ../up"}},
		{files: map[string]string{"a\x1b]52;c;/.envrc": "x"}, look: []string{`"a\033]52;c;/.envrc"`}, outside: []Path{"a\x1b]52;c;/.envrc"}},
	} {
		f := newFixture(t)
		f.commit(map[string]string{"a": "1\n", ".claude/old": "x"})
		f.prepare()
		f.write(f.work(), c.files)
		scope, err := ParseScope(c.scope)
		must(t, err)
		res := f.collect(CollectOptions{Scope: scope})
		same(t, "look at", append([]string{}, res.LookAt...), append([]string{}, c.look...))
		same(t, "out of scope", res.OutOfScope, append([]Path{}, c.outside...))
		same(t, "recorded", append([]string{}, res.Record().LookAt...), append([]string{}, c.look...))
	}
}

// What is taken away from programs of the user, or moved to where they do not look, is
// told, too: a task could switch its own checks off.
func TestLookAtDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		scope   []string
		outside []Path
	}{
		"no scope":        {outside: []Path{".gitlab-ci.yml", ".github/workflows/a.yml"}},
		"all is covered":  {scope: []string{"."}, outside: []Path{".gitlab-ci.yml", ".github/workflows/a.yml"}},
		"they are named":  {scope: []string{".gitlab-ci.yml", ".github", "old.yml"}},
		"one of them is":  {scope: []string{".", ".gitlab-ci.yml"}, outside: []Path{".github/workflows/a.yml"}},
		"nothing of them": {scope: []string{"old.yml"}, outside: []Path{".gitlab-ci.yml", ".github/workflows/a.yml"}},
	} {
		f := newFixture(t)
		f.commit(map[string]string{"a": "1\n", ".gitlab-ci.yml": "test: x\n", ".github/workflows/a.yml": strings.Repeat("on: push\n", 20)})
		f.prepare()
		must(t, os.Remove(filepath.Join(f.work(), ".gitlab-ci.yml")))
		must(t, os.Rename(filepath.Join(f.work(), ".github/workflows/a.yml"), filepath.Join(f.work(), "old.yml")))
		scope, err := ParseScope(c.scope)
		must(t, err)
		res := f.collect(CollectOptions{Scope: scope})
		same(t, name+": look at", res.LookAt, []string{".gitlab-ci.yml (deleted)", ".github/workflows/a.yml (moved away)"})
		same(t, name+": out of scope", res.OutOfScope, append([]Path{}, c.outside...))
	}
}

func TestLookAtBounded(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	files := map[string]string{"z/.envrc": "x", "long/" + strings.Repeat("x", 200) + "/.envrc": "x"}
	for i := range 50 {
		files[fmt.Sprintf("bin/%d", i)] = "+x"
	}
	f.write(f.work(), files)
	res := f.collect(CollectOptions{})
	if n := len(res.LookAt); n != maxLookAt+1 || !strings.HasPrefix(res.LookAt[0], "long/") || len(res.LookAt[0]) > 200 || res.LookAt[1] != "z/.envrc" || res.LookAt[n-1] != "and 32 more" {
		t.Errorf("%q", res.LookAt)
	}
}
