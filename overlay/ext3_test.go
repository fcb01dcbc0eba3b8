package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/google/uuid"
)

// image makes an ext3 layer of 16 MiB.
func image(t *testing.T) *Layer {
	t.Helper()
	need(t, "mke2fs", "e2fsck")
	l, err := Temporary(t.Context(), here, t.TempDir(), jobs.OverlaySpec{Driver: jobs.DriverExt3, Size: 16 * jobs.MiB})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// poke changes bytes of a file.
func poke(t *testing.T, path string, at int64, data ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(data, at)
	must(t, err)
	must(t, f.Close())
}

func e2fsck(t *testing.T, path string) (string, error) {
	t.Helper()
	program, err := tool("e2fsck")
	must(t, err)
	out, err := run.Output(t.Context(), here, jobs.Cmd{Argv: []string{program, "-fn", path}})
	return string(out), err
}

func TestExt3(t *testing.T) {
	umask := syscall.Umask(0o077) // as berth has it
	l := image(t)
	syscall.Umask(umask)
	fi, err := os.Stat(l.Path)
	must(t, err)
	if fi.Size() != int64(16*jobs.MiB) || fi.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes, %v", fi.Size(), fi.Mode())
	}
	if out, err := e2fsck(t, l.Path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	program, err := tool("dumpe2fs")
	must(t, err)
	out, err := run.Output(t.Context(), here, jobs.Cmd{Argv: []string{program, "-h", l.Path}})
	must(t, err)
	if !strings.Contains(string(out), "Reserved block count:     0\n") || !strings.Contains(string(out), "has_journal") {
		t.Errorf("%s", out)
	}
	if debugfs, err := tool("debugfs"); err == nil {
		out, err := run.Output(t.Context(), here, jobs.Cmd{Argv: []string{debugfs, "-R", "ls -p /", l.Path}})
		must(t, err)
		for _, dir := range []string{"upper", "work"} {
			if want := fmt.Sprintf("/040755/%d/%d/%s/", os.Getuid(), os.Getgid(), dir); !strings.Contains(string(out), want) {
				t.Errorf("no %s in\n%s", want, out)
			}
		}
	}
	if repaired, err := checkExt3(t.Context(), here, l.Path); repaired || err != nil {
		t.Errorf("a clean one: %t, %v", repaired, err)
	}
	if got := names(t, filepath.Dir(l.Path)); got != fileImage {
		t.Errorf("left %s", got)
	}
}

// TestExt3Unclean sets the flags that a killed mount leaves, by hand.
func TestExt3Unclean(t *testing.T) {
	for name, spoil := range map[string]func(path string){
		"not unmounted":       func(p string) { poke(t, p, superblockAt+offsetState, 0, 0) },
		"errors were seen":    func(p string) { poke(t, p, superblockAt+offsetState, stateClean|stateErrors, 0) },
		"of a kernel's mount": func(p string) { poke(t, p, superblockAt+offsetIncompat, 0x02|needsRecovery) },
	} {
		l := image(t)
		spoil(l.Path)
		if repaired, err := checkExt3(t.Context(), here, l.Path); !repaired || err != nil {
			t.Errorf("%s: %t, %v", name, repaired, err)
		}
		if repaired, err := checkExt3(t.Context(), here, l.Path); repaired || err != nil {
			t.Errorf("%s, again: %t, %v", name, repaired, err)
		}
		if out, err := e2fsck(t, l.Path); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestExt3Damaged(t *testing.T) {
	l := image(t)
	b, err := os.ReadFile(l.Path)
	must(t, err)
	for name, content := range map[string][]byte{"empty": nil, "short": b[:1080], "zeros": make([]byte, 1<<20), "text": []byte(strings.Repeat("hello\n", 1000))} {
		must(t, os.WriteFile(l.Path, content, 0o600))
		if _, err := checkExt3(t.Context(), here, l.Path); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), l.Path) || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A dirty one of which only the first blocks are left: e2fsck gives up.
	must(t, os.WriteFile(l.Path, b[:64<<10], 0o600))
	poke(t, l.Path, superblockAt+offsetState, 0, 0)
	if _, err := checkExt3(t.Context(), here, l.Path); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "damaged") || !strings.Contains(jobs.HintOf(err), "e2fsck -fn "+l.Path) {
		t.Errorf("cut off: %v, hint %q", err, jobs.HintOf(err))
	}
	if _, err := checkExt3(t.Context(), here, l.Path+".none"); !os.IsNotExist(err) {
		t.Error(err)
	}
	// A check that we ended ourselves says nothing about the image.
	must(t, os.WriteFile(l.Path, b, 0o600))
	poke(t, l.Path, superblockAt+offsetState, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := checkExt3(ctx, here, l.Path); err == nil || jobs.KindOf(err) == jobs.KindConfig {
		t.Errorf("a killed check: %v", err)
	}
}

func TestPersistentUnclean(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	sifPath := sif(t, uuid.New(), "x")
	dir := filepath.Join(t.TempDir(), "deps")
	l, err := Persistent(t.Context(), here, dir, named(jobs.DriverExt3), Image{Path: sifPath}, me("aaaaaaaa"), never)
	must(t, err)
	poke(t, l.Path, superblockAt+offsetState, 0, 0)
	// Its owner is killed; the next one repairs.
	l, err = Persistent(t.Context(), here, dir, named(jobs.DriverExt3), Image{Path: sifPath}, me("bbbbbbbb"), always)
	must(t, err)
	if len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "e2fsck") {
		t.Errorf("notes %q", l.Notes)
	}
	// A copy for the checks is clean too, even of one that is not.
	poke(t, l.Path, superblockAt+offsetState, 0, 0)
	c, err := Copy(t.Context(), here, l, t.TempDir(), named(jobs.DriverExt3))
	must(t, err)
	if out, err := e2fsck(t, c.Path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if repaired, err := checkExt3(t.Context(), here, c.Path); repaired || err != nil {
		t.Errorf("%t, %v", repaired, err)
	}
	must(t, c.Close())
	must(t, l.Close())
	// One that cannot be repaired is refused, and its lease is free.
	must(t, os.WriteFile(l.Path, []byte("gone"), 0o600))
	for range 2 {
		if _, err := Persistent(t.Context(), here, dir, named(jobs.DriverExt3), Image{Path: sifPath}, me("cccccccc"), never); jobs.CodeOf(err) != jobs.CodeConfig {
			t.Error(err)
		}
	}
}

// failing starts nothing.
type failing struct{ err error }

func (f failing) Start(context.Context, jobs.Cmd) (jobs.Process, error) { return nil, f.err }

func TestExt3Fails(t *testing.T) {
	need(t, "mke2fs")
	dir := t.TempDir()
	spec := jobs.OverlaySpec{Driver: jobs.DriverExt3, Size: 16 * jobs.MiB}
	no := errors.New("no more processes")
	if _, err := Temporary(t.Context(), failing{no}, dir, spec); !errors.Is(err, no) || jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	spec.Size = 1 // too small for a file system
	if _, err := Temporary(t.Context(), here, dir, spec); jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "1B") {
		t.Error(err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
}

// The programs are found beside an ordinary user's PATH.
func TestTool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := tool("no-such-program"); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "e2fsprogs") {
		t.Error(err)
	}
	defer func(old []string) { sbin = old }(sbin)
	sbin = []string{filepath.Join(dir, "sbin")}
	must(t, os.Mkdir(sbin[0], 0o700))
	p := filepath.Join(sbin[0], "mke2fs")
	must(t, os.WriteFile(p, nil, 0o600))
	if _, err := tool("mke2fs"); err == nil {
		t.Error("a file that cannot be run was taken")
	}
	must(t, os.Chmod(p, 0o755))
	if got, err := tool("mke2fs"); err != nil || got != p {
		t.Errorf("%s, %v", got, err)
	}
}
