package overlay

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// layerOf makes an upper directory, of lines "PATH" (a file), "PATH/" (a
// directory), "PATH!" (an opaque one), "PATH-" (a whiteout), "PATH>TO" (a link).
func layerOf(t *testing.T, upper string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		p := filepath.Join(upper, strings.TrimRight(l, "!/-"))
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		switch {
		case strings.HasSuffix(l, "/"):
			must(t, os.MkdirAll(p, 0o755))
		case strings.HasSuffix(l, "=700"):
			must(t, os.MkdirAll(strings.TrimSuffix(p, "=700"), 0o755))
			must(t, os.Chmod(strings.TrimSuffix(p, "=700"), 0o700))
		case strings.HasSuffix(l, "=4755"):
			p = strings.TrimSuffix(p, "=4755")
			must(t, os.WriteFile(p, []byte(l), 0o644))
			must(t, os.Chmod(p, 0o755|os.ModeSetuid))
		case strings.HasSuffix(l, "!"):
			must(t, os.MkdirAll(p, 0o755))
			must(t, unix.Setxattr(p, "user.fuseoverlayfs.opaque", []byte("y"), 0))
		case strings.HasSuffix(l, "-"):
			must(t, unix.Mknod(p, unix.S_IFCHR, 0))
		case strings.Contains(l, ">"):
			name, to, _ := strings.Cut(l, ">")
			must(t, os.Symlink(to, filepath.Join(upper, name)))
		default:
			must(t, os.WriteFile(p, []byte(l), 0o644))
		}
	}
}

func changesText(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(string(c.Kind) + " " + c.Path)
		if c.Setuid {
			b.WriteString(" setuid")
		}
		b.WriteString("\n")
	}
	return b.String()
}

var someImage = imageOf("etc/", "etc/apt/", "etc/apt/a", "etc/hosts", "opt/", "opt/x", "opt/y/", "opt/y/z", "usr/", "usr/doc/", "usr/doc/f", "usr/doc/g")

// imageOf is an image with these files, and directories, of their usual modes.
func imageOf(paths ...string) *listing {
	l := newListing()
	for _, p := range paths {
		if dir, ok := strings.CutSuffix(p, "/"); ok {
			l.add(dir, unix.S_IFDIR|0o755)
		} else {
			l.add(p, unix.S_IFREG|0o644)
		}
	}
	return l
}

func diffDirs(t *testing.T, old, now []string, base lower) string {
	t.Helper()
	trees := [2]tree{}
	for n, lines := range [][]string{old, now} {
		layer := t.TempDir()
		must(t, os.Mkdir(filepath.Join(layer, "upper"), 0o755))
		layerOf(t, filepath.Join(layer, "upper"), lines...)
		// As a copy keeps them.
		must(t, filepath.WalkDir(layer, func(p string, _ os.DirEntry, err error) error {
			ts := []unix.Timespec{{Sec: 1000}, {Sec: 1000}}
			if err == nil && !strings.HasSuffix(p, "touched") {
				err = unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW)
			}
			return err
		}))
		var err error
		trees[n], err = readTree(t.Context(), jobs.DriverFuse, layer)
		must(t, err)
	}
	return changesText(diff(trees[0], trees[1], base))
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		old, now []string
		base     lower
		want     string
	}{
		"nothing":                     {},
		"a new file":                  {now: []string{"etc/new"}, want: "added /etc/new\n"},
		"a new directory":             {now: []string{"srv/a/b"}, want: "added /srv\nadded /srv/a\nadded /srv/a/b\n"},
		"setuid":                      {now: []string{"opt/su=4755"}, want: "added /opt/su setuid\n"},
		"changed":                     {now: []string{"etc/hosts"}, want: "changed /etc/hosts\n"},
		"deleted":                     {now: []string{"etc/hosts-", "opt-"}, want: "deleted /etc/hosts\ndeleted /opt\n"},
		"a whiteout as a file":        {now: []string{"etc/.wh.hosts"}, want: "deleted /etc/hosts\n"},
		"of what never was":           {now: []string{"etc/nothing-"}},
		"replaced":                    {now: []string{"opt!", "opt/y/new"}, want: "deleted /opt/x\nadded /opt/y/new\ndeleted /opt/y/z\n"},
		"replaced, marked by a file":  {now: []string{"opt/.wh..wh..opq", "opt/x"}, want: "changed /opt/x\ndeleted /opt/y\n"},
		"made again, and empty":       {now: []string{"opt!"}, want: "deleted /opt/x\ndeleted /opt/y\n"},
		"in place of a directory":     {now: []string{"opt"}, want: "changed /opt\n"},
		"a directory on the way":      {now: []string{"opt/"}, want: ""},
		"another mode":                {now: []string{"opt=700"}, want: "changed /opt\n"},
		"another mode, and more":      {now: []string{"opt/new", "opt=700"}, want: "changed /opt\nadded /opt/new\n"},
		"a directory for a file":      {now: []string{"etc/hosts/"}, want: "changed /etc/hosts\n"},
		"since: the same mode":        {old: []string{"opt=700"}, now: []string{"opt=700"}},
		"berth's own":                 {now: []string{".berth/io/x"}},
		"image not known":             {now: []string{"etc/hosts", "opt-"}, base: unknownLower{}, want: "written /etc/hosts\ndeleted /opt\n"},
		"since: the same":             {old: []string{"etc/hosts", "srv/a", "opt-"}, now: []string{"etc/hosts", "srv/a", "opt-"}},
		"since: more":                 {old: []string{"etc/hosts"}, now: []string{"etc/hosts", "etc/hosts2", "srv/"}, want: "added /etc/hosts2\nadded /srv\n"},
		"since: touched":              {old: []string{"etc/touched"}, now: []string{"etc/touched"}, want: "changed /etc/touched\n"},
		"since: deleted":              {old: []string{"srv/a/b"}, now: []string{"etc/"}, want: "deleted /srv\n"},
		"since: deleted of the image": {old: []string{"etc/hosts"}, now: []string{"etc/hosts-"}, want: "deleted /etc/hosts\n"},
		"since: made again":           {old: []string{"etc/hosts-"}, now: []string{"etc/hosts"}, want: "added /etc/hosts\n"},
		"since: in what was replaced": {old: []string{"opt!", "opt/new"}, now: []string{"opt!", "opt/x"}, want: "deleted /opt/new\nadded /opt/x\n"},
		"since: image not known":      {old: []string{"etc/hosts", "a"}, now: []string{"etc/hosts", "b"}, base: unknownLower{}, want: "deleted /a\nwritten /b\n"},
	} {
		if c.base == nil {
			c.base = someImage
		}
		if got := diffDirs(t, c.old, c.now, c.base); got != c.want {
			t.Errorf("%s:\n%swant\n%s", name, got, c.want)
		}
	}
}

// What the container program does to modes when it unpacks an image is no change
// of the overlay's.
func TestAltered(t *testing.T) {
	dir := func(mode uint32, uid int) *entry { return &entry{mode: unix.S_IFDIR | mode, uid: uid} }
	for _, c := range []struct {
		e    *entry
		n    *node
		want bool
	}{
		{dir(0o755, 0), nil, false},
		{dir(0o755, 0), &node{mode: unix.S_IFDIR | 0o555, uid: -1, gid: -1}, false},
		{dir(0o755, 0), &node{mode: unix.S_IFDIR | 0o555}, true},
		{dir(0o750, 0), &node{mode: unix.S_IFDIR | 0o755, uid: -1, gid: -1}, true},
		{dir(0o755, 5), &node{mode: unix.S_IFDIR | 0o755, uid: -1, gid: -1}, true},
		{dir(0o755, 5), &node{mode: unix.S_IFDIR | 0o755, uid: 5}, false},
		{dir(0o755, 0), &node{mode: unix.S_IFDIR | 0o755, uid: 5}, false}, // a copy that a user has made
	} {
		if got := altered(c.e, c.n); got != c.want {
			t.Errorf("%+v over %+v: %t", c.e, c.n, got)
		}
	}
}

// describe says all that is read of a layer.
func describe(t *testing.T, l layerReader) string {
	t.Helper()
	var b strings.Builder
	must(t, l.walk(func(e *entry) error {
		fmt.Fprintf(&b, "%s %o %d:%d opaque %t", e.path, e.mode, e.uid, e.gid, e.opaque)
		if e.whiteout {
			b.WriteString(" whiteout\n")
			return nil
		}
		x, err := l.xattrs(e)
		must(t, err)
		// Seconds: some versions of mke2fs write no more.
		fmt.Fprintf(&b, " %d %d %q %d %q\n", e.mtime/1e9, e.rdev, e.link, e.nlink, x)
		if e.mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		f, err := l.open(e)
		must(t, err)
		content, err := io.ReadAll(f)
		must(t, err)
		must(t, f.Close())
		if int64(len(content)) != e.size {
			t.Errorf("%s: %d of %d bytes", e.path, len(content), e.size)
		}
		sum := 0
		for n, c := range content {
			sum += (n%251 + 1) * int(c)
		}
		fmt.Fprintf(&b, "  %d %d\n", len(content), sum)
		return nil
	}))
	return b.String()
}

// hard is a layer with what is hard to read.
func hard(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	upper := filepath.Join(root, "upper")
	layerOf(t, upper, "etc/hosts-", "opt!", "opt/x", "usr/", "link>../../etc/passwd", "long>"+strings.Repeat("long/", 40)+"end")
	for n := range 300 {
		layerOf(t, upper, fmt.Sprintf("many/a-file-with-a-long-name-%04d", n))
	}
	big, err := os.Create(filepath.Join(upper, "big"))
	must(t, err)
	chunk := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuv"), 4096)
	for _, at := range []int64{0, 3 << 20, 70 << 20} { // direct, indirect, doubly indirect, holes between
		_, err = big.WriteAt(chunk, at)
		must(t, err)
	}
	must(t, big.Close())
	must(t, unix.Setxattr(filepath.Join(upper, "opt/x"), "user.note", []byte("hello"), 0))
	must(t, unix.Setxattr(filepath.Join(upper, "usr"), "user.large", bytes.Repeat([]byte("v"), 700), 0))
	must(t, os.Link(filepath.Join(upper, "opt/x"), filepath.Join(upper, "opt/hard")))
	must(t, os.Chmod(filepath.Join(upper, "opt/x"), 0o4755))
	return root
}

// An image and the directory that it was made of read alike.
func TestExt3Read(t *testing.T) {
	need(t, "mke2fs")
	root := hard(t)
	img := filepath.Join(t.TempDir(), fileImage)
	must(t, mkfsFrom(t.Context(), here, img, root, 128*jobs.MiB, 0, false))
	dir, err := openLayer(jobs.DriverFuse, root)
	must(t, err)
	defer dir.close()
	ext3, err := openLayer(jobs.DriverExt3, img)
	must(t, err)
	defer ext3.close()
	want, got := describe(t, dir), describe(t, ext3)
	if got != want {
		w := strings.Split(want, "\n")
		for n, line := range strings.Split(got, "\n") {
			if n >= len(w) || line != w[n] {
				t.Fatalf("line %d: %.300s\nwant %.300s", n, line, w[min(n, len(w)-1)])
			}
		}
		t.Fatal("lines are missing")
	}
}

// Whatever an image says, reading it ends, and touches nothing else.
func TestExt3ReadHostile(t *testing.T) {
	need(t, "mke2fs")
	root := t.TempDir()
	layerOf(t, filepath.Join(root, "upper"), "etc/hosts", "a/b/c/d", "opt!")
	img := filepath.Join(t.TempDir(), fileImage)
	must(t, mkfsFrom(t.Context(), here, img, root, 16*jobs.MiB, 256, false))
	good, err := os.ReadFile(img)
	must(t, err)
	f, err := os.Open(img)
	must(t, err)
	var places []int64
	must(t, dataRuns(f, int64(len(good)), func(at int64, b []byte) error {
		for n := range b {
			if b[n] != 0 {
				places = append(places, at+int64(n))
			}
		}
		return nil
	}))
	must(t, f.Close())
	w, err := os.OpenFile(img, os.O_WRONLY, 0)
	must(t, err)
	defer w.Close()
	for n := 0; n < len(places); n += 1 + len(places)/1500 {
		at := places[n]
		for _, v := range []byte{0xff, good[at] ^ 0x10} {
			_, err := w.WriteAt([]byte{v}, at)
			must(t, err)
			if l, err := openExt3(img); err == nil {
				_ = l.walk(func(e *entry) error {
					if e.path == "" || strings.HasPrefix(e.path, "/") || strings.Contains("/"+e.path+"/", "/../") {
						t.Errorf("a path %q", e.path)
					}
					_, _ = l.xattrs(e)
					if r, err := l.open(e); err == nil {
						_, _ = io.CopyN(io.Discard, r, 1<<16)
					}
					return nil
				})
				l.close()
			}
		}
		_, err = w.WriteAt(good[at:at+1], at)
		must(t, err)
	}
}

func TestDiffOverlays(t *testing.T) {
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		s := newSet(t)
		i := s.create(t, "deps", driver)
		if driver == jobs.DriverExt3 {
			root := t.TempDir()
			must(t, os.Mkdir(filepath.Join(root, "work"), 0o755))
			layerOf(t, filepath.Join(root, "upper"), "srv/a")
			must(t, os.Remove(i.Layer()))
			must(t, mkfsFrom(t.Context(), here, i.Layer(), root, 16*jobs.MiB, 0, false))
		} else {
			layerOf(t, filepath.Join(i.Layer(), "upper"), "srv/a")
		}
		changes, err := s.Diff(t.Context(), "deps", "")
		if got := changesText(changes); err != nil || got != "written /srv/a\n" {
			t.Errorf("%s: %q, %v", driver, got, err)
		}
		_, err = s.Snapshot(t.Context(), "deps", "x", false)
		must(t, err)
		changes, err = s.Diff(t.Context(), "deps", "x")
		if len(changes) != 0 || err != nil {
			t.Errorf("%s: %v, %v", driver, changes, err)
		}
		if _, err := s.Diff(t.Context(), "deps", "y"); jobs.CodeOf(err) != jobs.CodeNotFound {
			t.Error(err)
		}
	}
}

func TestListing(t *testing.T) {
	l := parseListing("Parallel unsquashfs: Using 2 processors\n" +
		"drwxr-xr-x root/root               123 2025-02-04 13:40 \n" +
		"drwxr-xr-x root/root               123 2025-02-04 13:40 /usr\n" +
		"drwxrwsr-t 0/50                    123 2025-02-04 13:40 /usr/doc\n" +
		"-rwsr-Sr-- root/a b                  3 2025-02-04 13:40 /usr/doc/a b\n" +
		"lrwxrwxrwx root/root                 9 2025-02-04 13:40 /usr/link -> /a -> bcd\n" +
		"crw-rw-rw- root/root            1,   3 2025-02-04 13:40 /null\n" +
		"brw------- root/root            8,  13 2025-02-04 13:40 /etc b \n")
	for p, mode := range map[string]uint32{"usr": 0o40755, "usr/doc": 0o43775, "usr/link": 0o120777, "null": 0o20666, "etc b ": 0o60600} {
		if n := l.stat(p); n == nil || n.mode != mode {
			t.Errorf("%q: %+v", p, n)
		}
	}
	if has, _ := l.has("usr/doc/a"); has {
		t.Error("a")
	}
	if got := strings.Join(l.children("usr"), " "); got != "doc link" {
		t.Error(got)
	}
	for s, want := range map[string]uint32{"-rwsr-sr-t ": 0o106755 | 0o1000, "-rwSr-Sr-T ": 0o107644&^0o1000 | 0o1000, "p--------- ": 0o10000} {
		if got, ok := parseMode(s); !ok || got != want {
			t.Errorf("%s: %o, want %o", s, got, want)
		}
	}
}

// What the kernel's overlayfs writes with options that berth does not use is
// understood, or refused in words.
func TestForeignMarks(t *testing.T) {
	layer := t.TempDir()
	upper := filepath.Join(layer, "upper")
	layerOf(t, upper, "opt/", "opt/gone", "opt/empty", "opt/moved/")
	must(t, os.Truncate(filepath.Join(upper, "opt/gone"), 0))
	must(t, os.Truncate(filepath.Join(upper, "opt/empty"), 0))
	must(t, unix.Setxattr(filepath.Join(upper, "opt"), "user.overlay.opaque", []byte("x"), 0))
	must(t, unix.Setxattr(filepath.Join(upper, "opt/gone"), "user.overlay.whiteout", []byte("y"), 0))
	tr, err := readTree(t.Context(), jobs.DriverKernel, layer)
	must(t, err)
	if !tr.at["opt/gone"].whiteout || tr.at["opt/empty"].whiteout || tr.at["opt"].opaque {
		t.Errorf("%+v %+v", tr.at["opt/gone"], tr.at["opt/empty"])
	}
	must(t, unix.Setxattr(filepath.Join(upper, "opt/moved"), "user.overlay.redirect", []byte("/opt/y"), 0))
	if _, err = readTree(t.Context(), jobs.DriverKernel, layer); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "/opt/moved was renamed") {
		t.Error(err)
	}
}

// The kernel's driver takes no file for a mark.
func TestNamesAreNoMarks(t *testing.T) {
	layer := t.TempDir()
	layerOf(t, filepath.Join(layer, "upper"), "opt/.wh.x", "opt/.wh..wh..opq")
	tr, err := readTree(t.Context(), jobs.DriverKernel, layer)
	must(t, err)
	if e := tr.at["opt/.wh.x"]; e == nil || e.whiteout || tr.at["opt"].opaque || tr.at["opt/.wh..wh..opq"] == nil {
		t.Errorf("%+v", tr.at)
	}
}

// A sandbox directory is a base as well.
func TestDiffSandbox(t *testing.T) {
	base := t.TempDir()
	layerOf(t, base, "etc/hosts", "opt/x", "opt/y/z", "lib>usr/lib", "usr/lib/f")
	root, err := os.OpenRoot(base)
	must(t, err)
	defer root.Close()
	d := newDirImage(root)
	want := "changed /etc/hosts\nchanged /lib\nadded /lib/f\nchanged /opt\ndeleted /opt/x\ndeleted /opt/y\nadded /srv\n"
	if got := diffDirs(t, nil, []string{"etc/hosts", "lib/f", "opt!", "opt=700", "srv/"}, d); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
