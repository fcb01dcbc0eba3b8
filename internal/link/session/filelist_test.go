//go:build linux

package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

func TestFileList(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for _, f := range []string{"b.go", "a.txt", "d/x.go", "d/e/y.go", "d/e/z.txt", ".hidden", "odd\n81a4 1 1 \xff"} {
		put(t, filepath.Join(home, "-top", f), "12", 0o644)
	}
	if err := errors.Join(os.Symlink("d", home+"/-top/l"), os.Symlink("-top", home+"/link"), os.Mkdir(home+"/none", 0o755)); err != nil {
		t.Fatal(err)
	}
	const all = `".hidden" "a.txt" "b.go" "d" "l" "odd\n81a4 1 1 \xff"`
	for name, c := range map[string]struct {
		path string
		o    session.ListOptions
		want string
		more bool
	}{
		"plain":       {"-top", session.ListOptions{}, all, false},
		"link":        {"link", session.ListOptions{}, all, false},
		"limit":       {"-top", session.ListOptions{Limit: 2}, `".hidden" "a.txt"`, true},
		"exact limit": {"-top", session.ListOptions{Limit: 6}, all, false},
		"deep":        {"-top/d", session.ListOptions{Depth: 2}, `"e" "e/y.go" "e/z.txt" "x.go"`, false},
		"deep limit":  {"-top/d", session.ListOptions{Depth: 2, Limit: 2}, `"e" "e/y.go"`, true},
		"glob":        {"-top", session.ListOptions{Depth: 9, Glob: "*.go"}, `"b.go" "d/e/y.go" "d/x.go"`, false},
		"glob class":  {"-top", session.ListOptions{Depth: 9, Glob: "[!xy].[gt]?"}, `"b.go"`, false},
		"nothing":     {"-top", session.ListOptions{Glob: "*.c"}, ``, false},
		"empty":       {"none", session.ListOptions{}, ``, false},
	} {
		l, err := p.s.List(p.ctx, "", c.path, c.o)
		var got []string
		for _, e := range l.Entries {
			got = append(got, fmt.Sprintf("%q", e.Path))
		}
		if err != nil || strings.Join(got, " ") != c.want || l.More != c.more || l.Path != filepath.Join(home, c.path) {
			t.Errorf("%s: %v %v %s %v", name, got, l.More, l.Path, err)
		}
	}
	l, err := p.s.List(p.ctx, "", "-top", session.ListOptions{})
	if err != nil || l.Entries[1].Size != 2 || l.Entries[1].Mode != 0o644 || time.Since(l.Entries[1].Time) > hang || l.Entries[3].Type != "directory" || l.Entries[4].Type != "symlink" {
		t.Errorf("%+v %v", l, err)
	}
	for path, kind := range map[string]string{"missing": wire.FileNotFound, "-top/a.txt": wire.FileNotDir} {
		_, err := p.s.List(p.ctx, "", path, session.ListOptions{})
		trouble(t, path, err, kind, path)
	}
}

// TestFileListLarge has more entries than are read.
func TestFileListLarge(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	deep := strings.Repeat("/"+strings.Repeat("x", 250), 10)
	if err := os.MkdirAll(home+deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		f, err := os.Create(fmt.Sprintf("%s%s/%04d", home, deep, i))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	for limit, want := range map[int]int{0: 1000, 1 << 30: 0} {
		l, err := p.s.List(p.ctx, "", ".", session.ListOptions{Depth: 99, Limit: limit})
		if err != nil || !l.More || want > 0 && len(l.Entries) != want || len(l.Entries) < 1000 {
			t.Errorf("%d: %d entries, %v", limit, len(l.Entries), err)
		}
	}
}

func TestFileSearch(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for f, text := range map[string]string{
		"a.go":       "package a\n\nfunc Foo() {}\r\n// foo.bar\nlast Foo",
		"b/c.go":     "Foo\n",
		"b/d: e.txt": "xfoo: 1:2:3\n",
		"b/.git/Foo": "Foo\n",
		"bin":        "Foo\x00\nFoo\n",
		"long":       strings.Repeat("é", 300) + "Foo\n",
		"large":      "Foo" + strings.Repeat("x", 9<<20),
		"-odd $(x)":  "Foo\n",
	} {
		put(t, filepath.Join(home, "s", f), text, 0o644)
	}
	odd(t, home+"/s")
	if err := os.Symlink("a.go", home+"/s/zlink"); err != nil {
		t.Fatal(err)
	}
	all := `"-odd $(x)":1:"Foo" "a.go":3:"func Foo() {}" "a.go":5:"last Foo" "b/c.go":1:"Foo" "long":1:"` + strings.Repeat("é", 250) + `"`
	for name, c := range map[string]struct {
		path string
		q    session.Query
		want string
		more bool
	}{
		"expression":  {"s", session.Query{Pattern: `^func [A-Za-z]+\(\) \{\}`}, `"a.go":3:"func Foo() {}"`, false},
		"all":         {"s", session.Query{Pattern: "Foo", Literal: true}, all, false},
		"as a regexp": {"s", session.Query{Pattern: "Fo+"}, all, false},
		"case":        {"s", session.Query{Pattern: "FOO.BAR", Literal: true, IgnoreCase: true}, `"a.go":4:"// foo.bar"`, false},
		"literal dot": {"s", session.Query{Pattern: "foo.b", Literal: true}, `"a.go":4:"// foo.bar"`, false},
		"a dash":      {"s", session.Query{Pattern: "-x"}, ``, false},
		"glob":        {"s", session.Query{Pattern: "foo", Glob: "* *.txt"}, `"b/d: e.txt":1:"xfoo: 1:2:3"`, false},
		"limit":       {"s", session.Query{Pattern: "Foo", Glob: "*.go", Limit: 2}, `"a.go":3:"func Foo() {}" "a.go":5:"last Foo"`, true},
		"a file":      {"s/b/c.go", session.Query{Pattern: "F"}, `"c.go":1:"Foo"`, false},
		"a link":      {"s/zlink", session.Query{Pattern: "^last"}, `"zlink":5:"last Foo"`, false},
		"empty line":  {"s", session.Query{Pattern: "^$"}, `"a.go":2:""`, false},
		"nothing":     {"s", session.Query{Pattern: "nowhere"}, ``, false},
	} {
		f, err := p.s.Search(p.ctx, "", c.path, c.q)
		var got []string
		for _, m := range f.Matches {
			got = append(got, fmt.Sprintf("%q:%d:%q", m.Path, m.Line, m.Text))
		}
		if err != nil || strings.Join(got, " ") != c.want || f.More != c.more {
			t.Errorf("%s: got %v %v %v", name, got, f.More, err)
		}
	}
	_, err := p.s.Search(p.ctx, "", "none", session.Query{Pattern: "x"})
	trouble(t, "missing", err, wire.FileNotFound, "none")
	if _, err = p.s.Search(p.ctx, "", "s", session.Query{Pattern: "("}); jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(err.Error(), "exit code 2: grep: ") {
		t.Errorf("a bad pattern: %v", err)
	}
}

// TestFileSearchEnds gives up a search that is not wanted any more, and one that
// has found enough.
func TestFileSearchEnds(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for i := range 30 {
		put(t, fmt.Sprintf("%s/%d", home, i), strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 200_000), 0o644)
	}
	ctx, stop := context.WithTimeout(p.ctx, time.Millisecond)
	defer stop()
	if _, err := p.s.Search(ctx, "", ".", session.Query{Pattern: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if f, err := p.s.Search(p.ctx, "", ".", session.Query{Pattern: "a"}); err != nil || !f.More || len(f.Matches) != 200 {
		t.Errorf("%d matches, %v %v", len(f.Matches), f.More, err)
	}
}

// TestFileSessionDir has relative paths begin where the session is.
func TestFileSessionDir(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	put(t, home+"/sub/f", "in sub", 0o644)
	put(t, home+"/f", "at home", 0o644)
	req := shell("cd sub")
	req.Session = "s"
	if res, _, e := p.run(req); !res.Exit.OK() {
		t.Fatalf("%+v %s", res, e)
	}
	for sess, want := range map[string]string{"s": "in sub", "": "at home", "another": "at home"} {
		var b strings.Builder
		if _, err := p.s.ReadFile(p.ctx, sess, "f", 0, 0, &b); err != nil || b.String() != want {
			t.Errorf("%q: %q %v", sess, b.String(), err)
		}
	}
	if c, err := p.s.CopyIn(p.ctx, "s", home+"/f", "copy", nil); err != nil || c.Path != home+"/sub/copy" {
		t.Errorf("%+v %v", c, err)
	}
}
