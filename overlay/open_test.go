package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/disk"
	"berth/jobs"

	"github.com/google/uuid"
)

func TestPersistent(t *testing.T) {
	image, other := sif(t, uuid.New(), "x"), sif(t, uuid.New(), "y")
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(driver, func(t *testing.T) {
			if driver == jobs.DriverExt3 {
				need(t, "mke2fs", "e2fsck")
			}
			dir := filepath.Join(t.TempDir(), "overlays", "deps")
			l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("aaaaaaaa"), never)
			must(t, err)
			if filepath.Dir(l.Path) != dir || len(l.Notes) != 0 {
				t.Errorf("%+v", l)
			}
			if _, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("bbbbbbbb"), never); jobs.CodeOf(err) != jobs.CodeAgain {
				t.Errorf("a second user: %v", err)
			}
			must(t, l.Close())

			wrong := named(jobs.DriverFuse)
			if driver == jobs.DriverFuse {
				wrong = named(jobs.DriverExt3)
			}
			for what, c := range map[string]struct {
				spec  jobs.OverlaySpec
				image string
				code  int
			}{
				"another driver":     {wrong, image, jobs.CodeConfig},
				"another image":      {named(driver), other, jobs.CodeConfig},
				"no image":           {named(driver), "/none.sif", jobs.CodeInfra},
				"an impossible name": {jobs.OverlaySpec{Name: "../x", Driver: driver}, image, jobs.CodeUsage},
			} {
				l, err := Persistent(t.Context(), here, dir, c.spec, Image{Path: c.image}, me("bbbbbbbb"), never)
				if l != nil || jobs.CodeOf(err) != c.code || c.code != jobs.CodeInfra && jobs.HintOf(err) == "" {
					t.Errorf("%s: %v, %v, hint %q", what, l, err, jobs.HintOf(err))
				}
			}

			// None of the refusals has kept the lease, and a copy of the image
			// is the same image.
			b, err := os.ReadFile(image)
			must(t, err)
			moved := filepath.Join(t.TempDir(), "moved.sif")
			must(t, os.WriteFile(moved, b, 0o600))
			l, err = Persistent(t.Context(), here, dir, named(driver), Image{Path: moved}, me("bbbbbbbb"), never)
			must(t, err)
			must(t, l.Close())
			if m, err := ReadMark(dir); err != nil || m.Name != "deps" || m.Driver != driver || m.Image != image || m.Version != 1 || m.Created.IsZero() {
				t.Errorf("%+v, %v", m, err)
			}

			// What a purge has taken away does not become an empty layer.
			must(t, disk.RemoveTree(l.Path))
			if _, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("cccccccc"), never); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "lost its content") {
				t.Errorf("without its layer: %v", err)
			}
		})
	}
}

// TestHalfMade: a layer without a mark was being made by someone who is gone;
// nothing of it is used.
func TestHalfMade(t *testing.T) {
	need(t, "mke2fs")
	image := sif(t, uuid.New(), "x")
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		dir := filepath.Join(t.TempDir(), "deps")
		for _, d := range []string{"layer/upper/old", "layer/work", ".mkfs-123/upper"} {
			must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
		}
		for _, f := range []string{"layer.ext3", "layer.ext3.new", "layer/upper/old/f"} {
			must(t, os.WriteFile(filepath.Join(dir, f), []byte("half"), 0o600))
		}
		must(t, os.WriteFile(filepath.Join(dir, fileBegun), nil, 0o600))
		_, err := Acquire(dir, me("deadbeef"), never)
		must(t, err)
		l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("aaaaaaaa"), always)
		must(t, err)
		must(t, l.Close())
		want := "layer lease.2.free lease.2.json mark.json"
		if driver == jobs.DriverExt3 {
			want = "layer.ext3 lease.2.free lease.2.json mark.json"
		} else if _, err := os.Stat(filepath.Join(l.Path, "upper", "old")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the old content: %v", err)
		}
		if got := names(t, dir); got != want {
			t.Errorf("%s: there is %s, want %s", driver, got, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "deps")
	if _, err := Persistent(t.Context(), here, dir, named("magic"), Image{Path: image}, me("aaaaaaaa"), never); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
	if l, err := Persistent(t.Context(), here, dir, named(jobs.DriverFuse), Image{Path: image}, me("bbbbbbbb"), never); err != nil {
		t.Errorf("after a failure: %v", err)
	} else {
		must(t, l.Close())
	}
}

func TestTemporary(t *testing.T) {
	dir := t.TempDir()
	l, err := Temporary(t.Context(), here, dir, jobs.OverlaySpec{Driver: jobs.DriverFuse})
	must(t, err)
	for _, d := range []string{"upper", "work"} {
		if fi, err := os.Stat(filepath.Join(l.Path, d)); err != nil || !fi.IsDir() {
			t.Error(err)
		}
	}
	// It becomes the root directory inside, where service users must enter.
	if fi, err := os.Stat(filepath.Join(l.Path, "upper")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if fi, err := os.Stat(filepath.Dir(l.Path)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if _, err := Temporary(t.Context(), here, dir, jobs.OverlaySpec{Driver: jobs.DriverFuse}); err == nil {
		t.Error("two in one place")
	}
	must(t, l.Close())
	must(t, l.Close())
	if _, err := Temporary(t.Context(), here, dir, jobs.OverlaySpec{Driver: "magic"}); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
}

// TestCopy copies a layer as fuse-overlayfs and an agent leave it, as a user.
func TestCopy(t *testing.T) {
	if !asNobody(t) {
		return
	}
	scratch := t.TempDir()
	l, err := Temporary(t.Context(), here, scratch, jobs.OverlaySpec{Driver: jobs.DriverFuse})
	must(t, err)
	upper := filepath.Join(l.Path, "upper")
	must(t, os.MkdirAll(filepath.Join(upper, "etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(upper, "etc", "f"), []byte("x"), 0o640))
	must(t, os.Symlink("/etc/shadow", filepath.Join(upper, "etc", "link")))
	must(t, os.Mkdir(filepath.Join(l.Path, "work", "work"), 0))
	must(t, os.WriteFile(filepath.Join(upper, "-rf"), nil, 0o600))
	must(t, os.Chmod(filepath.Join(upper, "etc"), 0o500))
	c, err := Copy(t.Context(), here, l, scratch, jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverFuse})
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(c.Path, "upper", "etc", "f")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := os.Readlink(filepath.Join(c.Path, "upper", "etc", "link")); err != nil || to != "/etc/shadow" {
		t.Errorf("%q, %v", to, err)
	}
	if fi, err := os.Stat(filepath.Join(c.Path, "upper", "etc")); err != nil || fi.Mode().Perm() != 0o500 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if got := names(t, filepath.Join(c.Path, "work")); got != "" {
		t.Errorf("work was copied: %s", got)
	}
	must(t, c.Close())
	if _, err := os.Stat(filepath.Join(upper, "etc", "f")); err != nil {
		t.Errorf("the end of the copy has changed the layer: %v", err)
	}
	// Nothing is left of one that fails.
	if _, err := Copy(t.Context(), failing{errors.New("no more processes")}, l, scratch, jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverFuse}); err == nil || !strings.Contains(err.Error(), "deps") {
		t.Errorf("it could not be copied: %v", err)
	}
	if got := names(t, scratch); got != "overlay" {
		t.Errorf("left %s", got)
	}
	must(t, l.Close()) // 0000 and 0500 directories in it
	if got := names(t, scratch); got != "" {
		t.Errorf("left %s", got)
	}
}
