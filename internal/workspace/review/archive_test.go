package review

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What was packed is unpacked, and nothing is replaced on the way.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.tar")
	from := filepath.Join(dir, "bundle")
	if err := os.WriteFile(from, bytes.Repeat([]byte("b"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []Packed{{Name: SentName, Data: []byte("{}")}, {Name: "result.bundle", Path: from}}
	sum, err := Pack(path, KindResult, time.Unix(1e9, 0), files)
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(path)
	if want := sha256.Sum256(whole); sum != hex.EncodeToString(want[:]) {
		t.Errorf("the sum is %s", sum)
	}
	if fi, _ := os.Stat(path); fi.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v", fi.Mode())
	}
	if _, err := Pack(path, KindResult, time.Now(), files); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file was replaced: %v", err)
	}
	into := t.TempDir()
	kind, got, err := Unpack(path, into)
	if err != nil || kind != KindResult || got != sum {
		t.Fatalf("%q %q %v", kind, got, err)
	}
	if b, _ := os.ReadFile(filepath.Join(into, "result.bundle")); len(b) != 100_000 {
		t.Errorf("%d bytes", len(b))
	}
	// What fails leaves no file.
	if _, err := Pack(filepath.Join(dir, "y.tar"), KindResult, time.Now(), []Packed{{Name: SentName, Path: filepath.Join(dir, "none")}}); err == nil {
		t.Error("a file that is not there was packed")
	}
	if _, err := os.Lstat(filepath.Join(dir, "y.tar")); err == nil {
		t.Error("half a file is left")
	}
}

// An archive of an attacker's is refused, and writes nothing outside of its directory.
func TestUnpackHostile(t *testing.T) {
	type file struct {
		h    tar.Header
		data string
	}
	sum := func(s string) string { b := sha256.Sum256([]byte(s)); return hex.EncodeToString(b[:]) }
	of := func(kind string, list ...archived) file {
		b, _ := json.Marshal(archive{Version: 1, Kind: kind, Files: list})
		return file{tar.Header{Name: manifestName}, string(b)}
	}
	good := archived{Name: SentName, Bytes: 2, SHA256: sum("{}")}
	sent := file{tar.Header{Name: SentName}, "{}"}
	for name, c := range map[string]struct {
		files []file
		want  string
	}{
		"no manifest":   {[]file{sent}, "does not begin with manifest.json"},
		"huge manifest": {[]file{{tar.Header{Name: manifestName}, strings.Repeat(" ", maxManifest+1)}}, "does not begin with"},
		"no JSON":       {[]file{{tar.Header{Name: manifestName}, "{"}}, "its manifest cannot be read"},
		"kind":          {[]file{of("other", good), sent}, `its kind is "other"`},
		"newer":         {[]file{{tar.Header{Name: manifestName}, `{"version": 3, "kind": "result"}`}}, "written by a newer berth"},
		"out of it":     {[]file{of(KindResult, archived{Name: "../evil", Bytes: 2, SHA256: sum("{}")}), {tar.Header{Name: "../evil"}, "{}"}}, `names "../evil"`},
		"another kind's": {[]file{of(KindVerdict, archived{Name: "result.bundle", Bytes: 2, SHA256: sum("{}")}), {tar.Header{Name: "result.bundle"}, "{}"}},
			`names "result.bundle"`},
		"another name":   {[]file{of(KindResult, archived{Name: "repo-../x.bundle", Bytes: 2, SHA256: sum("{}")})}, `names "repo-../x.bundle"`},
		"no name":        {[]file{of(KindResult, archived{Name: "repo-.bundle", Bytes: 2, SHA256: sum("{}")})}, `names "repo-.bundle"`},
		"a verdict's":    {[]file{of(KindVerdict, archived{Name: "repo-lib.bundle", Bytes: 2, SHA256: sum("{}")})}, `names "repo-lib.bundle"`},
		"twice":          {[]file{of(KindResult, good, good), sent, sent}, `names "review.json"`},
		"too large":      {[]file{of(KindResult, archived{Name: SentName, Bytes: 5 << 20})}, "with 5242880 bytes"},
		"negative":       {[]file{of(KindResult, archived{Name: SentName, Bytes: -1})}, "with -1 bytes"},
		"other name":     {[]file{of(KindResult, good), {tar.Header{Name: "../../x"}, "{}"}}, "has not the file review.json"},
		"link":           {[]file{of(KindResult, good), {tar.Header{Name: SentName, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""}}, "has not the file review.json"},
		"another size":   {[]file{of(KindResult, good), {tar.Header{Name: SentName}, "{} "}}, "has not the file review.json"},
		"changed":        {[]file{of(KindResult, good), {tar.Header{Name: SentName}, "[]"}}, "it was changed"},
		"not there":      {[]file{of(KindResult, good)}, "has not the file review.json"},
		"more":           {[]file{of(KindResult, good), sent, {tar.Header{Name: "x"}, "x"}}, "more than its manifest names"},
		"one name, more": {[]file{of(KindResult, good), sent, sent}, "more than its manifest names"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, f := range c.files {
				f.h.Mode = 0o4777
				if f.h.Typeflag == 0 {
					f.h.Typeflag, f.h.Size = tar.TypeReg, int64(len(f.data))
				}
				if err := w.WriteHeader(&f.h); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte(f.data)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			refusesArchive(t, b.Bytes(), c.want)
		})
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []file{of(KindResult, good), sent} {
		f.h.Size, f.h.Typeflag = int64(len(f.data)), tar.TypeReg
		_ = w.WriteHeader(&f.h)
		_, _ = w.Write([]byte(f.data))
	}
	_ = w.Close()
	refusesArchive(t, b.Bytes()[:1024+256], "has not the file")
	refusesArchive(t, append(b.Bytes(), make([]byte, maxTail+1)...), "more follows its last file")
	refusesArchive(t, []byte("no tar"), "does not begin with")
	if _, _, err := Unpack(filepath.Join(t.TempDir(), "none"), t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, _, err := Unpack(t.TempDir(), t.TempDir()); !errors.Is(err, ErrArchive) {
		t.Errorf("a directory: %v", err)
	}
}

func refusesArchive(t *testing.T, data []byte, want string) {
	t.Helper()
	top := t.TempDir()
	into := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(into, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Unpack(path, into); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it is %v and not %q", err, want)
	}
	entries, _ := os.ReadDir(top)
	if below, _ := os.ReadDir(filepath.Join(top, "a")); len(entries) != 1 || len(below) != 1 {
		t.Error("something was written outside of the directory")
	}
}
