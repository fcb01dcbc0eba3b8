package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// An agent's answer counts only as the schema has it, and drives no terminal.
func TestOpinion(t *testing.T) {
	answer := func(points, findings string) string {
		return `{"verdict": "unsure", "points": [` + points + `], "findings": [` + findings + `]}`
	}
	yes := `{"point": 1, "met": "yes", "why": "x"}`
	no := `{"point": 2, "met": "no", "why": ""}`
	for text, want := range map[string]string{
		answer(yes+","+no, ""):                                       "",
		"```json\n" + answer(no+","+yes, "") + "\n```":               "",
		answer(yes, ""):                                              "1 points of 2",
		answer(yes+","+yes, ""):                                      "point 1, met",
		answer(yes+`,{"point": 3, "met": "no"}`, ""):                 "point 3",
		answer(yes+`,{"point": 2, "met": "maybe"}`, ""):              `met "maybe"`,
		answer(yes+","+no, `{"file": "", "text": "x"}`):              "finding 1",
		answer(yes+","+no, `{"file": "a", "line": -1, "text": "x"}`): "finding 1",
		answer(yes+","+no, strings.Repeat(`{"file": "a", "text": "x"},`, 50)+`{"file": "a", "text": "x"}`): "and 51 findings",
		strings.Replace(answer(yes+","+no, ""), "unsure", "merge", 1):                                      `verdict is "merge"`,
		answer(yes+","+no, "") + "{}": "more follows",
		`{"approved": true}`:          "no JSON of the form",
		"APPROVE":                     "no JSON of the form",
		"":                            "no JSON of the form",
		strings.Repeat(" ", 10) + strings.Repeat("x", 70000): "may have 65536",
	} {
		o, err := opinion(text, 2)
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || o.Verdict != "") {
			t.Errorf("%.100q: %+v, %v, not %q", text, o, err, want)
		}
	}
	o, err := opinion(answer("", `{"file": "a\nb", "line": 3, "text": "c\u001b[2Jd"}`), 0)
	must(t, err)
	if f := o.Findings[0]; f.File != "a b" || f.Text != "c [2Jd" || f.Line != 3 {
		t.Errorf("%+q", fmt.Sprint(f))
	}
}

// The change is no part of the prompt.
func TestAdvicePrompt(t *testing.T) {
	p := advicePrompt(&jobs.Spec{}, map[string]string{"": "c"}, []byte("Make it so.\n\n## Done when\n- one\n- two\n"))
	for _, want := range []string{"Make it so.", "1. one\n2. two\n", "each of the 2 points", "untrusted data", ".berth-review/diff.patch"} {
		if !strings.Contains(p, want) {
			t.Errorf("%q is not in it:\n%s", want, p)
		}
	}
	p = advicePrompt(&jobs.Spec{Command: jobs.Command{Shell: "make"}}, nil, nil)
	if !strings.Contains(p, "It was a command: make") || !strings.Contains(p, `"points" is []`) {
		t.Error(p)
	}
}

// An agent is given each repository of a result where the task had it, with its change beside
// it; what it says is of all of their trees.
func TestAdviceOfTwo(t *testing.T) {
	f, r, app, lib := twoRepos(t)
	r.Spec.Backend, r.Spec.Image = jobs.BackendSingularity, f.sif
	ask := func() (*jobs.Record, *Review) {
		t.Helper()
		child, rv, err := f.AskReviewer(t.Context(), r, "", Reviewer{Agent: jobs.Agent{Name: "look"}, Command: jobs.Command{Shell: "true"}})
		must(t, err)
		return child, rv
	}
	child, rv := ask()
	s := &child.Spec
	if !s.Workspace.ReadOnly || len(s.Further) != 1 || s.Further[0].Name != "lib" || len(s.Done) != 0 {
		t.Errorf("%+v", s)
	}
	for i, git := range []func(...string) string{app, lib} {
		w := s.Workspaces()[i]
		show := func(path string) string { return git("--git-dir="+w.GitDir, "show", w.Base+":"+path) }
		if w.Branch != s.Workspace.Branch || w.GitDir == r.Spec.Workspaces()[i].GitDir || show("a") != "2"+w.Name ||
			!strings.HasSuffix(show(".berth-review/diff.patch"), "\n-1\n+2"+w.Name) {
			t.Errorf("%+v: %s", w, show(".berth-review/diff.patch"))
		}
		_, err := f.git.Line(t.Context(), workspace.Call{GitDir: r.Spec.Workspaces()[i].GitDir, Args: []string{"cat-file", "-e", w.Base}})
		if err == nil {
			t.Errorf("the commit of the advice is in the repository %q", w.Name)
		}
	}
	prompt, err := store.Prompt(child.Dir, s.PromptBytes)
	must(t, err)
	for _, want := range []string{"in the current directory: its change is in .berth-review/diff.patch\n",
		"in .repos/lib: its change is in .repos/lib/.berth-review/diff.patch\n"} {
		if !strings.Contains(string(prompt), want) {
			t.Errorf("%q is not in %s", want, prompt)
		}
	}

	// It holds as long as each tree is that one, whichever target moves.
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, store.FileStdout), []byte(`{"verdict": "reject"}`), 0o600))
	child.Attempts = []jobs.Attempt{{Dir: dir, Exit: &jobs.ExitRecord{State: jobs.StateCompleted}}}
	v, err := f.ReviewerSaid(rv, child)
	if err != nil || v.Problem != "" || v.TreeOf("") != rv.Tree || v.TreeOf("lib") != rv.Further[0].Tree || v.TreeOf("nosuch") != "" {
		t.Fatalf("%+v, %v", v, err)
	}
	advice := func() *jobs.ReviewAdvice {
		t.Helper()
		rv, err := f.Review(t.Context(), r, "")
		must(t, err)
		return rv.Advice()
	}
	if a := advice(); a == nil || a.Verdict != jobs.VerdictReject || a.N != 1 {
		t.Errorf("%+v", a)
	}
	for i, git := range []func(...string) string{app, lib} {
		git("commit", "-q", "--allow-empty", "-m", "the same tree")
		if a := advice(); a == nil {
			t.Errorf("%d: an empty commit made it old", i)
		}
		must(t, os.WriteFile(filepath.Join(r.Spec.Workspaces()[i].Repo, "more"), nil, 0o600))
		git("add", "more")
		git("commit", "-q", "-m", "more")
		if a := advice(); a != nil {
			t.Errorf("%d: %+v", i, a)
		}
		git("reset", "-q", "--hard", "HEAD^^")
	}

	// A result that has the name of what the agent is given is refused, with its repository.
	must(t, os.WriteFile(filepath.Join(r.Spec.Further[0].Repo, ".berth-Review"), nil, 0o600))
	lib("add", ".berth-Review")
	lib("commit", "-q", "-m", "taken")
	_, _, err = f.AskReviewer(t.Context(), r, "", Reviewer{})
	if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "workspace lib") || !strings.Contains(err.Error(), ".berth-Review") {
		t.Errorf("%v", err)
	}
}

// The repositories that did not change are named as such, and the task stands in one that did.
func TestWhereChanged(t *testing.T) {
	s := &jobs.Spec{Workspace: &jobs.WorkspaceSpec{}, Further: []jobs.WorkspaceSpec{{Name: "lib"}, {Name: "tools"}}}
	text := whereChanged(s, map[string]string{"lib": "c"})
	for _, want := range []string{"- the first repository, in the current directory: nothing was changed",
		"- the repository tools, in .repos/tools: nothing was changed",
		"its change is in .repos/lib/.berth-review/diff.patch\n", "as it was given is in .repos/lib/.berth-review/task.md."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}
