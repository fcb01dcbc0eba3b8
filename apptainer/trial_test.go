package apptainer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/overlay"
)

// TestTinySquashfs: the image that is embedded is one, and is what MakeTiny
// makes.
func TestTinySquashfs(t *testing.T) {
	if len(tinySquashfs) > squashfsBlock || !strings.HasPrefix(string(tinySquashfs), "hsqs") {
		t.Fatalf("%d bytes that begin with %q", len(tinySquashfs), tinySquashfs[:4])
	}
	unsquashfs, err := exec.LookPath("unsquashfs")
	if err != nil {
		t.Skip("what is in it is not looked at: unsquashfs is not installed")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny")
	if err := os.WriteFile(file, tinySquashfs, 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	if out, err := exec.CommandContext(t.Context(), unsquashfs, "-no-progress", "-d", root, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := filepath.Join(dir, "want")
	if err := overlay.MakeTiny(want); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(want, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(want, p)
		fi, err := os.Lstat(filepath.Join(root, rel))
		if err != nil || fi.IsDir() != d.IsDir() {
			t.Errorf("%s: %v", rel, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
