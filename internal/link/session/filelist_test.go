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
)

func TestFileList(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for _, f := range []string{"b.go", "a.txt", "d/x.go", "d/e/y.go", "d/e/z.txt", ".hidden", "odd\n\xff"} {
		put(t, filepath.Join(home, "top", f), "12", 0o644)
	}
	if err := errors.Join(os.Symlink("d", home+"/top/l"), os.Symlink("top", home+"/link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		o    session.ListOptions
		want string
		more bool
	}{
		"plain":       {"top", session.ListOptions{}, `".hidden" "a.txt" "b.go" "d" "l" "odd\n\xff"`, false},
		"link":        {"link", session.ListOptions{}, `".hidden" "a.txt" "b.go" "d" "l" "odd\n\xff"`, false},
		"limit":       {"top", session.ListOptions{Limit: 2}, `".hidden" "a.txt"`, true},
		"exact limit": {"top", session.ListOptions{Limit: 6}, `".hidden" "a.txt" "b.go" "d" "l" "odd\n\xff"`, false},
		"deep":        {"top/d", session.ListOptions{Depth: 2}, `"e" "e/y.go" "e/z.txt" "x.go"`, false},
		"deep limit":  {"top/d", session.ListOptions{Depth: 2, Limit: 2}, `"e" "e/y.go"`, true},
		"glob":        {"top", session.ListOptions{Depth: 9, Glob: "*.go"}, `"b.go" "d/e/y.go" "d/x.go"`, false},
		"glob limit":  {"top", session.ListOptions{Depth: 9, Glob: "*.go", Limit: 1}, `"b.go"`, true},
		"glob path":   {"top", session.ListOptions{Depth: 9, Glob: "d/*"}, `"d/e" "d/x.go"`, false},
		"glob stars":  {"top", session.ListOptions{Depth: 9, Glob: "**/e/*.{go,txt}"}, `"d/e/y.go" "d/e/z.txt"`, false},
		"glob class":  {"top", session.ListOptions{Depth: 9, Glob: "[!xy].[gt]?"}, `"b.go"`, false},
		"nothing":     {"top", session.ListOptions{Glob: "*.c"}, ``, false},
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
	l, err := p.s.List(p.ctx, "", "top", session.ListOptions{})
	if err != nil || l.Entries[1].Size != 2 || l.Entries[1].Mode != 0o644 || l.Entries[3].Type != "directory" || l.Entries[4].Target != "d" {
		t.Errorf("%+v %v", l, err)
	}
	for path, kind := range map[string]string{"none": wire.FileNotFound, "top/a.txt": wire.FileNotDir} {
		_, err := p.s.List(p.ctx, "", path, session.ListOptions{})
		trouble(t, path, err, kind, path)
	}
	_, err = p.s.List(p.ctx, "", "top", session.ListOptions{Glob: "[z-a]"})
	trouble(t, "glob", err, wire.FileInvalid, "the pattern for names")
}

// TestFileListLarge has more entries than an answer holds.
func TestFileListLarge(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	name := strings.Repeat("\x01", 200) // six bytes each in a message
	for i := range 6000 {
		f, err := os.Create(filepath.Join(home, fmt.Sprintf("%05d%s", i, name)))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	for limit, want := range map[int]int{0: 1000, 10: 10, 1 << 30: 0} {
		l, err := p.s.List(p.ctx, "", ".", session.ListOptions{Limit: limit})
		if err != nil || !l.More || want > 0 && len(l.Entries) != want || len(l.Entries) < 10 || !strings.HasPrefix(l.Entries[9].Path, "00009") {
			t.Errorf("%d: %d entries, %v", limit, len(l.Entries), err)
		}
	}
}

func TestFileSearch(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for f, text := range map[string]string{
		"a.go":         "package a\n\nfunc Foo() {}\r\n// foo.bar\nlast Foo",
		"b/c.go":       "Foo\n",
		"b/d.txt":      "xfoo\n",
		"b/.git/Foo":   "Foo\n",
		"bin":          "Foo\x00\nFoo\n",
		"long":         strings.Repeat("é", 300) + "Foo\n",
		"large":        "Foo" + strings.Repeat("x", 9<<20),
		"odd\n\xff.md": "\xfe Foo \xff\n",
	} {
		put(t, filepath.Join(home, "s", f), text, 0o644)
	}
	odd(t, home+"/s")
	if err := os.Symlink("a.go", home+"/s/zlink"); err != nil {
		t.Fatal(err)
	}
	cut := strings.Repeat("é", 250)
	for name, c := range map[string]struct {
		path string
		q    session.Query
		want string
		more bool
	}{
		"expression":  {"s", session.Query{Pattern: `^func \w+\(\) \{\}$`}, `"a.go":3:"func Foo() {}"`, false},
		"all":         {"s", session.Query{Pattern: "Foo", Literal: true}, `"a.go":3:"func Foo() {}" "a.go":5:"last Foo" "b/c.go":1:"Foo" "long":1:"` + cut + `" "odd\n\xff.md":1:"\xfe Foo \xff"`, false},
		"as a regexp": {"s", session.Query{Pattern: "Fo+"}, `"a.go":3:"func Foo() {}" "a.go":5:"last Foo" "b/c.go":1:"Foo" "long":1:"` + cut + `" "odd\n\xff.md":1:"\xfe Foo \xff"`, false},
		"case":        {"s", session.Query{Pattern: "FOO.BAR", Literal: true, IgnoreCase: true}, `"a.go":4:"// foo.bar"`, false},
		"literal dot": {"s", session.Query{Pattern: "foo.b", Literal: true}, `"a.go":4:"// foo.bar"`, false},
		"glob":        {"s", session.Query{Pattern: "foo", Glob: "*.txt"}, `"b/d.txt":1:"xfoo"`, false},
		"limit":       {"s", session.Query{Pattern: "Foo", Limit: 2}, `"a.go":3:"func Foo() {}" "a.go":5:"last Foo"`, true},
		"a file":      {"s/b/c.go", session.Query{Pattern: "F"}, `"c.go":1:"Foo"`, false},
		"in .git":     {"s/b/.git", session.Query{Pattern: "F"}, `"Foo":1:"Foo"`, false},
		"empty line":  {"s", session.Query{Pattern: "^$"}, `"a.go":2:""`, false},
		"nothing":     {"s", session.Query{Pattern: "nowhere"}, ``, false},
		"bytes":       {"s", session.Query{Pattern: "\xfe", Literal: true}, `"odd\n\xff.md":1:"\xfe Foo \xff"`, false},
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
	for name, c := range map[string]struct {
		path string
		q    session.Query
		kind string
	}{
		"no pattern":   {"s", session.Query{}, wire.FileInvalid},
		"bad pattern":  {"s", session.Query{Pattern: "("}, wire.FileInvalid},
		"long pattern": {"s", session.Query{Pattern: strings.Repeat("x", 1<<20)}, wire.FileInvalid},
		"bad glob":     {"s", session.Query{Pattern: "x", Glob: "{"}, wire.FileInvalid},
		"missing":      {"none", session.Query{Pattern: "x"}, wire.FileNotFound},
		"large file":   {"s/large", session.Query{Pattern: "x"}, wire.FileTooLarge},
		"pipe":         {"s/fifo", session.Query{Pattern: "x"}, wire.FileNotRegular},
	} {
		_, err := p.s.Search(p.ctx, "", c.path, c.q)
		trouble(t, name, err, c.kind, "")
	}
}

// TestFileSearchCancelled gives a long search up.
func TestFileSearchCancelled(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	for i := range 30 {
		put(t, fmt.Sprintf("%s/%d", home, i), strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 200_000), 0o644)
	}
	ctx, stop := context.WithTimeout(p.ctx, 50*time.Millisecond)
	defer stop()
	if _, err := p.s.Search(ctx, "", ".", session.Query{Pattern: "(a|aa)+b"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	// Its turn is free again.
	for range 3 {
		if _, err := p.s.Search(p.ctx, "", "1", session.Query{Pattern: "b", Literal: true}); err != nil {
			t.Error(err)
		}
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
