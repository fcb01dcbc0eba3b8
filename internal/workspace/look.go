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
	controlDirs = []string{".agents", ".amazonq", ".augment", ".builds", ".buildkite", ".circleci", ".claude", ".clinerules", ".codex", ".continue",
		".copilot", ".cursor", ".devcontainer", ".forgejo", ".gemini", ".gitea",
		".githooks", ".github", ".gitlab", ".husky", ".idea", ".junie", ".kiro",
		".opencode", ".roo", ".semaphore", ".teamcity", ".vscode", ".windsurf", ".woodpecker", ".zed"}
	controlFiles = []string{".aider.conf.yml", ".appveyor.yml", ".build.yml", ".cirrus.yml", ".cursorrules", ".devcontainer.json", ".drone.yml", ".envrc",
		".goosehints", ".lefthook.yml", ".lfsconfig", ".mcp.json", ".pre-commit-config.yaml", ".roorules", ".travis.yml", ".windsurfrules",
		".woodpecker.yaml", ".woodpecker.yml", "agents.md", "agents.override.md", "appveyor.yml", "azure-pipelines.yml", "berth.toml",
		"bitbucket-pipelines.yml", "buildspec.yml", "claude.local.md", "claude.md", "cloudbuild.yaml", "cloudbuild.yml", "codefresh.yml", "codeowners",
		"gemini.md", "jenkinsfile", "lefthook.yml", "opencode.json", "opencode.jsonc"}
	// plainGit are names of git's that say what it leaves out, and no more.
	plainGit = []string{".git-blame-ignore-revs", ".gitignore", ".gitkeep"}
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
		case last && strings.HasPrefix(name, ".git") && !slices.Contains(plainGit, name):
			return part
		}
	}
	return ""
}

// NamesControl returns the part of a pattern that names control files, or "".
func NamesControl(text string) string {
	p, err := parsePattern(text)
	if err != nil {
		return ""
	}
	for _, part := range p.parts {
		if name := strings.ReplaceAll(part, `\`, ""); !hasUnescaped(part, "*?[") && control(name) != "" {
			return name
		}
	}
	return ""
}

// names says whether a pattern that covers the path says this part of it without
// a wildcard: "." covers .claude/settings.json, and .claude names it.
func (s Scope) names(p, part string) bool {
	parts := strings.Split(p, "/")
	return slices.ContainsFunc(s.patterns, func(pat pattern) bool { return pat.covers(parts) && pat.says(part) })
}

// lookAt says what to look at before the change is used, or "", and which of its names
// needs a scope that says it ("" is none). first: the one to be told before others.
func (f *Change) lookAt(scope Scope) (text string, outside Path, first int) {
	unsaid := func(p Path, part string) Path {
		if scope.names(string(p), part) {
			return ""
		}
		return p
	}
	name, old := control(string(f.Path)), control(string(f.OldPath))
	switch {
	case f.Status == Deleted && name != "":
		return f.Path.Printable() + " (deleted)", unsaid(f.Path, name), 0
	case f.Status == Deleted:
		return "", "", 0
	case f.Escapes:
		if name == "" {
			name = path.Base(string(f.Path))
		}
		return fmt.Sprintf("%s -> %s", f.Path.Printable(), f.Target.Printable()), unsaid(f.Path, name), 1
	case name != "":
		return f.Path.Printable(), unsaid(f.Path, name), 0
	case old != "":
		return f.OldPath.Printable() + " (moved away)", unsaid(f.OldPath, old), 0
	case f.Mode == modeExec && f.OldMode != modeExec:
		return f.Path.Printable() + " (executable)", "", 2
	}
	return "", "", 0
}

// Suspicious tells what about the change is to be looked at, whatever the scope says:
// programs obey the file, it is a link that leads out, it can be run and could not before.
func (f *Change) Suspicious() (isControl, link, executable bool) {
	if f.Status == Deleted {
		return false, false, false
	}
	return control(string(f.Path)) != "", f.Escapes, f.Mode == modeExec && f.OldMode != modeExec
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
