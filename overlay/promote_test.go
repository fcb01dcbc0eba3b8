package overlay

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"

	"github.com/google/uuid"
)

// stamp changes a layer, and stamped reads that: of an image it is the name of
// the volume (offset 0x78 of the superblock).
func stamp(t *testing.T, driver, layer, text string) {
	t.Helper()
	if driver != jobs.DriverExt3 {
		must(t, os.WriteFile(filepath.Join(layer, "upper", "stamp"), []byte(text), 0o600))
		return
	}
	f, err := os.OpenFile(layer, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(text), superblockAt+0x78)
	must(t, errors.Join(err, f.Close()))
}

func stamped(t *testing.T, driver, layer string) string {
	t.Helper()
	if driver != jobs.DriverExt3 {
		b, err := os.ReadFile(filepath.Join(layer, "upper", "stamp"))
		must(t, err)
		return string(b)
	}
	f, err := os.Open(layer)
	must(t, err)
	defer f.Close()
	var b [3]byte
	_, err = f.ReadAt(b[:], superblockAt+0x78)
	must(t, err)
	return string(b[:])
}

func yes() bool { return true }

// stampedOverlay makes one that says "old".
func stampedOverlay(t *testing.T, driver string) (dir, image string) {
	t.Helper()
	image = sif(t, uuid.New(), "x")
	dir = filepath.Join(t.TempDir(), "deps")
	l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("aaaaaaaa"), never)
	must(t, err)
	stamp(t, driver, l.Path, "old")
	must(t, l.Close())
	return dir, image
}

// reopened is what the next one finds: the stamp, and which names beside the
// ones of the lease.
func reopened(t *testing.T, dir, driver, image string) (text, rest string) {
	t.Helper()
	l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("cccccccc"), always)
	must(t, err)
	if len(l.Notes) > 0 {
		t.Errorf("notes %q", l.Notes)
	}
	text = stamped(t, driver, l.Path)
	must(t, l.Close())
	left := slices.DeleteFunc(strings.Fields(names(t, dir)), func(n string) bool { return strings.HasPrefix(n, "lease.") })
	return text, strings.Join(left, " ")
}

var drivers = []string{jobs.DriverFuse, jobs.DriverKernel, jobs.DriverExt3}

func TestSnapshotOfAttempt(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			need(t, "mke2fs", "e2fsck")
			rest := "layer mark.json"
			if driver == jobs.DriverExt3 {
				rest = "layer.ext3 mark.json"
			}
			dir, image := stampedOverlay(t, driver)
			for _, promote := range []bool{false, true} {
				l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("bbbbbbbb"), never)
				must(t, err)
				own := l.Path
				use, err := l.Snapshot(t.Context(), here, "", "attempt-1")
				must(t, err)
				if use.Way != jobs.WaySnapshot || use.Name != "deps" || use.Driver != driver || use.Why == "" || use.Promoted || !l.Snapshotted() || l.Path == own {
					t.Errorf("%+v, %s", use, l.Path)
				}
				stamp(t, driver, l.Path, "new")
				if got := stamped(t, driver, own); got != "old" {
					t.Errorf("the attempt has changed the overlay: %s", got)
				}
				if promote {
					must(t, l.Promote(t.Context(), yes))
				}
				must(t, l.Close())
				want := map[bool]string{false: "old", true: "new"}[promote]
				if got, left := reopened(t, dir, driver, image); got != want || left != rest {
					t.Errorf("promoted %v: %s, and there is %s", promote, got, left)
				}
			}
		})
	}
}

// TestNotPromoted: someone else has the overlay or the attempt, or the image
// was torn.
func TestNotPromoted(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	open := func(t *testing.T, driver string) (dir, image string, l *Layer) {
		dir, image = stampedOverlay(t, driver)
		l, err := Persistent(t.Context(), here, dir, named(driver), Image{Path: image}, me("bbbbbbbb"), never)
		must(t, err)
		_, err = l.Snapshot(t.Context(), here, jobs.SnapshotAlways, "attempt-1")
		must(t, err)
		stamp(t, driver, l.Path, "new")
		return dir, image, l
	}
	check := func(t *testing.T, dir, image, driver string, l *Layer, err error) {
		t.Helper()
		if jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "overlay deps") || jobs.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
		must(t, l.Close())
		if got, left := reopened(t, dir, driver, image); got != "old" || strings.Contains(left, prefixAttempt) {
			t.Errorf("%s, and there is %s", got, left)
		}
	}
	t.Run("claim", func(t *testing.T) {
		dir, image, l := open(t, jobs.DriverFuse)
		check(t, dir, image, jobs.DriverFuse, l, l.Promote(t.Context(), func() bool { return false }))
	})
	t.Run("lease", func(t *testing.T) {
		dir, image, l := open(t, jobs.DriverFuse)
		next, err := Persistent(t.Context(), here, dir, named(jobs.DriverFuse), Image{Path: image}, me("dddddddd"), always)
		must(t, err)
		err = l.Promote(t.Context(), yes)
		must(t, next.Close())
		check(t, dir, image, jobs.DriverFuse, l, err)
	})
	t.Run("lost while it is synced", func(t *testing.T) {
		dir, image, l := open(t, jobs.DriverFuse)
		asked := 0
		check(t, dir, image, jobs.DriverFuse, l, l.Promote(t.Context(), func() bool { asked++; return asked == 1 }))
	})
	t.Run("torn", func(t *testing.T) {
		dir, image, l := open(t, jobs.DriverExt3)
		f, err := os.OpenFile(l.Path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{0, 0}, superblockAt+offsetState)
		must(t, errors.Join(err, f.Close()))
		err = l.Promote(t.Context(), yes)
		if err == nil || !strings.Contains(err.Error(), "unmounted") {
			t.Error(err)
		}
		check(t, dir, image, jobs.DriverExt3, l, err)
	})
	t.Run("gone", func(t *testing.T) {
		dir, image, l := open(t, jobs.DriverFuse)
		must(t, os.RemoveAll(l.Path))
		check(t, dir, image, jobs.DriverFuse, l, l.Promote(t.Context(), yes))
	})
}

func TestWorthCopy(t *testing.T) {
	dir, image := stampedOverlay(t, jobs.DriverFuse)
	l, err := Persistent(t.Context(), here, dir, named(jobs.DriverFuse), Image{Path: image}, me("bbbbbbbb"), never)
	must(t, err)
	defer func() { must(t, l.Close()) }()
	shares := sharesBlocks(dir)
	for _, c := range []struct {
		want string
		yes  bool
		why  string
	}{
		{jobs.SnapshotNever, false, "as asked for"},
		{jobs.SnapshotAlways, true, "as asked for"},
		{jobs.SnapshotAuto, true, ""},
		{"", true, ""},
	} {
		if yes, why, err := l.worthCopy(t.Context(), c.want); err != nil || yes != c.yes || c.why != "" && why != c.why || why == "" {
			t.Errorf("%s: %v %q %v", c.want, yes, why, err)
		}
	}
	big := filepath.Join(l.Path, "upper", "big")
	f, err := os.Create(big)
	must(t, err)
	must(t, f.Truncate(int64(4*smallLayer))) // holes take nothing
	if yes, why, err := l.worthCopy(t.Context(), ""); err != nil || !yes {
		t.Errorf("%v %q %v", yes, why, err)
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(smallLayer)); err != nil {
		t.Skipf("space cannot be taken here: %v", err)
	}
	must(t, f.Close())
	yes, why, err := l.worthCopy(t.Context(), "")
	if err != nil || yes != shares || !shares && !strings.Contains(why, "2GiB") {
		t.Errorf("%v %q %v", yes, why, err)
	}
	use, err := l.Snapshot(t.Context(), here, jobs.SnapshotNever, "attempt-1")
	if err != nil || use.Way != jobs.WayInPlace || l.Snapshotted() {
		t.Errorf("%+v, %v", use, err)
	}
	must(t, os.Remove(big))
}

// TestCopyFails: that is no reason to fail, unless the copy was asked for.
func TestCopyFails(t *testing.T) {
	dir, image := stampedOverlay(t, jobs.DriverFuse)
	for _, want := range []string{jobs.SnapshotAuto, jobs.SnapshotAlways} {
		l, err := Persistent(t.Context(), here, dir, named(jobs.DriverFuse), Image{Path: image}, me("bbbbbbbb"), never)
		must(t, err)
		use, err := l.Snapshot(t.Context(), failing{errors.New("no more processes")}, want, "attempt-1")
		if (err == nil) != (want == jobs.SnapshotAuto) || err != nil && (jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) == "") {
			t.Error(err)
		}
		if use.Way != jobs.WayInPlace || l.Snapshotted() || err == nil && !strings.Contains(use.Why, "could not be copied") {
			t.Errorf("%+v", use)
		}
		must(t, l.Close())
		if _, left := reopened(t, dir, jobs.DriverFuse, image); left != "layer mark.json" {
			t.Errorf("there is %s", left)
		}
	}
}

// TestKilledAttempt kills an attempt before each step of its snapshot and of its
// promotion, and after a swap that was killed in the middle.
func TestKilledAttempt(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	const order = "snapshot: begin, snapshot: copy, snapshot: name, snapshot: place, snapshot: done, promote: sync, promote: swap, swap: aside, promote: swapped, promote: done, remove: renamed"
	for _, how := range []string{jobs.DriverFuse, jobs.DriverKernel + " twice", jobs.DriverExt3} {
		driver, twice, _ := strings.Cut(how, " ")
		for _, step := range strings.Split(order, ", ") {
			if step == "swap: aside" && twice == "" {
				continue
			}
			t.Run(how+"/"+step, func(t *testing.T) {
				t.Parallel()
				dir, image := stampedOverlay(t, driver)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestAttemptToBeKilled$")
				cmd.Env = append(os.Environ(), "TEST_KILL="+step, "TEST_DIR="+dir, "TEST_IMAGE="+image, "TEST_DRIVER="+driver, "TEST_TWICE="+twice, "TMPDIR="+t.TempDir())
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
					t.Fatalf("%v: %s", err, out)
				}
				want := "old"
				if slices.Contains([]string{"swap: aside", "promote: swapped", "promote: done", "remove: renamed"}, step) {
					want = "new"
				}
				rest := "layer mark.json"
				if driver == jobs.DriverExt3 {
					rest = "layer.ext3 mark.json"
				}
				if got, left := reopened(t, dir, driver, image); got != want || left != rest {
					t.Errorf("%s, want %s; there is %s", got, want, left)
				}
			})
		}
	}
}

// TestAttemptToBeKilled is the other process of TestKilledAttempt.
func TestAttemptToBeKilled(t *testing.T) {
	at := os.Getenv("TEST_KILL")
	if at == "" {
		t.Skip("TestKilledAttempt starts it")
	}
	testStep = func(step string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	driver := os.Getenv("TEST_DRIVER")
	testNoExchange = os.Getenv("TEST_TWICE") != ""
	l, err := Persistent(t.Context(), here, os.Getenv("TEST_DIR"), named(driver), Image{Path: os.Getenv("TEST_IMAGE")}, me("bbbbbbbb"), never)
	must(t, err)
	_, err = l.Snapshot(t.Context(), here, jobs.SnapshotAlways, "attempt-1")
	must(t, err)
	stamp(t, driver, l.Path, "new")
	must(t, l.Promote(t.Context(), yes))
	must(t, l.Close())
}

// TestForeignCopies: only what is provably a copy of berth's is removed.
func TestForeignCopies(t *testing.T) {
	dir, image := stampedOverlay(t, jobs.DriverFuse)
	keep := filepath.Join(t.TempDir(), "keep")
	must(t, os.Mkdir(keep, 0o700))
	must(t, os.WriteFile(filepath.Join(keep, fileAttempt), []byte(`{"attempt":"link"}`), 0o600))
	must(t, os.Symlink(keep, filepath.Join(dir, prefixAttempt+"link")))
	must(t, os.MkdirAll(filepath.Join(dir, prefixAttempt+"mine", "files"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, prefixAttempt+"other", "files"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, prefixAttempt+"other", fileAttempt), []byte(`{"attempt":"else"}`), 0o600))
	if _, left := reopened(t, dir, jobs.DriverFuse, image); left != ".attempt-link .attempt-mine .attempt-other layer mark.json" {
		t.Errorf("there is %s", left)
	}
	if _, err := os.Stat(filepath.Join(keep, fileAttempt)); err != nil {
		t.Error(err)
	}
	if err := onlyOurs(dir); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("rm would remove it: %v", err)
	}
}

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	file := filepath.Join(dir, "a", "file")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	must(t, os.Link(file, filepath.Join(dir, "again")))
	must(t, os.Symlink("/usr", filepath.Join(dir, "a", "b", "link")))
	hole, err := os.Create(filepath.Join(dir, "hole"))
	must(t, err)
	must(t, errors.Join(hole.Truncate(1<<30), hole.Close()))
	got, err := Measure(t.Context(), dir, Space{})
	if err != nil || got.Files != 5 || got.Bytes < jobs.MiB || got.Bytes > 2*jobs.MiB {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Measure(t.Context(), dir, Space{Files: 2}); err != nil || got.Files != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	deep := dir
	for range maxDepth + 50 {
		deep = filepath.Join(deep, "d")
	}
	must(t, os.MkdirAll(deep, 0o700))
	if got, err := Measure(t.Context(), dir, Space{}); err != nil || got.Files != 5+maxDepth+1 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Measure(t.Context(), filepath.Join(dir, "none"), Space{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, dir, Space{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHalfSwap: a promotion that fails between its two renames undoes the first
// one; and where it cannot, nothing of either layer is removed.
func TestHalfSwap(t *testing.T) {
	for name, mend := range map[string]bool{"undone": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			testNoExchange = true
			defer func() { testNoExchange, testStep = false, func(string) {} }()
			dir, image := stampedOverlay(t, jobs.DriverFuse)
			l, err := Persistent(t.Context(), here, dir, named(jobs.DriverFuse), Image{Path: image}, me("bbbbbbbb"), never)
			must(t, err)
			_, err = l.Snapshot(t.Context(), here, jobs.SnapshotAlways, "attempt-1")
			must(t, err)
			stamp(t, jobs.DriverFuse, l.Path, "new")
			copied, own := l.Path, filepath.Join(dir, dirLayer)
			testStep = func(step string) {
				if step != "swap: aside" {
					return
				}
				if mend { // there is nothing to put there
					must(t, os.Rename(copied, copied+".away"))
				} else {
					must(t, os.WriteFile(own, nil, 0o600))
				}
			}
			if err := l.Promote(t.Context(), yes); err == nil {
				t.Error("it was promoted")
			}
			err = l.Close()
			if mend {
				must(t, err)
				if got, left := reopened(t, dir, jobs.DriverFuse, image); got != "old" || left != "layer mark.json" {
					t.Errorf("%s, and there is %s", got, left)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "is kept") {
				t.Errorf("%v", err)
			}
			must(t, os.Remove(own))
			if got, left := reopened(t, dir, jobs.DriverFuse, image); got != "new" || left != "layer mark.json" {
				t.Errorf("%s, and there is %s", got, left)
			}
		})
	}
}
