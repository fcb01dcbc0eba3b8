package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

func templated(t *testing.T, size jobs.Bytes) (spec jobs.OverlaySpec, file string) {
	t.Helper()
	need(t, "mke2fs", "e2fsck")
	t.Setenv("TMPDIR", t.TempDir())
	spec = jobs.OverlaySpec{Driver: jobs.DriverExt3, Size: size, Templates: filepath.Join(t.TempDir(), "ext3")}
	return spec, templateFile(spec.Templates, size, 0)
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	return fi.Sys().(*syscall.Stat_t).Blocks * 512
}

// A large image costs little, and what is made of its template is sound.
func TestTemplate(t *testing.T) {
	spec, file := templated(t, 50*jobs.GiB)
	var images []string
	for range 2 {
		l, err := Temporary(t.Context(), here, t.TempDir(), spec)
		must(t, err)
		defer func() { must(t, l.Close()) }()
		if fi, err := os.Stat(l.Path); err != nil || fi.Size() != int64(50*jobs.GiB) || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", fi, err)
		}
		if got := names(t, filepath.Dir(l.Path)); got != fileImage {
			t.Errorf("left %s", got)
		}
		images = append(images, l.Path)
	}
	if out, err := e2fsck(t, images[1]); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if on := blocks(t, images[1]) + blocks(t, file); on > 40<<20 {
		t.Errorf("%d bytes on disk", on)
	}
	if got := names(t, os.Getenv("TMPDIR")); got != "" {
		t.Errorf("left %s", got)
	}
	if got := names(t, spec.Templates); got != filepath.Base(file) {
		t.Errorf("left %s", got)
	}
	// The second one starts no program.
	if _, err := Temporary(t.Context(), failing{os.ErrPermission}, t.TempDir(), spec); err != nil {
		t.Error(err)
	}
}

// A template that is damaged in any way is made again, and never used.
func TestTemplateDamaged(t *testing.T) {
	spec, file := templated(t, 16*jobs.MiB)
	layer := func() string {
		t.Helper()
		l, err := Temporary(t.Context(), here, t.TempDir(), spec)
		must(t, err)
		t.Cleanup(func() { must(t, l.Close()) })
		if out, err := e2fsck(t, l.Path); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return l.Path
	}
	layer()
	whole, err := os.ReadFile(file)
	must(t, err)
	elsewhere := filepath.Join(t.TempDir(), "x")
	must(t, os.WriteFile(elsewhere, whole, 0o600))
	flipped := []byte(string(whole))
	flipped[len(flipped)/2] ^= 0xff
	for name, spoil := range map[string]func() error{
		"empty":     func() error { return os.WriteFile(file, nil, 0o600) },
		"cut off":   func() error { return os.WriteFile(file, whole[:len(whole)-6], 0o600) },
		"changed":   func() error { return os.WriteFile(file, flipped, 0o600) },
		"foreign":   func() error { return os.WriteFile(file, []byte(strings.Repeat("hello\n", 99)), 0o600) },
		"a link":    func() error { return os.Symlink(elsewhere, file) },
		"directory": func() error { return os.Mkdir(file, 0o700) },
	} {
		must(t, os.RemoveAll(file))
		must(t, spoil())
		layer()
		if b, err := os.ReadFile(file); err != nil || len(b) < 100 || name != "a link" && string(b[:2]) != "\x1f\x8b" {
			t.Errorf("%s: not made anew: %d bytes, %v", name, len(b), err)
		}
		if fi, err := os.Lstat(file); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	if b, err := os.ReadFile(elsewhere); err != nil || string(b) != string(whole) {
		t.Error("what the link leads to was touched")
	}
	// Where none can be kept, an image is made all the same.
	spec.Templates = filepath.Join(elsewhere, "below-a-file")
	layer()
}

func TestInodes(t *testing.T) {
	spec, _ := templated(t, 64*jobs.MiB)
	spec.Inodes = 20000
	l, err := Temporary(t.Context(), here, t.TempDir(), spec)
	must(t, err)
	defer func() { must(t, l.Close()) }()
	program, err := tool("dumpe2fs")
	must(t, err)
	out, err := run.Output(t.Context(), here, jobs.Cmd{Argv: []string{program, "-h", l.Path}})
	if err != nil || !strings.Contains(string(out), "Inode count:              199") {
		t.Errorf("%v\n%s", err, out)
	}
}
