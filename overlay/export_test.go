package overlay

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/jobs"
)

// A layer that is exported and imported reads as before, from each driver to
// each.
func TestExportImport(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	must(t, os.RemoveAll(i.Layer()))
	must(t, os.Rename(hard(t), i.Layer()))
	must(t, os.WriteFile(filepath.Join(i.Layer(), "upper/locked"), []byte("x"), 0))
	if os.Geteuid() == 0 { // ids of the container stay, and a setuid file's mode
		must(t, os.Chown(filepath.Join(i.Layer(), "upper/opt/x"), 5, 7))
		must(t, os.Chown(filepath.Join(i.Layer(), "upper/usr"), 5, 0))
		must(t, os.Chmod(filepath.Join(i.Layer(), "upper/opt/x"), 0o4755))
	}
	read := func(i *Info) string {
		t.Helper()
		l, err := openLayer(i.Mark.Driver, i.Layer())
		must(t, err)
		defer l.close()
		return describe(t, l)
	}
	want := read(i)
	for n, driver := range []string{"", jobs.DriverExt3, jobs.DriverFuse} {
		if driver == jobs.DriverExt3 {
			need(t, "mke2fs")
		}
		from, to := []string{"deps", "to0", "to1"}[n], []string{"to0", "to1", "to2"}[n]
		var b bytes.Buffer
		left, err := s.Export(t.Context(), from, &b, nil)
		if err != nil || left != 0 {
			t.Fatal(left, err)
		}
		if b.Len() > 8<<20 {
			t.Errorf("%s: the holes of a file are in the tar: %d bytes", from, b.Len())
		}
		spec := jobs.OverlaySpec{Name: to, Driver: driver}
		if driver == jobs.DriverExt3 {
			spec.Size = 128 * jobs.MiB
		}
		got, err := s.Import(t.Context(), &b, spec, "")
		must(t, err)
		if n == 0 && got.Mark.Driver != jobs.DriverFuse {
			t.Errorf("%+v", got.Mark)
		}
		if driver == jobs.DriverExt3 { // but in an image
			want = strings.ReplaceAll(strings.ReplaceAll(want, " 5:7 ", " 0:0 "), " 5:0 ", " 0:0 ")
		}
		if text := read(got); text != want {
			w := strings.Split(want, "\n")
			for n, line := range strings.Split(text, "\n") {
				if n >= len(w) || line != w[n] {
					t.Fatalf("%s, line %d: %.300s\nwant %.300s", to, n, line, w[min(n, len(w)-1)])
				}
			}
			t.Fatalf("%s: lines are missing", to)
		}
		if driver != jobs.DriverExt3 {
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(got.Layer(), "upper/big"), &st))
			if st.Blocks*512 > 2<<20 {
				t.Errorf("%s: the holes are filled: %d blocks", to, st.Blocks)
			}
		}
		if left := names(t, got.Dir); strings.Contains(left, ".making") {
			t.Errorf("left %s", left)
		}
		if driver == jobs.DriverExt3 {
			if out, err := e2fsck(t, got.Layer()); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
}

// The same by an ordinary user, with files that no one may read.
func TestExportImportAsNobody(t *testing.T) {
	if !asNobody(t) {
		return
	}
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	upper := filepath.Join(i.Layer(), "upper")
	layerOf(t, upper, "a/b", "c/d")
	must(t, os.Chmod(filepath.Join(upper, "a/b"), 0))
	must(t, os.Chmod(filepath.Join(upper, "a"), 0o500))
	must(t, os.Chmod(filepath.Join(upper, "c"), 0))
	var b bytes.Buffer
	_, err := s.Export(t.Context(), "deps", &b, nil)
	must(t, err)
	if fi, err := os.Lstat(filepath.Join(upper, "c")); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%v, %v", fi, err)
	}
	_, err = s.Import(t.Context(), &b, jobs.OverlaySpec{Name: "new"}, "")
	must(t, err)
	changes, err := s.Diff(t.Context(), "new", "")
	must(t, err)
	if got := changesText(changes); got != "written /a/b\nwritten /c/d\n" {
		t.Error(got)
	}
	must(t, s.Remove(t.Context(), "new", false))
	must(t, s.Remove(t.Context(), "deps", false))
}

// A tar that berth has not written has the marks of the driver fuse, whatever
// driver is chosen otherwise.
func TestImportForeign(t *testing.T) {
	s := newSet(t)
	s.Auto = jobs.DriverKernel
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "opt/", Typeflag: tar.TypeDir, Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{paxXattr + "user.overlay.opaque": "y"}}))
	must(t, w.WriteHeader(&tar.Header{Name: "etc/.wh.hosts", Typeflag: tar.TypeReg, Mode: 0o644, Uid: 1234}))
	must(t, w.Close())
	i, err := s.Import(t.Context(), &b, jobs.OverlaySpec{Name: "deps"}, "")
	must(t, err)
	tr, err := readTree(t.Context(), i.Mark.Driver, i.Layer())
	must(t, err)
	if e := tr.at["opt"]; i.Mark.Driver != jobs.DriverFuse || !e.opaque || e.opaqueBy != "fuseoverlayfs" || !tr.at["etc/hosts"].whiteout {
		t.Errorf("%+v %+v", i.Mark, e)
	}
}

func TestImportHostile(t *testing.T) {
	outside := t.TempDir()
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
	}
	for name, list := range map[string][]*tar.Header{
		"up":               {file("../x")},
		"far up":           {file("a/../../../x")},
		"absolute":         {file("/etc/x")},
		"through a link":   {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, file("l/x")},
		"link up":          {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../mark.json"}},
		"through its link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/x"}},
		"twice":            {file("x"), file("x")},
		"a device":         {{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}},
		"another device":   {{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}},
		"a hard link out":  {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"no type":          {{Name: "x", Typeflag: 'Z'}},
		"a screen's image": {{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{paxComment: commentWord + `{"version":1,"driver":"fuse","image":"/a\u001b[2J","image_id":"x"}`}}},
		"a negative size":  {{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{paxComment: commentWord + `{"version":1,"driver":"fuse","size_bytes":-1,"image":"/a","image_id":"x"}`}}},
		"over a link":      {{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "y"}, file("x")},
	} {
		s := newSet(t)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range list {
			must(t, w.WriteHeader(h))
		}
		must(t, w.Close())
		if _, err := s.Import(t.Context(), &b, jobs.OverlaySpec{Name: "deps"}, ""); err == nil {
			t.Errorf("%s: taken", name)
		}
		if got := names(t, outside); got != "" {
			t.Fatalf("%s: made %s", name, got)
		}
		if _, err := s.Get("deps"); jobs.KindOf(err) != jobs.KindNotFound {
			t.Errorf("%s: %v", name, err)
		}
		if found, err := s.Collect(t.Context(), false); err != nil || len(found) != 0 {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	for _, size := range []string{"9000000000000000000", "2000000000000"} {
		s := newSet(t)
		records := paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.minor", "0") + paxRecord("GNU.sparse.name", "huge") + paxRecord("GNU.sparse.realsize", size)
		var b bytes.Buffer
		b.Write(ustar("x", tar.TypeXHeader, 0o644, int64(len(records))))
		b.WriteString(records)
		pad(&b)
		b.Write(ustar("x", tar.TypeReg, 0o644, tarBlock))
		b.WriteString("1\n" + size + "\n0\n")
		pad(&b)
		b.Write(make([]byte, 2*tarBlock))
		if _, err := s.Import(t.Context(), &b, jobs.OverlaySpec{Name: "deps"}, ""); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "much smaller") {
			t.Error(err)
		}
	}
	s := newSet(t)
	if _, err := s.Import(t.Context(), strings.NewReader(strings.Repeat("no tar ", 500)), jobs.OverlaySpec{Name: "deps"}, ""); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
}

// A patch, which earlier versions exported, is told from a damaged tar.
func TestImportPatch(t *testing.T) {
	s := newSet(t)
	text := "Overlay deps over its image (\"/x.sif\"), made by berth. In a directory with the files of\nthe latter: patch -p1 <FILE.\n\ndiff --git a/x b/x\n"
	for _, text := range []string{text, text + strings.Repeat("+line\n", 200)} {
		_, err := s.Import(t.Context(), strings.NewReader(text), jobs.OverlaySpec{Name: "deps"}, "")
		if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "it is a patch") || !strings.Contains(jobs.HintOf(err), "patch -p1") {
			t.Error(err)
		}
		if left := names(t, s.Dir); left != "" {
			t.Errorf("left %s", left)
		}
	}
}
