//go:build linux

package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// tmpfs is a file system of its own, with few bytes or inodes.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestFull: a cache without bytes or inodes left keeps nothing half made, and
// says so; with room the same works.
func TestFull(t *testing.T) {
	for name, options := range map[string]string{"bytes": "size=40k", "inodes": "size=4m,nr_inodes=5"} {
		t.Run(name, func(t *testing.T) {
			s, c := serve(t), cache(t)
			c.Resolve = s.resolver()
			s.push(t, "a:1")
			ref := "docker://" + s.host + "/a:1"
			c.Dir = tmpfs(t, options)
			if name == "bytes" {
				must(t, os.WriteFile(filepath.Join(c.Dir, "full"), make([]byte, 30<<10), 0o600))
			}
			_, err := c.Get(t.Context(), ref)
			if jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "no space left") || !strings.Contains(jobs.HintOf(err), "df -i") && !strings.Contains(jobs.HintOf(err), "df -h") {
				t.Errorf("code %d, %v, hint %q", jobs.CodeOf(err), err, jobs.HintOf(err))
			}
			if list, err := c.List(); len(list) > 0 || err != nil {
				t.Errorf("%v, %v", list, err)
			}
			left, _ := filepath.Glob(filepath.Join(c.Dir, prefixNew+"*"))
			sifs, _ := filepath.Glob(filepath.Join(c.Dir, dirContents, "*"))
			if len(left)+len(sifs) > 0 {
				t.Errorf("left: %v, %v", left, sifs)
			}
			must(t, unix.Mount("", c.Dir, "", unix.MS_REMOUNT, "size=8m,nr_inodes=100"))
			if img, err := c.Get(t.Context(), ref); err != nil || c.Verify(t.Context(), img) != nil {
				t.Errorf("with room: %v", err)
			}
		})
	}
}

// TestPlanted: links where berth's files stand are not followed, neither to read
// nor to write.
func TestPlanted(t *testing.T) {
	s, c := serve(t), cache(t)
	c.Resolve = s.resolver()
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	img, err := c.Get(t.Context(), ref)
	must(t, err)
	away := filepath.Join(t.TempDir(), "away")
	untouched := func(what string) {
		t.Helper()
		if b, err := os.ReadFile(away); err != nil || string(b) != "mine" {
			t.Fatalf("%s: what the link leads to was changed: %q, %v", what, b, err)
		}
	}
	link := func(path string) {
		t.Helper()
		must(t, os.WriteFile(away, []byte("mine"), 0o600))
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		must(t, os.Symlink(away, path))
	}
	record := filepath.Join(c.Dir, dirRefs, key(ref)+suffixJSON)
	// Even one that leads to a record which looks right.
	b, err := os.ReadFile(record)
	must(t, err)
	must(t, os.Remove(record))
	right := filepath.Join(t.TempDir(), "right")
	must(t, os.WriteFile(right, b, 0o600))
	must(t, os.Symlink(right, record))
	if _, err := c.Known(ref); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Errorf("a record was read through a link: %v", err)
	}
	link(record)
	if _, err := c.Get(t.Context(), ref); err != nil {
		t.Error(err)
	}
	untouched("refs/KEY.json")
	if fi, err := os.Lstat(record); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("the link still stands: %v", err)
	}
	link(img.Path)
	if _, err := c.Have(img.Sum); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("SUM.sif: %v", err)
	}
	if got, err := c.Get(t.Context(), ref); err != nil || c.Verify(t.Context(), got) != nil {
		t.Errorf("SUM.sif is not fetched again: %v", err)
	}
	untouched("sha256/SUM.sif")
	link(c.record(img.Sum))
	if _, err := c.Have(img.Sum); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Errorf("SUM.json: %v", err)
	}
	untouched("sha256/SUM.json")
	// Directories: the content of the links stays what it is.
	for _, name := range []string{dirPulls, dirRefs, dirContents} {
		other, elsewhere := cache(t), t.TempDir()
		other.Resolve = s.resolver()
		must(t, os.MkdirAll(other.Dir, 0o700))
		must(t, os.Symlink(elsewhere, filepath.Join(other.Dir, name)))
		_, err := other.Get(t.Context(), ref)
		if jobs.CodeOf(err) != jobs.CodeConfig && jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v was written, %v", name, entries, err)
		}
	}
}

// TestForeign: what the container program leaves is looked at before it gets a
// name.
func TestForeign(t *testing.T) {
	s, c := serve(t), cache(t)
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	script := filepath.Join(t.TempDir(), "apptainer")
	c.Program = func() (string, error) { return script, nil }
	for name, makes := range map[string]string{"nothing": ":", "empty": `: >"$2"`, "foreign": `echo no image >"$2"`, "truncated": `printf '%032d' 0 >"$2"; printf 'SIF_MAGIC\000xx' >>"$2"`, "directory": `mkdir "$2"`, "link": `ln -s /etc/passwd "$2"`} {
		must(t, os.WriteFile(script, []byte("#!/bin/sh\n"+makes+"\n"), 0o700))
		if _, err := c.Get(t.Context(), ref); err == nil || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(c.Dir, dirContents, "*")); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// TestProcesses: eight processes ask for one image; one fetches it. No file is
// locked: only links and renames decide, which hold where locks lie.
func TestProcesses(t *testing.T) {
	s, c := serve(t), cache(t)
	digest := s.push(t, "a:1")
	exe, err := os.Executable()
	must(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), exe, c.Dir, "docker://"+s.host+"/a@"+digest)
			cmd.Env = append(os.Environ(), "IMAGES_TEST=get")
			if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "<nil>") {
				t.Errorf("%s", out)
			}
		})
	}
	wg.Wait()
	if n := s.blobs.Load(); n != layers {
		t.Errorf("%d layers were fetched, of %d", n, layers)
	}
}

// TestElsewhere: a puller on another machine whose beat is silent for long is
// replaced; before that it is waited for.
func TestElsewhere(t *testing.T) {
	s, c := serve(t), cache(t)
	digest := s.push(t, "a:1")
	ref := "docker://" + s.host + "/a@" + digest
	dir := filepath.Join(c.Dir, dirPulls, key(byDigest+digest))
	theirs := filepath.Join(dir, "beat-x")
	must(t, os.MkdirAll(theirs, 0o700))
	_, err := lease.Acquire(dir, lease.Owner{Version: 1, Dir: theirs, Host: "elsewhere", BootID: "0", PID: 1, Time: time.Now()}, func(lease.Owner) bool { return true })
	must(t, err)
	beat := func(n int) { must(t, os.WriteFile(filepath.Join(theirs, "beat"), fmt.Append(nil, n), 0o600)) }
	beat(0)
	const silent = 2 * time.Second
	c.Patience = lease.Patience{Look: 20 * time.Millisecond, Silent: silent}
	said := ""
	c.Progress = func(line string) { said += line }
	got := make(chan error, 1)
	go func() { _, err := c.Get(t.Context(), ref); got <- err }()
	// It lives for three seconds. A machine that lets this test stand still makes a
	// silence of them, after which it is overridden with right: so the longest counts.
	var longest time.Duration
	last := time.Now()
	for i := 0; i < 60 && len(got) == 0; i++ {
		time.Sleep(silent / 40)
		begun := time.Now()
		beat(i + 1)
		longest, last = max(longest, time.Since(last)), begun
	}
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(5 * time.Minute):
		t.Fatal("nobody takes over")
	}
	if longest = max(longest, time.Since(last)); longest < silent {
		t.Errorf("it was overridden after a silence of %v", longest)
	}
	if !strings.Contains(said, "on elsewhere makes") {
		t.Errorf("said: %s", said)
	}
}
