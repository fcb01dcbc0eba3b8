package workspace

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"
)

func TestScopeCovers(t *testing.T) {
	for _, tc := range []struct {
		patterns string // separated by commas
		yes, no  string
	}{
		{"src", "src,src/a,src/a/b", "src2,src2/a,lib/src,lib/src/a,SRC,sr,asrc"},
		{"src/", "src/a,src/a/b", "src,src2/a,lib/src/a"},
		{"/src", "src,src/a", "lib/src"},
		{"./src", "src,src/a", "lib/src"},
		{"src/**", "src/a,src/a/b", "src,src2"},
		{"src/*", "src/a,src/a/b", "src,srcx"},
		{"src/*/", "src/a/b", "src/a"},
		{"*.py", "a.py,d/a.py,d/e/a.py,x.py/in,.py", "a.pyc,py"},
		{"/*.py", "a.py", "d/a.py"},
		{"docs/*.md", "docs/a.md,docs/.md", "docs/s/a.md,a.md,x/docs/a.md"},
		{"docs/**/*.md", "docs/a.md,docs/s/a.md,docs/s/t/a.md", "a.md,docs/a.txt"},
		{"**/test", "test,a/test,a/b/test/c", "atest,test2"},
		{"a/**/b", "a/b,a/x/b,a/x/y/b/c", "ab,b,a/x"},
		{"a/**/**/b", "a/b,a/x/y/b", "a"},
		{"**", "a,a/b", ""},
		{".", "a,a/b,.git", ""},
		{"/", "a", ""},
		{"**/*", "a,a/b", ""},
		{"file?.txt", "file1.txt,d/fileé.txt", "file.txt,file12.txt"},
		{"[a-c]x", "ax,d/cx", "dx,x"},
		{"[!a-c]x", "dx", "ax"},
		{"[^a-c]x", "dx", "ax"},
		{`\*.py`, "*.py", "a.py,d/*.py"},
		{`\!x,\{a\}`, "!x,{a}", "x,a"},
		{"a,b/c", "a,a/x,b/c", "b,b/d"},
		{"[[]x]", "[x]", "x"},
		{"caf\xe9", "caf\xe9", "café"},
		{"a b", "a b", "a"},
		{"**/a/**/", "a/x,b/a/x/y", "a,b/a"},
		{".*", ".a,d/.a", "a"},
		{"*", "a,.a,d/a", ""},
	} {
		s, err := ParseScope(strings.Split(tc.patterns, ","))
		if err != nil {
			t.Errorf("%q: %v", tc.patterns, err)
			continue
		}
		for want, list := range map[bool]string{true: tc.yes, false: tc.no} {
			for p := range strings.SplitSeq(list, ",") {
				if p != "" && s.Covers(p) != want {
					t.Errorf("%q covers %q: %v", tc.patterns, p, !want)
				}
			}
		}
	}
	if !(Scope{}).Covers("anything") {
		t.Error("the zero scope does not cover everything")
	}
}

func TestParseScopeRefuses(t *testing.T) {
	for _, p := range []string{"", "!x", "a//b", "../x", "a/../b", "a/./b", "//a", "[a", `a\`, "a{b,c}", "{a}", "x\x00", "/..", "a//", "./../x"} {
		_, err := ParseScope([]string{"ok", p})
		var e *Error
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || !strings.Contains(err.Error(), "path pattern") {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// A pattern cannot make matching slow.
func TestScopeIsFast(t *testing.T) {
	s, err := ParseScope([]string{strings.Repeat("**/a*/", 200) + "b", strings.Repeat("*a", 100)})
	must(t, err)
	start := time.Now()
	s.Covers(strings.Repeat("aaaaaaaaaa/", 370) + "c")
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

func FuzzScope(f *testing.F) {
	for _, p := range []string{"src", "*.py", "a/**/b", "[a-z]?", `\*`, "docs/", "."} {
		f.Add(p, "src/a.py")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		s, err := ParseScope([]string{pattern})
		if err != nil {
			return
		}
		if name == "" || path.Clean("/" + name)[1:] != name {
			return
		}
		covered := s.Covers(name)
		// What is covered is so with everything below.
		if covered && !s.Covers(name+"/below") {
			t.Errorf("%q covers %q and not what is below", pattern, name)
		}
		// A path escaped is a pattern that covers it, and not its neighbour.
		lit, err := ParseScope([]string{"/" + escapePattern(name)})
		if err != nil {
			if strings.ContainsRune(name, 0) {
				return
			}
			t.Fatalf("%q as a pattern: %v", name, err)
		}
		if !lit.Covers(name) || lit.Covers(name+"x") || lit.Covers("other \x01/"+name) {
			t.Errorf("%q as a pattern covers wrongly", name)
		}
	})
}

func escapePattern(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if strings.IndexByte(`*?[]{}!\`, name[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func FuzzPathText(f *testing.F) {
	for _, p := range []string{"a", `"a"`, "caf\xe9", "\xff\"\\\n", `\`, "ü"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := Path(s).MarshalText()
		must(t, err)
		if strings.ToValidUTF8(string(text), "") != string(text) {
			t.Errorf("%q is written as %q, which is not UTF-8", s, text)
		}
		var back Path
		if err := back.UnmarshalText(text); err != nil || string(back) != s {
			t.Errorf("%q is written as %q and read as %q, %v", s, text, back, err)
		}
		_ = back.UnmarshalText([]byte(s)) // anything may be read; it may fail
	})
}

func FuzzParseChanges(f *testing.F) {
	f.Add(":100644 100755 " + strings.Repeat("1", 40) + " " + strings.Repeat("2", 40) + " M\x00a\x001\t2\ta\x00")
	f.Add(":100644 100644 1 1 R100\x00a\x00b\x000\t0\t\x00a\x00b\x00")
	f.Add("-\t-\tx")
	f.Fuzz(func(t *testing.T, s string) { _, _ = parseChanges(s) })
}

func TestEscapes(t *testing.T) {
	for target, want := range map[string]bool{"a": false, "../a": false, "../../a": true, "/a": true, "..": false, "../..": true, "x/../../..": true, "x/..": false, ".": false} {
		if got := escapes("dir/link", target); got != want {
			t.Errorf("%q: %v", target, got)
		}
	}
}
