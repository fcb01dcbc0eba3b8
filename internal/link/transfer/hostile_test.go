//go:build linux

package transfer_test

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/link/transfer"
)

// trap is a directory to unpack into, with things around it that must stay.
type trap struct {
	base, dest, before string
}

// newTrap puts links into the destination, as an environment may that can
// write there.
func newTrap(t testing.TB) *trap {
	t.Helper()
	base, err := os.MkdirTemp("", "trap-") //nolint:usetesting // a hostile tree, which it could not remove
	must(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
		_ = os.RemoveAll(base)
	})
	tr := &trap{base: base, dest: filepath.Join(base, "dest")}
	write(t, base+"/canary", "canary", 0o600)
	write(t, base+"/outside/canary", "canary", 0o600)
	must(t, os.Mkdir(tr.dest, 0o700))
	must(t, os.Symlink("../outside", tr.dest+"/up"))
	must(t, os.Symlink(base+"/outside", tr.dest+"/abs"))
	must(t, os.Symlink("../canary", tr.dest+"/upfile"))
	tr.before = tr.around(t)
	return tr
}

// around lists what is outside the destination.
func (tr *trap) around(t testing.TB) string {
	t.Helper()
	var out []string
	must(t, filepath.Walk(tr.base, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if p == tr.dest {
			return filepath.SkipDir
		}
		line := p + " " + fi.Mode().String()
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fi.ModTime().String() + string(b)
		}
		if p != tr.base {
			out = append(out, line)
		}
		return nil
	}))
	return strings.Join(out, "\n")
}

func (tr *trap) check(t testing.TB) {
	t.Helper()
	if now := tr.around(t); now != tr.before {
		t.Fatalf("something outside has changed:\n%s\nwas\n%s", now, tr.before)
	}
}

func TestHostile(t *testing.T) {
	sp := file("top/x")
	sp.PAXRecords = map[string]string{"BERTH.x": "1"}
	for name, c := range map[string]struct {
		stream []tar.Header
		want   string // of the error; "" is success
	}{
		"absolute":                    {[]tar.Header{dir("top"), file("/tmp/berth-evil")}, "not a stream"},
		"absolute top":                {[]tar.Header{file("/berth-evil")}, "not a stream"},
		"parent":                      {[]tar.Header{dir("top"), file("top/../../evil")}, "not a stream"},
		"parent top":                  {[]tar.Header{dir("..")}, "not a stream"},
		"parent inside":               {[]tar.Header{dir("top"), file("top/../top/x")}, "not a stream"},
		"parent alone":                {[]tar.Header{dir("top"), dir("top/..")}, "not a stream"},
		"another top":                 {[]tar.Header{dir("top"), file("evil")}, "not a stream"},
		"top's namesake":              {[]tar.Header{dir("top"), file("topevil/x")}, "not a stream"},
		"begins below":                {[]tar.Header{file("up/evil")}, "not a stream"},
		"empty component":             {[]tar.Header{dir("top"), file("top//x")}, "not a stream"},
		"long component":              {[]tar.Header{dir("top"), file("top/" + strings.Repeat("x", 256))}, "not a stream"},
		"deep":                        {[]tar.Header{dir("top"), file("top/" + strings.Repeat("x/", 600) + "x")}, "not a stream"},
		"long":                        {[]tar.Header{dir("top"), file("top/" + strings.Repeat(strings.Repeat("x", 200)+"/", 100) + "x")}, "not a stream"},
		"nothing":                     {nil, "not a stream"},
		"file as contents":            {[]tar.Header{file(".")}, "not a stream"},
		"link as contents":            {[]tar.Header{symlink(".", "../outside"), file("./evil")}, "not a stream"},
		"through its own link":        {[]tar.Header{dir("top"), symlink("top/l", "../../outside"), file("top/l/evil")}, "not a directory"},
		"through its own link inside": {[]tar.Header{dir("top"), dir("top/d"), symlink("top/l", "d"), file("top/l/x")}, "not a directory"},
		"through an absolute link":    {[]tar.Header{dir("top"), symlink("top/l", "/tmp"), dir("top/l/evil")}, "not a directory"},
		"through a link as top":       {[]tar.Header{symlink("top", "../outside"), file("top/evil")}, "not a directory"},
		"through a link there":        {[]tar.Header{dir("."), file("./up/evil")}, "not a directory"},
		"through an absolute there":   {[]tar.Header{dir("."), file("./abs/evil")}, "not a directory"},
		"directory over a link there": {[]tar.Header{dir("up"), file("up/evil")}, "not a directory"},
		"file over a link there":      {[]tar.Header{file("upfile")}, ""},
		"file over a directory link":  {[]tar.Header{dir("."), file("./up")}, ""},
		"link over a link there":      {[]tar.Header{dir("."), symlink("./upfile", "../outside/canary"), file("./upfile")}, ""},
		"link then directory":         {[]tar.Header{dir("top"), symlink("top/l", "../../outside"), dir("top/l")}, "not a directory"},
		"link then mode":              {[]tar.Header{dir("top"), dir("top/d"), symlink("top/d", "../../outside")}, "is a directory"},
		"hard link outside":           {[]tar.Header{dir("top"), hardlink("top/h", "../canary")}, "not a stream"},
		"hard link absolute":          {[]tar.Header{dir("top"), hardlink("top/h", "/etc/passwd")}, "not a stream"},
		"hard link to what was there": {[]tar.Header{dir("."), hardlink("./h", "./upfile")}, "not a stream"},
		"hard link through a link":    {[]tar.Header{dir("."), hardlink("./h", "./up/canary")}, "not a stream"},
		"hard link to a link":         {[]tar.Header{dir("top"), symlink("top/l", "../../canary"), hardlink("top/h", "top/l"), file("top/h")}, "not a stream"},
		"hard link to itself":         {[]tar.Header{dir("top"), hardlink("top/h", "top/h")}, "not a stream"},
		"hard link, then a link":      {[]tar.Header{dir("top"), file("top/f"), symlink("top/f", "../../canary"), hardlink("top/h", "top/f")}, "replaced by something else"},
		"hard link over its target":   {[]tar.Header{dir("top"), file("top/f"), hardlink("top/h", "top/f"), hardlink("top/h", "top/f")}, ""},
		"empty symbolic link":         {[]tar.Header{dir("top"), symlink("top/l", "")}, "not a stream"},
		"endless symbolic link":       {[]tar.Header{dir("top"), symlink("top/l", strings.Repeat("x", 5000))}, "not a stream"},
		"device":                      {[]tar.Header{dir("top"), {Typeflag: tar.TypeChar, Name: "top/null", Devmajor: 1, Devminor: 3}, {Typeflag: tar.TypeFifo, Name: "top/p"}, {Typeflag: tar.TypeBlock, Name: "top/b"}}, ""},
		"device as top":               {[]tar.Header{{Typeflag: tar.TypeChar, Name: "null"}}, ""},
		"twice":                       {[]tar.Header{dir("top"), file("top/x"), file("top/x"), dir("top"), dir("top/d"), dir("top/d")}, ""},
		"directory over file":         {[]tar.Header{dir("top"), file("top/x"), dir("top/x")}, "not a directory"},
		"file over directory":         {[]tar.Header{dir("top"), dir("top/x"), file("top/x")}, "is a directory"},
		"below a file":                {[]tar.Header{file("top"), file("top/x")}, "not a directory"},
		"no directories":              {[]tar.Header{dir("top"), file("top/a/b/c/x")}, ""},
		"odd record":                  {[]tar.Header{dir("top"), sp}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrap(t)
			err := unpack(t, archive(t, c.stream...), tr.dest)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			tr.check(t)
			for _, evil := range []string{"/tmp/berth-evil", "/berth-evil", "/tmp/evil"} {
				if _, err := os.Lstat(evil); err == nil {
					t.Errorf("%s is there", evil)
				}
			}
			for _, special := range []string{"top/null", "top/p", "null"} {
				if _, err := os.Lstat(filepath.Join(tr.dest, special)); err == nil {
					t.Errorf("%s was made", special)
				}
			}
		})
	}
}

// TestSparse refuses headers that promise more bytes than the stream has.
func TestSparse(t *testing.T) {
	b, err := os.ReadFile("testdata/sparse.tar") // tar -cS --format=posix of a file with a hole
	must(t, err)
	if err := unpack(t, b, t.TempDir()); !errors.Is(err, transfer.ErrStream) {
		t.Error(err)
	}
	b, err = os.ReadFile("testdata/sparse-gnu.tar") // tar -cS --format=gnu
	must(t, err)
	if err := unpack(t, b, t.TempDir()); !errors.Is(err, transfer.ErrStream) {
		t.Error(err)
	}
}

// TestSwapped has someone swap a directory for a link all the time.
func TestSwapped(t *testing.T) {
	tr := newTrap(t)
	must(t, os.Mkdir(tr.dest+"/d", 0o700))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(tr.dest+"/d", tr.dest+"/e")
			_ = os.Symlink("../outside", tr.dest+"/d")
			_ = os.Remove(tr.dest + "/d")
			_ = os.Rename(tr.dest+"/e", tr.dest+"/d")
		}
	}()
	stream := archive(t, dir("."), dir("./d"), file("./d/x"), dir("./d/s"), file("./d/s/x"), symlink("./d/l", "x"), hardlink("./d/h", "./d/x"))
	for range 300 {
		_ = unpack(t, stream, tr.dest) // it may fail
	}
	close(stop)
	<-stopped
	tr.check(t)
}

// FuzzUnpack makes archives of entries that the fuzzer picks: nothing outside
// the destination changes.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 3, 0, 1, 4, 0}, false)
	f.Add([]byte{0, 1, 0, 2, 5, 1, 1, 6, 0, 3, 7, 3, 2, 5, 2}, true)
	f.Add([]byte("a raw archive?"), false)
	names := []string{"top/", "./", "top", "top/a", "./a", "top/up", "./up/x", "./upfile", "../x", "/tmp/berth-fuzz", "top/a/b", "./a/b", "top/..", "up", "./abs/canary", "."}
	targets := []string{"../outside", "top/a", "./a", "/etc/passwd", "../canary", "./upfile", "./up/canary", "a", ".."}
	types := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo, tar.TypeCont}
	f.Fuzz(func(t *testing.T, b []byte, raw bool) {
		tr := newTrap(t)
		if raw {
			_ = unpack(t, b, tr.dest)
			tr.check(t)
			return
		}
		var hs []tar.Header
		for len(b) >= 3 && len(hs) < 40 {
			h := tar.Header{Typeflag: types[int(b[0])%len(types)], Name: names[int(b[1])%len(names)], Mode: int64(b[2])<<4 | 0o7}
			if h.Typeflag != tar.TypeDir {
				h.Name = strings.TrimSuffix(h.Name, "/") // package tar would make a directory of it
			}
			switch h.Typeflag {
			case tar.TypeReg:
				h.Size = int64(b[2])
			case tar.TypeSymlink, tar.TypeLink:
				h.Linkname = targets[int(b[2])%len(targets)]
			}
			hs = append(hs, h)
			b = b[3:]
		}
		_ = unpack(t, archive(t, hs...), tr.dest)
		tr.check(t)
		if _, err := os.Lstat("/tmp/berth-fuzz"); err == nil {
			t.Fatal("an absolute name was made")
		}
	})
}
