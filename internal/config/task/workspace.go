package task

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/workspace"
	"berth/jobs"
)

// workspaceOf reads [workspace]; a table without repo, but for ports, means the directory of the
// task file.
func workspaceOf(t *strict.Reader) *jobs.Workspace {
	t.Refuse("stands in [terminal]", "template")
	t.Refuse("is not needed: berth chooses the name of the branch", "branch")
	t.Later("it is not built yet", "submodules", "lfs", "depth")
	t.Refuse("stands in a template, which [terminal] names", "bootstrap")
	t.Synonyms("repo", "repository", "path", "dir")
	t.Synonyms("base", "ref", "commit", "rev")
	t.Synonyms("scope", "paths", "allow")
	repo, base := t.Take("repo"), t.Take("base")
	w := &jobs.Workspace{Repo: repo.Path(), Base: base.Text(), Scope: patterns(t.Take("scope"))}
	if !t.Given() || len(t.Names()) == 1 && t.Names()[0] == "ports" {
		return nil
	}
	if !repo.Given() {
		w.Repo = repo.Resolve(".")
	}
	if strings.HasPrefix(w.Base, "-") || strings.ContainsAny(w.Base, " ") {
		base.Failf("", "is not the name of a commit: %q", w.Base)
	}
	return w
}

// further reads [[workspaces]], the repositories beside that of [workspace].
func further(v strict.Value, first bool) (out []jobs.Workspace) {
	items := v.Items("tables")
	switch {
	case len(items) > 0 && !first:
		v.Failf(`add [workspace] repo = "."`, "are beside the one of [workspace], which is missing")
	case len(items) > jobs.MaxFurther:
		v.Failf("", "are more than %d", jobs.MaxFurther)
		return nil
	}
	for _, item := range items {
		if !item.Is(strict.Table) {
			item.MustBe("a table with name and repo")
			continue
		}
		t := item.Table()
		t.Need("name", `"lib"`)
		t.Need("repo", `"../lib"`)
		name := t.Take("name")
		w := workspaceOf(t)
		if w == nil {
			continue
		}
		if w.Name = name.Text(); w.Name != "" {
			if err := jobs.CheckWorkspaceName(w.Name); err != nil {
				name.Failf("", "%v", err)
			}
		}
		if slices.ContainsFunc(out, func(o jobs.Workspace) bool { return o.Name == w.Name }) {
			name.Failf("", "is that of another workspace: %q", w.Name)
		}
		out = append(out, *w)
	}
	return out
}

// ports reads the numbers on which services of the task will listen.
func ports(v strict.Value) []int {
	var out []int
	for _, item := range v.Items("ports") {
		if p := item.Count(65535); p != 0 && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// patterns reads a list of paths inside the workspace, as [workspace.Scope]
// understands them.
func patterns(v strict.Value) []string {
	var out []string
	for _, item := range v.Items("paths") {
		s := item.Text()
		switch {
		case s == "":
			continue
		case filepath.IsAbs(s):
			item.Failf("", "must be relative to the workspace, found %q: did you mean %q?", s, "."+filepath.Clean(s))
			continue
		case strings.HasPrefix(s, "~"):
			item.Failf("", "must be relative to the workspace, found %q", s)
			continue
		case hasDotDot(s):
			item.Failf("", "must stay inside the workspace, found %q", s)
			continue
		}
		if _, err := workspace.ParseScope([]string{s}); err != nil {
			failPattern(item, err)
			continue
		}
		out = append(out, s)
	}
	return out
}

// failPattern passes on what the workspace says of a pattern that it does not
// understand: better here, with a line, than on a node hours later.
func failPattern(item strict.Value, err error) {
	hint := ""
	if e := (*workspace.Error)(nil); errors.As(err, &e) {
		hint = e.Hint()
	}
	item.Failf(hint, "is not understood: %v", err)
}

func hasDotDot(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
