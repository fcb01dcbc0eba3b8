package workspace

import (
	"strings"
	"testing"
)

func TestContains(t *testing.T) {
	for _, c := range []struct {
		scope, text string // patterns of the scope, between spaces
		want        bool
	}{
		{"", "src", true}, {"", ".", true}, {"", ".github", false}, {"", "docs/CLAUDE.md", false}, {".", ".github/", false}, {".github", ".github/workflows", true},
		{"src", "src", true}, {"src", "src/a/b", true}, {"src", "src/**/*.go", true}, {"src", "src/*", true}, {"src", "./src", true}, {"src", "/src/a", true}, {"src docs", "docs/a", true},
		{"src", "src2", false}, {"src", "lib", false}, {"src", ".", false}, {"src", "**", false}, {"src", "*.go", false}, {"src", "**/src", false}, {"src", "s*", false},
		{"docs/", "docs/a", true}, {"docs/", "docs/", true}, {"docs/", "docs/*.md", true}, {"docs/", "docs/**", true}, {"docs/", "docs", false},
		{"*.py", "*.py", true}, {"*.py", "src/*.py", true}, {"*.py", "src/**/*.py", true}, {"*.py", "a.py", true}, {"*.py", "src/a.py", true}, {"*.py", "*.p?", false}, {"/*.py", "*.py", false},
		{"*.py", "src", false}, {"src/*.py", "*.py", false}, {"src/*/a", "src/b/a", true}, {"src/*/a", "src/*/a", true}, {"src/*/a", "src/**/a", false}, {"docs/?", "docs/", false},
		{"**/a/", "b/a", false}, {"**/a/", "b/a/", true}, {"**/a/", "b/a/c", true}, {`a\*`, `a\*`, true}, {`a\*`, "a*", false}, {`a\*`, `a\*/b`, true}, {".", "x/*", true}, {".", "*", true},
		{"src/[ab]", "src/a", true}, {"src/[ab]", "src/[a]", false}, {"src .github", "src/.github", false},
	} {
		s, err := ParseScope(strings.Fields(c.scope))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Contains(c.text); got != c.want || err != nil {
			t.Errorf("%q in %q: %v, %v", c.text, c.scope, got, err)
		}
	}
	s, _ := ParseScope([]string{"src"})
	for _, text := range []string{"", "../x", "src/../x", "!src", "{a}", "a\x00"} {
		if got, err := s.Contains(text); got || err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Whatever a pattern is that a scope contains, it covers no path that the scope does not.
func FuzzContains(f *testing.F) {
	f.Add("src", "src/**/*.py", "src/a/b.py")
	f.Add("docs/", "docs/*", "docs")
	f.Add("*.py", "a/*.py", "a/x.py/b")
	f.Add("**/a/", "b/**/a/", "b/a")
	f.Add(`a\*/b`, `a\*/b`, "a*/b/c")
	f.Fuzz(func(t *testing.T, outer, inner, path string) {
		s, err := ParseScope([]string{outer})
		if err != nil {
			return
		}
		within, err := s.Contains(inner)
		if err != nil || !within {
			return
		}
		q, _ := ParseScope([]string{inner})
		if q.Covers(path) && !s.Covers(path) {
			t.Errorf("%q is within %q, and covers %q", inner, outer, path)
		}
	})
}
