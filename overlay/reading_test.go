package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// A digest tells the files of an overlay from others, and nothing else of it.
func TestDigest(t *testing.T) {
	s := newSet(t)
	digest := func(name string) string {
		t.Helper()
		r, err := s.Read(t.Context(), name, "read")
		must(t, err)
		defer r.Close()
		d, err := r.Digest(t.Context())
		must(t, err)
		return d
	}
	upper := filepath.Join(s.create(t, "deps", jobs.DriverFuse).Layer(), "upper")
	must(t, os.WriteFile(filepath.Join(upper, "tool"), []byte("one"), 0o644))
	layerOf(t, upper, "etc/gone-", "opt!")
	was := digest("deps")
	if len(was) != 64 || digest("deps") != was {
		t.Errorf("%q, and %q", was, digest("deps"))
	}
	_, err := s.Fork(t.Context(), "deps", "copy")
	must(t, err)
	if d := digest("copy"); d != was {
		t.Errorf("of the same files of another name %q, want %q", d, was)
	}
	seen := map[string]string{was: "at first"}
	for _, change := range []struct {
		what string
		do   func() error
	}{
		{"content", func() error { return os.WriteFile(filepath.Join(upper, "tool"), []byte("two"), 0o644) }},
		{"mode", func() error { return os.Chmod(filepath.Join(upper, "tool"), 0o755) }},
		{"deleted", func() error { return os.Remove(filepath.Join(upper, "tool")) }},
		{"whiteout", func() error { return os.RemoveAll(filepath.Join(upper, "etc")) }},
	} {
		must(t, change.do())
		d := digest("deps")
		if other, ok := seen[d]; ok {
			t.Errorf("%s: the digest is that of %s", change.what, other)
		}
		seen[d] = change.what
	}
}

// What is read over an image may stand over that alone, wherever it is.
func TestOver(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	base := func() Image {
		img := Image{Path: t.TempDir()}
		must(t, os.WriteFile(filepath.Join(img.Path, "file"), nil, 0o644))
		var err error
		img.ID, err = DirID(img.Path)
		must(t, err)
		return img
	}
	one, other := base(), base()
	m := *i.Mark
	m.Image, m.ImageID, m.ImageSum = "/moved/since", one.ID, ""
	must(t, writeMark(i.Dir, &m))
	r, err := s.Read(t.Context(), "deps", "read")
	must(t, err)
	defer r.Close()
	if err := r.Over(other); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("over another image: %v", err)
	}
	must(t, r.Over(one))
	if _, err := r.ImageSize(t.Context()); err != nil {
		t.Errorf("over its own, at another path: %v", err)
	}
	if m, err := ReadMark(i.Dir); err != nil || m.Image != "/moved/since" {
		t.Errorf("reading has changed the mark: %+v, %v", m, err)
	}
}

// The files of an overlay over those of its image are what a container shows.
func TestApply(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	base := t.TempDir()
	write := func(root, p, text string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, p)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, p), []byte(text), 0o644))
	}
	write(base, "etc/hosts", "one\ntwo\nthree\n")
	write(base, "etc/gone", "gone\n")
	write(base, "opt/x", "x\n")
	write(base, "opt/y/z", "z\n")
	write(base, "bin/tool", "\x00binary\n")
	write(base, "doc/a", "a\n")
	write(base, "doc/b/c", "c\n")
	must(t, os.Chmod(filepath.Join(base, "opt/y"), 0o755))
	m := *i.Mark
	m.Image = base
	var err error
	m.ImageID, err = DirID(base)
	must(t, err)
	must(t, writeMark(i.Dir, &m))
	upper := filepath.Join(i.Layer(), "upper")
	write(upper, "etc/hosts", "one\ntwo and a half\nthree\n")
	write(upper, "srv/new", "new\nno newline")
	write(upper, "bin/tool", "\x00another\n")
	write(upper, "etc/hosts\nfake", "x")
	layerOf(t, upper, "etc/gone-", "opt!", "doc-", "srv/empty/", "srv/link>hosts")
	write(upper, "opt/x", "x again\n")
	must(t, os.Chmod(filepath.Join(upper, "opt/x"), 0o755))
	must(t, os.Link(filepath.Join(upper, "srv/new"), filepath.Join(upper, "a-hard-link")))
	r, err := s.Read(t.Context(), "deps", "export")
	must(t, err)
	defer r.Close()
	if n, err := r.ImageSize(t.Context()); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
	must(t, os.MkdirAll(filepath.Join(base, "srv/link/dir"), 0o755)) // in the way
	must(t, os.Symlink("/etc", filepath.Join(base, "lib")))
	must(t, r.Apply(t.Context(), base, nil))
	var list []string
	must(t, filepath.WalkDir(base, func(p string, _ os.DirEntry, err error) error {
		list = append(list, strings.TrimPrefix(p, base))
		return err
	}))
	want := " /a-hard-link /bin /bin/tool /etc /etc/hosts /etc/hosts\nfake /lib /opt /opt/x /srv /srv/empty /srv/link /srv/new"
	if got := strings.Join(list, " "); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if to, err := os.Readlink(filepath.Join(base, "srv/link")); err != nil || to != "hosts" {
		t.Errorf("%q, %v", to, err)
	}
	if x := lgetxattr(filepath.Join(base, "opt"), "user.fuseoverlayfs.opaque"); x != "" {
		t.Errorf("the mark of the layer is in the image: %q", x)
	}
	// Over an image that is another one by now nothing is made.
	must(t, os.Mkdir(filepath.Join(base, "later"), 0o755))
	if _, err := r.ImageSize(t.Context()); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
}

// What the unpacker refuses is said, and not that the writer was cut off.
func TestApplyRefused(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	f, err := os.Create(filepath.Join(i.Layer(), "upper/huge"))
	must(t, err)
	must(t, f.Truncate(2<<40))
	must(t, f.Close())
	r, err := s.Read(t.Context(), "deps", "export")
	must(t, err)
	defer r.Close()
	if err := r.Apply(t.Context(), t.TempDir(), nil); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "much smaller") {
		t.Error(err)
	}
}

func TestPlace(t *testing.T) {
	dir := t.TempDir()
	made, to := filepath.Join(dir, "made"), filepath.Join(dir, "to")
	write := func(p, text string) { must(t, os.WriteFile(p, []byte(text), 0o600)) }
	write(made, "1")
	must(t, MayWrite(to, false))
	must(t, Place(made, to, false))
	write(made, "2") // the same file by now, as link(2) has it
	must(t, os.Remove(made))
	write(made, "3")
	if err := Place(made, to, false); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
	must(t, Place(made, to, true))
	if b, err := os.ReadFile(to); err != nil || string(b) != "3" {
		t.Errorf("%s, %v", b, err)
	}
	must(t, os.Remove(to))
	must(t, os.Symlink(made, to))
	write(made, "4")
	for _, force := range []bool{false, true} {
		if err := Place(made, to, force); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("over a link: %v", err)
		}
	}
	if err := MayWrite(filepath.Join(dir, "no/to"), true); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}
