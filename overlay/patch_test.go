package overlay

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// sandboxOverlay is an overlay over a sandbox directory, and the directory.
func sandboxOverlay(t *testing.T) (s testSet, i *Info, base string) {
	t.Helper()
	s = newSet(t)
	i = s.create(t, "deps", jobs.DriverFuse)
	base = t.TempDir()
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
	return s, i, base
}

func TestPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch is not here")
	}
	s, i, base := sandboxOverlay(t)
	var b bytes.Buffer
	left, err := s.Patch(t.Context(), "deps", "", &b)
	must(t, err)
	text := b.String()
	head, _, _ := strings.Cut(text, "\ndiff ")
	for _, want := range []string{`binary file: "/bin/tool"`, `link or special file: "/srv/link"`, `empty directory: "/srv/empty"`, `"/etc/hosts\nfake"`} {
		if !strings.Contains(head, want) {
			t.Errorf("the head has no %s:\n%s", want, head)
		}
	}
	if left != strings.Count(head, "\n  ") {
		t.Errorf("%d\n%s", left, head)
	}
	// Applied to the image's files it makes those of the overlay.
	must(t, os.Remove(filepath.Join(base, "bin/tool")))
	cmd := exec.CommandContext(t.Context(), "patch", "-p1", "-d", base)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	for p, want := range map[string]string{"etc/hosts": "one\ntwo and a half\nthree\n", "srv/new": "new\nno newline", "a-hard-link": "new\nno newline", "opt/x": "x again\n", "etc/gone": "", "opt/y/z": "", "doc/a": "", "doc/b/c": ""} {
		got, _ := os.ReadFile(filepath.Join(base, p))
		if string(got) != want {
			t.Errorf("%s: %q", p, got)
		}
	}
	if fi, err := os.Stat(filepath.Join(base, "opt/x")); err != nil || fi.Mode()&0o100 == 0 {
		t.Errorf("%v, %v", fi, err)
	}
	// Since a snapshot.
	_, err = s.Snapshot(t.Context(), "deps", "x", false)
	must(t, err)
	upper := filepath.Join(i.Layer(), "upper")
	must(t, os.WriteFile(filepath.Join(upper, "opt/x"), []byte("and again\n"), 0o755))
	must(t, os.Remove(filepath.Join(upper, "srv/new")))
	must(t, unix.Mknod(filepath.Join(upper, "srv/new"), unix.S_IFCHR, 0))
	// The sandbox was changed by the patch, and is put back as an image that agrees.
	m := *i.Mark
	m.Image = base
	m.ImageID, err = DirID(base)
	must(t, err)
	must(t, writeMark(i.Dir, &m))
	b.Reset()
	_, err = s.Patch(t.Context(), "deps", "x", &b)
	must(t, err)
	got := b.String()
	for _, want := range []string{"-x again\n+and again\n", "deleted file mode", "--- a/srv/new\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "etc/hosts") {
		t.Errorf("more than since the snapshot:\n%s", got)
	}
}

// The files of an overlay over those of its image are what a container shows.
func TestApply(t *testing.T) {
	s, _, base := sandboxOverlay(t)
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
