package nodebin

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestFor(t *testing.T) {
	p, ok := For(runtime.GOOS, runtime.GOARCH)
	data, err := p.Read()
	if !ok || err != nil || len(data) == 0 || int64(len(data)) != p.Size || !bytes.HasPrefix([]byte(p.Name), []byte("berth-node-")) {
		t.Fatalf("%q: %d of %d bytes, %v, %v", p.Name, len(data), p.Size, ok, err)
	}
	for _, c := range [][2]string{{"plan9", runtime.GOARCH}, {runtime.GOOS, "pdp11"}, {"linux", "../x"}, {"", ""}} {
		if p, ok := For(c[0], c[1]); ok || p.Name != "" {
			t.Errorf("%v has a program", c)
		}
	}
}

func TestCompressed(t *testing.T) {
	data := bytes.Repeat([]byte("program\n"), 10_000)
	z, err := zstd.NewWriter(nil)
	must(t, err)
	compressed := z.EncodeAll(data, nil)
	p := compressedProgram(compressed, "0123456789abcdef")
	got, err := p.Read()
	if err != nil || !bytes.Equal(got, data) || p.Size != int64(len(data)) || p.Name != "berth-node-0123456789ab" {
		t.Errorf("%q: %d bytes read, %d said, %v", p.Name, len(got), p.Size, err)
	}
	compressed[len(compressed)/2] ^= 1
	if _, err := p.Read(); err == nil {
		t.Error("a damaged one was read")
	}
}

// TestFileNames: two programs have two names, also those that differ in a constant
// alone, and the same program has one wherever it stands.
func TestFileNames(t *testing.T) {
	dir := t.TempDir()
	build := func(name, text string, flags ...string) Program {
		t.Helper()
		source, out := filepath.Join(dir, name+".go"), filepath.Join(dir, name)
		must(t, os.WriteFile(source, []byte("package main\n\nfunc main() { println(\""+text+"\") }\n"), 0o600))
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", out}, flags...), source)...)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		p, err := file(out)
		must(t, err)
		return p
	}
	a, b := build("a", "one"), build("b", "two")
	if a.Name == b.Name {
		t.Errorf("both are %s", a.Name)
	}
	must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "moved")))
	if moved, err := file(filepath.Join(dir, "moved")); err != nil || moved.Name != a.Name || moved.Size != a.Size {
		t.Errorf("%+v, %v", moved, err)
	}
	// Without a build ID the name comes from the bytes.
	c, d := build("c", "one", "-ldflags=-buildid="), build("d", "two", "-ldflags=-buildid=")
	data, err := c.Read()
	if err != nil || c.Name != Of(data).Name || c.Name == d.Name {
		t.Errorf("%s and %s, %v", c.Name, d.Name, err)
	}
}
