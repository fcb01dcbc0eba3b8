package transfer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/link/transfer"
)

// TestPlaces says where things go; they are as cp -a has them.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		o        transfer.Options
		want     string // a file that is there afterwards, or
		err      string
	}{
		"file to new":                {"file", "new", transfer.Options{}, "new", ""},
		"file over file":             {"file", "old", transfer.Options{}, "old", ""},
		"file into directory":        {"file", "into", transfer.Options{}, "into/file", ""},
		"file into directory/":       {"file", "into/", transfer.Options{}, "into/file", ""},
		"file into linked directory": {"file", "linked", transfer.Options{}, "into/file", ""},
		"file over link to file":     {"file", "linkfile", transfer.Options{}, "linkfile", ""},
		"file over dangling link":    {"file", "dangling", transfer.Options{}, "dangling", ""},
		"file to missing parent":     {"file", "no/new", transfer.Options{}, "", "no: no such file or directory"},
		"file to missing/":           {"file", "no/", transfer.Options{}, "", "no/: no such file or directory"},
		"file to file/":              {"file", "old/", transfer.Options{}, "", "old/: not a directory"},
		"file over directory":        {"file", "clash", transfer.Options{}, "", "clash/file: is a directory"},
		"file with a name":           {"file", "into", transfer.Options{Name: "else"}, "into/else", ""},
		"name to no directory":       {"file", "new", transfer.Options{Name: "else"}, "", "new: no such file or directory"},
		"bad name":                   {"file", "into", transfer.Options{Name: "a/b"}, "", "a/b: invalid argument"},
		"directory to new":           {"dir", "new", transfer.Options{}, "new/x", ""},
		"directory to new/":          {"dir", "new/", transfer.Options{}, "new/x", ""},
		"directory into directory":   {"dir", "into", transfer.Options{}, "into/dir/x", ""},
		"directory/ into directory":  {"dir/", "into", transfer.Options{}, "into/dir/x", ""},
		"contents into directory":    {"dir/.", "into", transfer.Options{}, "into/x", ""},
		"contents to new":            {"dir/.", "new", transfer.Options{}, "new/x", ""},
		"contents with a name":       {"dir/.", "into", transfer.Options{Name: "else"}, "into/else/x", ""},
		"parent's contents":          {"dir/sub/..", "into", transfer.Options{}, "into/x", ""},
		"directory merged":           {"dir", "merge", transfer.Options{}, "merge/dir/kept", ""},
		"directory over file":        {"dir", "old", transfer.Options{}, "", "old: not a directory"},
		"directory over file inside": {"dir", "against", transfer.Options{}, "", "against/dir: not a directory"},
		"directory over link inside": {"dir", "linkinside", transfer.Options{}, "", "linkinside/dir: not a directory"},
		"sub over link inside":       {"dir/.", "sublink", transfer.Options{}, "", "sublink/sub: not a directory"},
		"directory to missing":       {"dir", "no/new", transfer.Options{}, "", "no: no such file or directory"},
		"link":                       {"link", "new", transfer.Options{}, "new", ""},
		"link/ is followed":          {"linkdir/", "new", transfer.Options{}, "new/x", ""},
		"file/":                      {"file/", "new", transfer.Options{}, "", "file/: not a directory"},
		"file/.":                     {"file/.", "new", transfer.Options{}, "", "file/.: not a directory"},
		"missing":                    {"nothing", "new", transfer.Options{}, "", "nothing: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for _, f := range []string{"src/file", "src/dir/x", "src/dir/sub/y", "dst/old", "dst/into/z", "dst/merge/dir/kept", "dst/clash/file/z", "dst/against/dir", "dst/canary", "outside/canary"} {
				write(t, f, f, 0o644)
			}
			for link, to := range map[string]string{"src/link": "file", "src/linkdir": "dir", "dst/linked": "into", "dst/linkfile": "canary", "dst/dangling": "nowhere",
				"dst/linkinside/dir": "../../outside", "dst/sublink/sub": "../../outside"} {
				must(t, os.MkdirAll(filepath.Dir(link), 0o755))
				must(t, os.Symlink(to, link))
			}
			var b bytes.Buffer
			_, err := transfer.Pack(t.Context(), &b, "src/"+c.from, transfer.Options{})
			at := ""
			if err == nil {
				_, at, err = transfer.Unpack(t.Context(), &b, "dst/"+c.to, c.o)
			}
			switch {
			case c.err != "":
				if err == nil || !strings.HasSuffix(err.Error(), c.err) {
					t.Errorf("got %v, want %s", err, c.err)
				}
			case err != nil:
				t.Error(err)
			default:
				fi, err := os.Lstat("dst/" + c.want)
				if err != nil || !strings.HasPrefix("dst/"+c.want, strings.Replace(at, "linked", "into", 1)) {
					t.Errorf("%v, it is said to be at %s", err, at)
				}
				if linked := fi.Mode()&os.ModeSymlink != 0; linked != (c.from == "link") {
					t.Errorf("a link: %v", linked)
				}
			}
			for _, canary := range []string{"dst/canary", "outside/canary"} {
				if got, err := os.ReadFile(canary); err != nil || string(got) != canary {
					t.Errorf("%s: %q %v", canary, got, err)
				}
			}
			if e, _ := os.ReadDir("outside"); len(e) != 1 {
				t.Errorf("outside: %v", e)
			}
		})
	}
}

// TestMergeKeeps leaves the modes of directories that were there alone.
func TestMergeKeeps(t *testing.T) {
	base := t.TempDir()
	write(t, base+"/to/d/x", "old", 0o600)
	must(t, os.Chmod(base+"/to/d", 0o700))
	stream := archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o777}, tar.Header{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o777}, file("./d/x"), file("./d/y"))
	must(t, unpack(t, stream, base+"/to"))
	for _, d := range []string{"/to", "/to/d"} {
		if fi, err := os.Stat(base + d); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", d, fi.Mode(), err)
		}
	}
	if b, err := os.ReadFile(base + "/to/d/x"); string(b) != "xxx" {
		t.Errorf("%q %v", b, err)
	}
}

// TestReplaceSpares makes a new file where one was: another name of the old
// one, and whoever has it open, keep it.
func TestReplaceSpares(t *testing.T) {
	base := t.TempDir()
	write(t, base+"/old", "old", 0o600)
	must(t, os.Link(base+"/old", base+"/other"))
	must(t, unpack(t, archive(t, file("old")), base))
	if b, _ := os.ReadFile(base + "/other"); string(b) != "old" {
		t.Errorf("%q", b)
	}
	if b, _ := os.ReadFile(base + "/old"); string(b) != "xxx" {
		t.Errorf("%q", b)
	}
	if e, _ := os.ReadDir(base); len(e) != 2 {
		t.Error(e)
	}
}

// TestCut cuts a stream everywhere: it is never taken for whole, and no part of
// a file stays.
func TestCut(t *testing.T) {
	stream := archive(t, dir("top"), file("top/a"), dir("top/d"), file("top/d/b"), symlink("top/l", "a"), hardlink("top/h", "top/a"), file("top/z"))
	for n := 0; n < len(stream); n += 100 {
		dest := t.TempDir()
		if err := unpack(t, stream[:n], dest); !errors.Is(err, transfer.ErrStream) {
			t.Fatalf("at %d: %v", n, err)
		}
		must(t, filepath.Walk(dest, func(p string, fi os.FileInfo, err error) error {
			if err == nil && fi.Mode().IsRegular() && (fi.Size() != 3 || strings.HasPrefix(fi.Name(), ".")) {
				t.Errorf("at %d: %s has %d bytes", n, p, fi.Size())
			}
			return err
		}))
	}
	must(t, unpack(t, stream, t.TempDir()))
	must(t, unpack(t, append(stream, make([]byte, 9000)...), t.TempDir()))
	if err := unpack(t, append(stream, make([]byte, 2<<20)...), t.TempDir()); !errors.Is(err, transfer.ErrStream) {
		t.Errorf("endless: %v", err)
	}
}
