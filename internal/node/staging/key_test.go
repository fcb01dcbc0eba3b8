//go:build linux

package staging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// TestKey: an image that carries the id of another one is not taken for
// it, and one that was replaced is staged again.
func TestKey(t *testing.T) {
	id := uuid.New()
	key := func(path string) string {
		t.Helper()
		k, err := Image{Path: path}.key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write := func(path, content string) string {
		t.Helper()
		if err := os.WriteFile(path, siftest.New(id, []byte(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		return key(path)
	}
	dir := t.TempDir()
	trusted, evil := filepath.Join(dir, "base.sif"), filepath.Join(dir, "evil.sif")
	was := write(trusted, "trusted")
	if !strings.HasPrefix(was, "sif-") || strings.ContainsAny(was, "/:,") {
		t.Errorf("%q", was)
	}
	if write(evil, "evil") == was {
		t.Error("an image with the id of another one is taken for it")
	}
	// Also with its time and size.
	fi, err := os.Stat(trusted)
	if err != nil {
		t.Fatal(err)
	}
	write(evil, "evil...")
	if err := os.Chtimes(evil, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
	if key(evil) == was {
		t.Error("an image with id, size and time of another one is taken for it")
	}
	link := filepath.Join(dir, "link.sif")
	if err := os.Symlink(trusted, link); err != nil {
		t.Fatal(err)
	}
	if key(trusted) != was || key(link) != was {
		t.Error("the same file has another key")
	}
	if err := os.Chtimes(trusted, time.Time{}, fi.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if key(trusted) == was {
		t.Error("a file that was changed has the same key")
	}
}
