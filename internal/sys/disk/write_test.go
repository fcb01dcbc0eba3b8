package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReplace: a file is written whole and with its mode, over another one too,
// and a failure leaves nothing beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two, which is longer", ""} {
		if err := Replace(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if err := Create(path, []byte("other"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("what exists was created: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o640 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if err := Create(filepath.Join(dir, "new"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	below := filepath.Join(dir, "d")
	if err := os.MkdirAll(filepath.Join(below, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(below, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Replace(filepath.Join(path, "x"), nil, 0o600); err == nil {
		t.Error("a file was written below a file")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
}
