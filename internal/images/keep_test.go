package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

func TestRemove(t *testing.T) {
	s, c := serve(t), cache(t)
	c.Resolve = s.resolver()
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	img, err := c.Get(t.Context(), ref)
	must(t, err)
	// What has come over ssh has no record.
	other := filepath.Join(c.Dir, dirContents, sum0+suffixSIF)
	must(t, os.WriteFile(other, sif([]byte("x")), 0o600))
	alien, err := c.Have(sum0)
	must(t, err)
	if err := c.Remove(alien); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	must(t, c.Remove(img))
	if list, err := c.List(); len(list) != 1 || list[0].Sum != sum0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.Known(ref); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
	// Damaged ones are found, so that they can be removed.
	img, err = c.Get(t.Context(), ref)
	must(t, err)
	if len(c.Broken()) != 0 {
		t.Error("nothing is broken")
	}
	must(t, os.Truncate(img.Path, 10))
	if b := c.Broken(); len(b) != 1 || b[0].Sum != img.Sum || c.Remove(b[0]) != nil {
		t.Errorf("%v", b)
	}
}

const sum0 = "0000000000000000000000000000000000000000000000000000000000000000"

func TestSweep(t *testing.T) {
	c := newCache(filepath.Join(t.TempDir(), "images"))
	old := time.Now().Add(-25 * time.Hour)
	aa, bb := strings.Repeat("aa", 16), strings.Repeat("bb", 16)
	// The last ones are someone's own, in a directory that a profile names.
	for _, name := range []string{".new-" + aa + "-1", ".new-" + bb + "-1", "pulls/" + aa, "pulls/" + bb, "sha256/keep", "unpacked/.new-x", ".new-book", "pulls/2024", "refs/.new-heads"} {
		must(t, os.MkdirAll(filepath.Join(c.Dir, name), 0o700))
	}
	for _, name := range []string{".new-" + aa + "-1", "pulls/" + aa, "sha256/keep", ".new-book", "pulls/2024", "refs/.new-heads"} {
		must(t, os.Chtimes(filepath.Join(c.Dir, name), old, old))
	}
	for _, dry := range []bool{true, false} {
		if got := c.Sweep(dry); len(got) != 2 {
			t.Errorf("dry %v: %v", dry, got)
		}
	}
	for name, want := range map[string]bool{".new-" + aa + "-1": false, ".new-" + bb + "-1": true, "pulls/" + aa: false, "pulls/" + bb: true, "sha256/keep": true, ".new-book": true, "pulls/2024": true, "refs/.new-heads": true} {
		if _, err := os.Stat(filepath.Join(c.Dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node reads an image once, and again when anything about the file changes.
func TestCheck(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "x.sif")
	must(t, os.WriteFile(path, sif([]byte("one")), 0o600))
	sum, err := Sum(t.Context(), path)
	must(t, err)
	for range 2 {
		must(t, Check(t.Context(), home, path, sum))
	}
	fi, err := os.Stat(path)
	must(t, err)
	must(t, os.WriteFile(path, sif([]byte("two")), 0o600))
	must(t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	if err := Check(t.Context(), home, path, sum); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "../../etc/passwd"} {
		if err := Check(t.Context(), home, path, bad); jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := Check(t.Context(), home, filepath.Join(home, "none"), sum); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestPin(t *testing.T) {
	dir := t.TempDir()
	if Pinned(dir) != "" {
		t.Error("nothing is pinned")
	}
	must(t, Pin(dir, Image{Sum: sum0, Path: "/x"}))
	if Pinned(dir) != sum0 {
		t.Error(Pinned(dir))
	}
	must(t, os.WriteFile(filepath.Join(dir, filePin), []byte(`{"sum":"../x"}`), 0o600))
	if Pinned(dir) != "" {
		t.Error("a path")
	}
}

func TestRecall(t *testing.T) {
	c := newCache(filepath.Join(t.TempDir(), "images"))
	if got := c.Recall("sha256:"+sum0, "linux/amd64"); got != "" {
		t.Error(got)
	}
	c.Remember("sha256:"+sum0, "linux/amd64", "sha256:1")
	if got := c.Recall("sha256:"+sum0, "linux/amd64"); got != "sha256:1" || c.Recall("sha256:"+sum0, "linux/arm64") != "" {
		t.Error(got)
	}
	if list, err := c.List(); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// TestSweepFormer: what versions before have kept goes when nothing needs it, and
// nothing else does.
func TestSweepFormer(t *testing.T) {
	c := cache(t)
	old := time.Now().Add(-40 * 24 * time.Hour)
	make := func(path string, image string) string {
		path = filepath.Join(c.Dir, path)
		if image == "" {
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, []byte("x"), 0o600))
		} else {
			must(t, os.MkdirAll(filepath.Join(path, "root", "etc"), 0o700))
			must(t, os.Chmod(filepath.Join(path, "root"), 0o500))
			must(t, os.WriteFile(filepath.Join(path, "complete.json"), []byte(`{"version":1,"image":"`+image+`"}`), 0o600))
		}
		must(t, os.Chtimes(path, old, old))
		return path
	}
	key := strings.Repeat("0a", 16)
	gone := []string{make(key+".sif", ""), make("unpacked/sif-1-"+key, "/gone/x.sif")}
	needed := []string{make("1"+key[1:]+".sif", ""), make("unpacked/sif-2-"+key, "/needed/x.sif"), make("mine.sif", ""), make("unpacked/other", "relative"), make("staged/x", "/gone/x.sif")}
	must(t, os.WriteFile(filepath.Join(c.Dir, "2"+key[1:]+".sif"), []byte("x"), 0o600)) // of today
	away := filepath.Join(t.TempDir(), "away")
	must(t, os.MkdirAll(away, 0o700))
	must(t, os.WriteFile(filepath.Join(away, "complete.json"), []byte(`{"version":1,"image":"/gone/x.sif"}`), 0o600))
	must(t, os.Symlink(away, filepath.Join(c.Dir, "unpacked", "link")))
	used := func(p string) bool { return p == "/needed/x.sif" || p == needed[0] }
	for _, dry := range []bool{true, false} {
		if got := SweepFormer(c.Dir, used, 30*24*time.Hour, dry); !slices.Equal(got, gone) {
			t.Errorf("dry %v: %v", dry, got)
		}
		for _, path := range gone {
			if _, err := os.Lstat(path); (err == nil) != dry {
				t.Errorf("dry %v: %s: %v", dry, path, err)
			}
		}
	}
	for _, path := range append(needed, away+"/complete.json", filepath.Join(c.Dir, "2"+key[1:]+".sif")) {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
