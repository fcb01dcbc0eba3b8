//go:build conformance

package conformance

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"berth/jobs"
)

// dir is a directory of the case's own inside, which is its session's directory.
func (p *place) dir(name string) {
	p.t.Helper()
	p.want("d=$(mktemp -d /tmp/"+name+"-XXXXXX) && cd $d", 0, "")
	p.t.Cleanup(func() { p.sh("cd / && chmod -R u+rwX $d && rm -rf $d") })
}

func (p *place) read(path string) (string, error) {
	var b bytes.Buffer
	_, err := p.s.ReadFile(p.ctx(), path, 0, 64<<20, &b)
	return b.String(), err
}

func (p *place) write(path, text string) {
	p.t.Helper()
	if _, err := p.s.WriteFile(p.ctx(), path, strings.NewReader(text), jobs.WriteOptions{Parents: true}); err != nil {
		p.t.Fatal(explain(err))
	}
}

var fileCases = []testCase{
	{"files", "write and read", func(p *place) {
		p.dir("rw")
		all := make([]byte, 256*1024)
		for i := range all {
			all[i] = byte(i * 7)
		}
		p.write("sub/dir/odd name\n", string(all))
		got, err := p.read("sub/dir/odd name\n")
		if err != nil || got != string(all) {
			p.t.Errorf("%d bytes, %v", len(got), err)
		}
		p.want("ls -A sub/dir | wc -l", 0, "2\n") // the name has a line's end
	}},
	{"files", "a mode stays when a file is replaced", func(p *place) {
		p.dir("mode")
		p.want("echo '#!/bin/sh' >run && chmod 751 run && ln -s run link", 0, "")
		p.write("link", "#!/bin/sh\necho new\n")
		p.want("stat -c %a run; ./run; [ -L link ] && echo link", 0, "751\nnew\nlink\n")
	}},
	{"files", "a part of a file", func(p *place) {
		p.dir("part")
		p.write("f", "0123456789")
		for _, c := range []struct {
			offset, limit int64
			want          string
		}{{3, 4, "3456"}, {-3, 0, "789"}, {8, 100, "89"}, {100, 1, ""}} {
			var b bytes.Buffer
			if _, err := p.s.ReadFile(p.ctx(), "f", c.offset, c.limit, &b); err != nil || b.String() != c.want {
				p.t.Errorf("%d, %d: %q, %v", c.offset, c.limit, b.String(), err)
			}
		}
	}},
	{"files", "an edit", func(p *place) {
		p.dir("edit")
		p.write("f", "one two two\n")
		if n, err := p.s.EditFile(p.ctx(), "f", jobs.FileEdit{Old: "one", New: "1"}); n != 1 || err != nil {
			p.t.Error(n, err)
		}
		for _, e := range []jobs.FileEdit{{Old: "two", New: "2"}, {Old: "three", New: "3"}, {Old: "", New: "x"}} {
			if _, err := p.s.EditFile(p.ctx(), "f", e); err == nil {
				p.t.Errorf("%+v was made", e)
			}
		}
		if n, err := p.s.EditFile(p.ctx(), "f", jobs.FileEdit{Old: "two", New: "2", All: true}); n != 2 || err != nil {
			p.t.Error(n, err)
		}
		if got, _ := p.read("f"); got != "1 2 2\n" {
			p.t.Errorf("got %q", got)
		}
	}},
	{"files", "edits at once lose nothing", func(p *place) {
		p.dir("edits")
		var lines strings.Builder
		for i := range 20 {
			fmt.Fprintf(&lines, "line %02d\n", i)
		}
		p.write("f", lines.String())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if _, err := p.s.EditFile(p.ctx(), "f", jobs.FileEdit{Old: fmt.Sprintf("line %02d", i), New: fmt.Sprintf("changed %02d", i)}); err != nil {
					p.t.Error(explain(err))
				}
			})
		}
		all.Wait()
		if got, _ := p.read("f"); got != strings.ReplaceAll(lines.String(), "line", "changed") {
			p.t.Errorf("got %q", got)
		}
	}},
	{"files", "list and search", func(p *place) {
		p.dir("list")
		p.write("b/two.go", "package b\nfunc Two() {}\n")
		p.write("a.txt", "func in a text\n")
		p.want("ln -s a.txt l; mkdir -m 700 empty", 0, "")
		l, err := p.s.List(p.ctx(), ".", jobs.ListOptions{Depth: 3})
		var names []string
		for _, e := range l.Entries {
			names = append(names, e.Path+":"+e.Type)
		}
		if err != nil || strings.Join(names, " ") != "a.txt:file b:directory b/two.go:file empty:directory l:symlink" {
			p.t.Errorf("got %q, %v", names, err)
		}
		f, err := p.s.Search(p.ctx(), ".", jobs.FileQuery{Pattern: `^func \w+\(`, Glob: "*.go"})
		if err != nil || len(f.Matches) != 1 || f.Matches[0].Path != "b/two.go" || f.Matches[0].Line != 2 {
			p.t.Errorf("got %+v, %v", f, err)
		}
	}},
	{"files", "what is not there, and what is no file", func(p *place) {
		p.dir("none")
		if _, err := p.read("missing"); jobs.KindOf(err) != jobs.KindNotFound || !strings.Contains(err.Error(), "missing") {
			p.t.Errorf("got %v", err)
		}
		p.want("mkfifo pipe; mkdir dir", 0, "")
		for _, n := range []string{"pipe", "dir", "/dev/zero"} {
			if _, err := p.read(n); err == nil {
				p.t.Errorf("%s was read", n)
			}
		}
		if _, err := p.s.WriteFile(p.ctx(), "no/such/dir/f", strings.NewReader("x"), jobs.WriteOptions{}); err == nil {
			p.t.Error("it was written")
		}
	}},
	{"files", "a write that breaks off changes nothing", func(p *place) {
		p.dir("broken")
		p.write("f", "old")
		r := io.MultiReader(strings.NewReader(strings.Repeat("n", 100000)), failing{})
		if _, err := p.s.WriteFile(p.ctx(), "f", r, jobs.WriteOptions{}); err == nil {
			p.t.Error("it was written")
		}
		p.want("cat f; ls -A | wc -l", 0, "old1\n")
	}},
	{"files", "a tree in and out", func(p *place) {
		p.dir("tree")
		src := p.t.TempDir()
		sum := sha256.New()
		big := io.LimitReader(endless{}, 5<<20)
		f, err := os.OpenFile(filepath.Join(src, "big"), os.O_CREATE|os.O_WRONLY, 0o640)
		if err == nil {
			_, err = io.Copy(io.MultiWriter(f, sum), big)
			_ = f.Close()
		}
		if err != nil {
			p.t.Fatal(err)
		}
		for _, do := range []error{
			os.MkdirAll(filepath.Join(src, "sub", "empty"), 0o750), os.WriteFile(filepath.Join(src, "sub", "run"), []byte("#!/bin/sh\necho ran\n"), 0o755), //nolint:gosec // a program
			os.Symlink("run", filepath.Join(src, "sub", "link")), os.WriteFile(filepath.Join(src, "odd\nname \xff"), []byte("odd"), 0o600),
		} {
			if do != nil {
				p.t.Fatal(do)
			}
		}
		if _, err := p.s.CopyIn(p.ctx(), src, "in", nil); err != nil {
			p.t.Fatal(explain(err))
		}
		p.want("in/sub/link; stat -c %a in/big in/sub/run in/sub/empty; sha256sum <in/big | cut -c1-64; ls -A in | wc -l", 0,
			fmt.Sprintf("ran\n640\n755\n750\n%x\n4\n", sum.Sum(nil)))
		out := filepath.Join(p.t.TempDir(), "out")
		if _, err := p.s.CopyOut(p.ctx(), "in", out, nil); err != nil {
			p.t.Fatal(explain(err))
		}
		if got := tree(p, out); got != tree(p, src) {
			p.t.Errorf("got\n%s\nwant\n%s", got, tree(p, src))
		}
	}},
	{"files", "where a copy goes", func(p *place) {
		p.dir("where")
		src := filepath.Join(p.t.TempDir(), "f")
		if err := os.WriteFile(src, []byte("text"), 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.want("mkdir d", 0, "")
		for _, to := range []string{"d", "g"} {
			if _, err := p.s.CopyIn(p.ctx(), src, to, nil); err != nil {
				p.t.Fatal(explain(err))
			}
		}
		p.want("cat d/f g", 0, "texttext")
		if _, err := p.s.CopyIn(p.ctx(), src, "no/such/place", nil); err == nil {
			p.t.Error("it was copied")
		}
		if _, err := p.s.CopyOut(p.ctx(), "missing", p.t.TempDir(), nil); jobs.KindOf(err) != jobs.KindNotFound {
			p.t.Errorf("got %v", err)
		}
	}},
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// endless is bytes that do not repeat soon.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i*i>>3 + i)
	}
	return len(b), nil
}

// tree lists a directory of this machine with modes and contents.
func tree(p *place, root string) string {
	p.t.Helper()
	var out strings.Builder
	err := filepath.Walk(root, func(path string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel == "." {
			return nil
		}
		fmt.Fprintf(&out, "%q %v", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %x", sha256.Sum256(b))
		case fi.Mode()&os.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			fmt.Fprintf(&out, " -> %s", to)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.String()
}
