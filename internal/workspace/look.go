package workspace

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Control files are obeyed by programs of whoever works in the repository: by
// editors and agents when it is opened, by a shell on cd, by git, by berth, by the
// machines that check each push.
var (
	controlDirs = []string{".buildkite", ".circleci", ".claude", ".codex", ".cursor", ".devcontainer", ".gemini", ".githooks", ".gitlab", ".husky",
		".idea", ".vscode", ".woodpecker", ".zed"}
	controlFiles = []string{".appveyor.yml", ".cirrus.yml", ".devcontainer.json", ".drone.yml", ".envrc", ".gitconfig",
		".gitlab-ci.yml", ".gitmodules", ".mcp.json", ".pre-commit-config.yaml", ".travis.yml", ".woodpecker.yaml", ".woodpecker.yml",
		"appveyor.yml", "azure-pipelines.yml", "berth.toml", "bitbucket-pipelines.yml", "jenkinsfile"}
	// controlForges have other directories, too.
	controlForges = []string{".forgejo", ".gitea", ".github"}
)

// control gives the part of a path that makes it one of a control file, as it is
// written there, or "". Case does not count: to some file systems it is nothing.
func control(p string) string {
	parts := strings.Split(p, "/")
	for i, part := range parts {
		last, name := i == len(parts)-1, strings.ToLower(part)
		switch {
		case slices.Contains(controlDirs, name), last && slices.Contains(controlFiles, name):
			return part
		case slices.Contains(controlForges, name):
			if last || slices.Contains([]string{"workflows", "actions"}, strings.ToLower(parts[i+1])) {
				return part
			}
		}
	}
	return ""
}

// names says whether a pattern that covers the path says this part of it without
// a wildcard: "." covers .claude/settings.json, and .claude names it.
func (s Scope) names(p, part string) bool {
	parts := strings.Split(p, "/")
	return slices.ContainsFunc(s.patterns, func(pat pattern) bool {
		return pat.covers(parts) && slices.ContainsFunc(pat.parts, func(text string) bool {
			return !hasUnescaped(text, "*?[") && strings.EqualFold(strings.ReplaceAll(text, `\`, ""), part)
		})
	})
}

// lookAt says what to look at before the change is used, or "", and whether it
// needs a scope that names it. first: the one to be told before others.
func (f *Change) lookAt(scope Scope) (text string, outside bool, first int) {
	p := string(f.Path)
	name := control(p)
	switch {
	case f.Status == Deleted:
		return "", false, 0
	case f.Escapes:
		if name == "" {
			name = path.Base(p)
		}
		return fmt.Sprintf("%s -> %s", f.Path.Printable(), f.Target.Printable()), !scope.names(p, name), 1
	case name != "":
		return f.Path.Printable(), !scope.names(p, name), 0
	case f.Mode == modeExec && f.OldMode != modeExec:
		return f.Path.Printable() + " (executable)", false, 2
	}
	return "", false, 0
}

// maxLookAt bounds the list of what is to be looked at; the manifest has every path.
const maxLookAt = 20

// looked makes the list of what was found, by its weight.
func looked(found [3][]string) []string {
	all := slices.Concat(found[:]...)
	if n := len(all) - maxLookAt; n > 0 {
		all = append(all[:maxLookAt:maxLookAt], fmt.Sprintf("and %d more", n))
	}
	return all
}
