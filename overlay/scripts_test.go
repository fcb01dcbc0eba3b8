package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
)

func TestScripts(t *testing.T) {
	img := filepath.Join(t.TempDir(), "image")
	env := filepath.Join(img, scriptsDir)
	if err := os.MkdirAll(env, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{secret: "secret", env + "/91-b.sh": "export B=2\n", env + "/10-a.sh": "#!/bin/sh\nexport A=1\n", env + "/90-none.sh": "#!/bin/sh\n# nothing\n\n", env + "/README": "export C=3"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, env+"/92-link.sh"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(env+"/93-fifo.sh", 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"#!/bin/sh\nexport A=1\n", "export B=2\n"}
	images := []string{img}
	if _, err := exec.LookPath("mksquashfs"); err == nil {
		packed := img + ".squashfs"
		if out, err := exec.Command("mksquashfs", img, packed, "-no-xattrs", "-quiet").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		images = append(images, packed)
	}
	for _, i := range images {
		if got, err := Scripts(t.Context(), run.Local{}, i, t.TempDir()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", i, got, err)
		}
	}
	if got, err := Scripts(t.Context(), run.Local{}, t.TempDir(), t.TempDir()); err != nil || got != nil {
		t.Errorf("without any: %q, %v", got, err)
	}
	// A directory of the host's in place of the image's own.
	out := t.TempDir()
	if err := os.WriteFile(out+"/1.sh", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	_ = os.Mkdir(other+"/.singularity.d", 0o700)
	if err := os.Symlink(out, filepath.Join(other, scriptsDir)); err != nil {
		t.Fatal(err)
	}
	if got, err := Scripts(t.Context(), run.Local{}, other, t.TempDir()); err == nil || got != nil {
		t.Errorf("a link out of it: %q, %v", got, err)
	}
	if err := os.WriteFile(env+"/94-long.sh", []byte(strings.Repeat("x", maxScripts)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Scripts(t.Context(), run.Local{}, img, t.TempDir()); err == nil {
		t.Error("too much was taken")
	}
}
