package review

import (
	"path"
	"slices"
	"strings"

	"berth/internal/workspace"
)

// File is a changed path, and why to look at it.
type File struct {
	workspace.Change
	// Why are the reasons to look at it before the others; none is an ordinary file.
	Why []string
	// Test says that it looks like a test, or what decides how tests run.
	Test bool
}

// Files sorts changes: what to look at first comes first.
func Files(changes []workspace.Change) []File {
	out := make([]File, len(changes))
	for i, c := range changes {
		out[i] = File{Change: c, Why: why(&c), Test: isTest(string(c.Path))}
	}
	slices.SortStableFunc(out, func(a, b File) int {
		switch first := len(a.Why) > 0; {
		case first == (len(b.Why) > 0):
			return 0
		case first:
			return -1
		}
		return 1
	})
	return out
}

// Modes of git's.
const (
	modeExec    = "100755"
	modeLink    = "120000"
	modeGitlink = "160000"
)

func why(c *workspace.Change) (out []string) {
	p := string(c.Path)
	base := strings.ToLower(path.Base(p))
	switch {
	case workspace.ControlFile(p) != "":
		out = append(out, "programs obey it")
	case strings.HasPrefix(base, ".git"):
		out = append(out, "git obeys it")
	}
	switch {
	case c.Status == workspace.Deleted:
	case c.Mode == modeLink && c.Escapes:
		out = append(out, "a link out of the tree, to "+c.Target.Printable())
	case c.Mode == modeLink:
		out = append(out, "a link to "+c.Target.Printable())
	case c.Mode == modeGitlink:
		out = append(out, "a submodule")
	case c.OldMode != "" && c.OldMode != c.Mode:
		out = append(out, "mode "+c.OldMode+" -> "+c.Mode)
	case c.OldMode == "" && c.Mode == modeExec:
		out = append(out, "a new executable")
	}
	return out
}

// isTest says whether a path looks like a test, or decides how tests run.
func isTest(p string) bool {
	p = strings.ToLower(p)
	base := path.Base(p)
	stem := strings.TrimSuffix(base, path.Ext(base))
	switch base {
	case "conftest.py", "pytest.ini", "tox.ini", "noxfile.py", "jest.config.js", "jest.config.ts", "vitest.config.ts", "setup.cfg", "pyproject.toml",
		"makefile", "package.json", "cmakelists.txt", "cargo.toml":
		return true
	}
	if strings.HasPrefix(stem, "test_") || strings.HasSuffix(stem, "_test") || strings.HasSuffix(stem, ".test") || strings.HasSuffix(stem, ".spec") {
		return true
	}
	return slices.ContainsFunc(strings.Split(path.Dir(p), "/"), func(d string) bool {
		return slices.Contains([]string{"test", "tests", "testdata", "spec", "__tests__"}, d)
	})
}
