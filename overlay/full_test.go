package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// onSmall runs one test again in a user namespace in which it can mount small
// file systems. It returns whether this process is to go on with the test.
func onSmall(t *testing.T) bool {
	t.Helper()
	if os.Getenv("BERTH_TEST_SMALL") != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "BERTH_TEST_SMALL=1", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), "user namespaces are off") {
		t.Skip("user namespaces are off here")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small file system: %v\n%s", err, out)
	}
	return false
}

// full fills a file system but for what stands free: bytes, or files.
func fill(t *testing.T, dir string, inodes bool) {
	t.Helper()
	for n := 0; ; n++ {
		path := filepath.Join(dir, fmt.Sprintf("filler-%d", n))
		size := 0
		if !inodes {
			size = 4096
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if inodes || n == 0 {
				return
			}
			// The name was made, and had no room for its content.
			must(t, os.Remove(path))
			return
		}
	}
}

// The state directory is full, of bytes or of files, while overlays are made,
// copied, kept, restored and leased: that is said, nothing of theirs is lost or
// half written, and when there is room again all goes on.
func TestFull(t *testing.T) {
	if !onSmall(t) {
		return
	}
	for what, options := range map[string]string{"bytes": "size=1m,nr_inodes=0", "files": "size=64m,nr_inodes=200"} {
		for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
			t.Run(what+" "+driver, func(t *testing.T) {
				if driver == jobs.DriverExt3 {
					need(t, "mke2fs", "e2fsck", "resize2fs")
				}
				disk := t.TempDir()
				if err := unix.Mount("tmpfs", disk, "tmpfs", 0, options); err != nil {
					t.Skipf("user namespaces are off here: %v", err)
				}
				defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
				s := testSet{&Set{Dir: filepath.Join(disk, "overlays"), Templates: filepath.Join(disk, "ext3"), On: here}, nil}
				must(t, os.Mkdir(s.Dir, 0o700))
				i := s.create(t, "deps", driver)
				s.change(t, i, "old")
				_, err := s.Snapshot(t.Context(), "deps", "first", false)
				must(t, err)
				s.change(t, i, "new")
				img := Image{Path: sif(t, uuid.New(), "x")}
				fill(t, disk, what == "files")
				spec := named(driver)
				spec.Name = "other"
				for verb, do := range map[string]func() error{
					"create":   func() error { _, err := s.Create(t.Context(), spec, ""); return err },
					"snapshot": func() error { _, err := s.Snapshot(t.Context(), "deps", "second", false); return err },
					"restore":  func() error { return s.Restore(t.Context(), "deps", "first", false) },
					"fork":     func() error { _, err := s.Fork(t.Context(), "deps", "third"); return err },
					"a job": func() error {
						l, err := Persistent(t.Context(), here, filepath.Join(s.Dir, "fourth"), spec, img, me("aaaaaaaa"), never)
						if err == nil {
							err = l.Close()
						}
						return err
					},
					"keep": func() error {
						l := throwAway(t, s, t.TempDir(), driver)
						_, err := Keep(t.Context(), here, s.Dir, l, keptMark(driver), me("cccccccc"))
						return err
					},
					"mark": func() error { m := *i.Mark; m.Image = strings.Repeat("x", 8192); return writeMark(i.Dir, &m) },
				} {
					err := do()
					if err == nil || !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "No space left on device") && !strings.Contains(err.Error(), "no space left on device") {
						t.Errorf("%s: %v", verb, err)
					}
				}
				// As it was, and what was half made is gone or known as that.
				now, err := s.Get("deps")
				must(t, err)
				if got := s.content(t, now); got != "new" || len(now.Snapshots) != 1 || now.Mark.Image != i.Mark.Image || now.Holder != nil && !store.HasExit(now.Holder.Dir) && now.Holder.Verb == "" {
					t.Errorf("%q, %+v", got, now)
				}
				fillers, err := filepath.Glob(filepath.Join(disk, "filler-*"))
				must(t, err)
				for _, f := range fillers {
					must(t, os.Remove(f))
				}
				_, err = s.Collect(t.Context(), false)
				must(t, err)
				list, err := s.List()
				must(t, err)
				for _, o := range list {
					if o.Name != "deps" || o.Err != nil {
						t.Errorf("left %+v", o)
					}
				}
				if kept, err := s.ListKept(); err != nil || len(kept) != 0 {
					t.Errorf("kept %+v, %v", kept, err)
				}
				must(t, s.Restore(t.Context(), "deps", "first", false))
				if got := s.content(t, now); got != "old" {
					t.Errorf("restored %q", got)
				}
				if repaired, err := s.Check(t.Context(), "deps", false); err != nil || len(repaired) != 0 {
					t.Errorf("%q, %v", repaired, err)
				}
				must(t, s.Remove(t.Context(), "deps", false))
			})
		}
	}
}
