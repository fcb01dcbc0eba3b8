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

// TestPacked: what was packed together comes out as it was, each program by itself, and a damaged one does not.
func TestPacked(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe") // of this architecture; as the other one's, every word is a pattern or none
	must(t, err)
	self = self[:min(len(self), 4<<20)]
	var all, list []byte
	for _, arch := range []string{"amd64", "arm64"} {
		p := Packed{Arch: arch, Sum: sum(self), Size: int64(len(self)), Code: 4097, Len: int64(len(self)) - 5000}
		list = append(list, p.String()...)
		b := bytes.Clone(self)
		Calls(arch, b[p.Code:][:p.Len], true)
		if bytes.Equal(b, self) {
			t.Errorf("%s: no address was rewritten", arch)
		}
		all = append(all, b...)
	}
	z, err := zstd.NewWriter(nil)
	must(t, err)
	archive := z.EncodeAll(all, nil)
	for _, arch := range []string{"amd64", "arm64"} {
		p, ok := packedIn(archive, string(list), arch)
		if !ok || p.Size != int64(len(self)) || p.Name != name(sum(self)) {
			t.Fatalf("%s: %+v, %v", arch, p, ok)
		}
		if got, err := p.Read(); err != nil || !bytes.Equal(got, self) {
			t.Errorf("%s: %d bytes read of %d, %v", arch, len(got), len(self), err)
		}
	}
	if _, ok := packedIn(archive, string(list), "riscv64"); ok {
		t.Error("there is a program that was not packed")
	}
	wrong := bytes.Replace(list, []byte(sum(self)), []byte(sum(nil)), 1)
	if p, ok := packedIn(archive, string(wrong), "amd64"); ok {
		if _, err := p.Read(); err == nil {
			t.Error("one with another sum was read")
		}
	}
	if p, ok := packedIn(archive[:len(archive)/2], string(list), "arm64"); ok {
		if _, err := p.Read(); err == nil {
			t.Error("half an archive was read")
		}
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
