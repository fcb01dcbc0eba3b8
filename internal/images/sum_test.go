package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// TestContent: a file is read once, as long as nothing touches it.
func TestContent(t *testing.T) {
	c := cache(t)
	was := young
	t.Cleanup(func() { young = was })
	young = time.Hour // however slowly the test runs
	file := filepath.Join(t.TempDir(), "x.sif")
	must(t, os.WriteFile(file, sif([]byte("one")), 0o600))
	first, err := c.Content(t.Context(), file)
	must(t, err)
	marks := func() []string {
		list, _ := filepath.Glob(filepath.Join(c.Dir, dirChecked, "*"))
		return list
	}
	if len(marks()) != 0 {
		t.Error("a file that has just changed is remembered")
	}
	// Written again at once, in the same second perhaps.
	must(t, os.WriteFile(file, sif([]byte("two")), 0o600))
	second, err := c.Content(t.Context(), file)
	must(t, err)
	if first == second {
		t.Error("the change was not seen")
	}
	young = was
	time.Sleep(young + 100*time.Millisecond) // no one can set the time of a change
	for range 2 {
		if got, err := c.Content(t.Context(), file); err != nil || got != second || len(marks()) != 1 {
			t.Errorf("%s, %v, %v", got, err, marks())
		}
	}
	// What is remembered is what counts, and is no link that leads away.
	must(t, os.WriteFile(marks()[0], []byte(first), 0o600))
	if got, err := c.Content(t.Context(), file); err != nil || got != first {
		t.Errorf("it was read again: %s, %v", got, err)
	}
	away := filepath.Join(t.TempDir(), "away")
	must(t, os.WriteFile(away, []byte("mine"), 0o600))
	mark := marks()[0]
	must(t, os.Remove(mark))
	must(t, os.Symlink(away, mark))
	if got, err := c.Content(t.Context(), file); err != nil || got != second {
		t.Errorf("%s, %v", got, err)
	}
	if b, err := os.ReadFile(away); err != nil || string(b) != "mine" {
		t.Errorf("a link was followed: %q, %v", b, err)
	}
	home := filepath.Dir(c.Dir)
	must(t, Check(t.Context(), home, file, second))
	must(t, os.WriteFile(file, sif([]byte("three")), 0o600))
	if err := Check(t.Context(), home, file, second); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "replaced") {
		t.Errorf("%v", err)
	}
	if err := Check(t.Context(), home, file, ""); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
}

func TestTagged(t *testing.T) {
	for word, want := range map[string]bool{"debian:12": true, "ghcr.io/org/tool:1.4": true, "localhost:5000/x:1": true, "x:latest": true, "debian@sha256:" + strings.Repeat("0", 64): true,
		"debian": false, "images/base.sif": false, "./x:1": false, "/x:1": false, "~/x:1": false, "x:1.sif": false, "a b:1": false, "docker://debian:12": false, "local:x": false, "": false, "x:": false, "C:\\x": false, "localhost:5000/x": false} {
		if got := IsTagged(word); got != want {
			t.Errorf("%q: %v", word, got)
		}
	}
}

func TestLibraryNames(t *testing.T) {
	hex := strings.Repeat("0f", 32)
	for ref, want := range map[string]Name{
		"library://tool":                  {Scheme: "library", Repo: "tool", Tag: "latest"},
		"library://org/col/tool:1":        {Scheme: "library", Repo: "org/col/tool", Tag: "1"},
		"library://h:1/org/col/tool:1":    {Scheme: "library", Host: "h:1", Repo: "org/col/tool", Tag: "1"},
		"library://o/c/t:sha256." + hex:   {Scheme: "library", Repo: "o/c/t", Digest: "sha256:" + hex},
		"library://Org/Col.x/T_y-z:3.0.1": {Scheme: "library", Repo: "Org/Col.x/T_y-z", Tag: "3.0.1"},
	} {
		if got, err := ParseName(ref); err != nil || got != want {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	for _, ref := range []string{"library://", "library:///x", "library://../x", "library://a/b/c/d/e", "library://x:", "library://x y", "library://x?y", "library://x\ny", "library://u@h/a/b/c", "library://-x"} {
		if _, err := Settle(ref); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%q: %v", ref, err)
		}
	}
	n, err := ParseName("library://h:1/o/c/t:1")
	if at := n.At("sha256:" + hex); err != nil || at != "library://h:1/o/c/t:sha256."+hex {
		t.Error(at, err)
	}
}

// What is remembered of a file is what was read from it: while it is read,
// someone may have its name lead to another one and back.
func TestContentThroughLink(t *testing.T) {
	c, dir := cache(t), t.TempDir()
	link := filepath.Join(dir, "x.sif")
	lead := func(to string) {
		must(t, os.Symlink(to, link+".new"))
		must(t, os.Rename(link+".new", link))
	}
	for _, name := range []string{"good", "evil"} {
		must(t, os.WriteFile(filepath.Join(dir, name), sif([]byte(name)), 0o600))
	}
	time.Sleep(young + 100*time.Millisecond)
	evil, err := Sum(t.Context(), filepath.Join(dir, "evil"))
	must(t, err)
	lead("evil")
	swapped := false
	_, err = content(t.Context(), c.Dir, link, func(int64, int64) {
		if !swapped { // the hash of evil is being made
			swapped = true
			lead("good")
		}
	})
	if jobs.CodeOf(err) != jobs.CodeAgain {
		t.Errorf("a change was not seen: %v", err)
	}
	if got, err := c.Content(t.Context(), link); err != nil || got == evil {
		t.Errorf("good has the hash of evil: %v", err)
	}
}

// A SIF that ends early is told before a job is made of it.
func TestCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sif")
	b := sif([]byte(strings.Repeat("x", 100)))
	for n, bad := range map[int]bool{len(b): false, len(b) - 1: true, 128: true, 127: false} {
		must(t, os.WriteFile(path, b[:n], 0o600))
		if err := CutOff(path); (err != nil) != bad || bad && (jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) != "copy or make it again") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
