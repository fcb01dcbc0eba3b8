package guest

import "testing"

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"", "a/b", true},
		{"*.go", "a/b.go", true},
		{"*.go", "b.gone", false},
		{"*", ".hidden", true},
		{"?.go", "é.go", true},
		{"./a/*.go", "a/b.go", true},
		{"a/*.go", "a/b/c.go", false},
		{"a/**/*.go", "a/c.go", true},
		{"a/**/*.go", "a/b/b/c.go", true},
		{"a/**", "a/b/c", true},
		{"**/x", "x", true},
		{"**/x", "yx", false},
		{"*.{go,md}", "x.md", true},
		{"*.{go,md}", "x.m", false},
		{"a,b", "a,b", true},
		{"}", "}", true},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[^a-c]x", "dx", true},
		{"[", "[", true},
		{"[[]x", "[x", true},
		{`\*`, "*", true},
		{`\*`, "x", false},
		{`[\]x`, `\x`, true},
		{"a+(b)$", "a+(b)$", true},
		{"*", "line\nbreak", true},
		{"größe", "größe", true},
	} {
		f, err := newNameFilter(c.glob)
		if err != nil {
			t.Errorf("%q: %v", c.glob, err)
		} else if f.takes(c.path) != c.want {
			t.Errorf("%q takes %q: %v", c.glob, c.path, !c.want)
		}
	}
	for _, bad := range []string{"{a", "[z-a]", "\xff"} {
		if _, err := newNameFilter(bad); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
}
