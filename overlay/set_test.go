package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/lease"
	"berth/jobs"

	"github.com/google/uuid"
)

type testSet struct {
	*Set
	said *[]string
}

func newSet(t *testing.T) testSet {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "overlays")
	must(t, os.Mkdir(dir, 0o700))
	said := &[]string{}
	return testSet{&Set{Dir: dir, Templates: filepath.Join(filepath.Dir(dir), "ext3"), On: here, Say: func(format string, _ ...any) { *said = append(*said, format) }}, said}
}

func (s testSet) create(t *testing.T, name, driver string) *Info {
	t.Helper()
	if driver == jobs.DriverExt3 {
		need(t, "mke2fs", "e2fsck", "resize2fs")
	}
	i, err := s.Create(t.Context(), jobs.OverlaySpec{Name: name, Driver: driver, Size: named(driver).Size}, "")
	must(t, err)
	return i
}

// put writes a file into the layer: of an image a byte that nothing else uses.
func (s testSet) change(t *testing.T, i *Info, content string) {
	t.Helper()
	if i.Mark.Driver == jobs.DriverExt3 {
		poke(t, i.Layer(), 8, []byte(content)...) // the boot block
		return
	}
	must(t, os.WriteFile(filepath.Join(i.Layer(), "upper", "f"), []byte(content), 0o600))
}

func (s testSet) content(t *testing.T, i *Info) string {
	t.Helper()
	if i.Mark.Driver == jobs.DriverExt3 {
		b, err := os.ReadFile(i.Layer())
		must(t, err)
		return strings.TrimRight(string(b[8:20]), "\x00")
	}
	b, err := os.ReadFile(filepath.Join(i.Layer(), "upper", "f"))
	if !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	return string(b)
}

func TestSetLife(t *testing.T) {
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(driver, func(t *testing.T) {
			s := newSet(t)
			i := s.create(t, "deps", driver)
			if i.Mark.Driver != driver || i.Mark.ImageID != "" || i.Holder != nil {
				t.Errorf("%+v", i)
			}
			s.change(t, i, "one")
			snap, err := s.Snapshot(t.Context(), "deps", "first", false)
			must(t, err)
			if snap.Label != "first" {
				t.Errorf("%+v", snap)
			}
			if _, err := s.Snapshot(t.Context(), "deps", "first", false); jobs.CodeOf(err) != jobs.CodeUsage {
				t.Error(err)
			}
			s.change(t, i, "two")
			_, err = s.Fork(t.Context(), "deps", "other")
			must(t, err)
			must(t, s.Restore(t.Context(), "deps", "first", false))
			if got := s.content(t, i); got != "one" {
				t.Errorf("restored %q", got)
			}
			other, err := s.Get("other")
			must(t, err)
			if got := s.content(t, other); got != "two" || len(other.Snapshots) != 0 || other.Mark.Name != "other" {
				t.Errorf("forked %q, %+v", got, other)
			}
			if err := s.Restore(t.Context(), "deps", "none", false); jobs.CodeOf(err) != jobs.CodeNotFound {
				t.Error(err)
			}
			if repaired, err := s.Check(t.Context(), "deps", false); err != nil || len(repaired) != 0 {
				t.Errorf("%q, %v", repaired, err)
			}
			if got := names(t, i.Dir); !strings.Contains(got, "snapshots") || strings.Contains(got, ".making") || strings.Contains(got, dirRestored) {
				t.Errorf("left %s", got)
			}
			list, err := s.List()
			must(t, err)
			if len(list) != 2 || list[0].Name != "deps" || len(list[0].Snapshots) != 1 || list[0].Holder != nil || list[1].Name != "other" {
				t.Errorf("%+v", list)
			}
			must(t, s.Remove(t.Context(), "deps", false))
			must(t, s.Remove(t.Context(), "other", false))
			if got := names(t, s.Dir); got != "" {
				t.Errorf("left %s", got)
			}
			// The first image that it is used with is its own from then on.
			bound := s.create(t, "bound", driver)
			spec := named(driver)
			spec.Name = "bound"
			l, err := Persistent(t.Context(), here, bound.Dir, spec, Image{Path: sif(t, uuid.New(), "x")}, me("aaaaaaaa"), never)
			must(t, err)
			must(t, l.Close())
			if _, err := Persistent(t.Context(), here, bound.Dir, spec, Image{Path: sif(t, uuid.New(), "y")}, me("bbbbbbbb"), never); jobs.CodeOf(err) != jobs.CodeConfig {
				t.Errorf("over another image: %v", err)
			}
		})
	}
}

// While someone has it: no verb that writes, and readers get the last snapshot.
func TestSetInUse(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	if _, err := s.Get("deps"); err != nil {
		t.Fatal(err)
	}
	hold := func() *Lease {
		o := me("aaaaaaaa")
		o.Dir = t.TempDir()
		l, err := Acquire(i.Dir, o, never)
		must(t, err)
		return l
	}
	l := hold()
	for verb, do := range map[string]func() error{
		"snapshot": func() error { _, err := s.Snapshot(t.Context(), "deps", "", false); return err },
		"restore":  func() error { return s.Restore(t.Context(), "deps", "x", false) },
		"rm":       func() error { return s.Remove(t.Context(), "deps", false) },
		"check":    func() error { _, err := s.Check(t.Context(), "deps", false); return err },
		"grow":     func() error { return s.Grow(t.Context(), "deps", jobs.GiB, false) },
		"fork":     func() error { _, err := s.Fork(t.Context(), "deps", "new"); return err },
	} {
		if err := do(); jobs.CodeOf(err) != jobs.CodeAgain || !strings.Contains(err.Error(), "host-aaaaaaaa") || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", verb, err)
		}
	}
	must(t, l.Release())
	s.change(t, i, "old")
	_, err := s.Snapshot(t.Context(), "deps", "", false)
	must(t, err)
	s.change(t, i, "new")
	l = hold()
	f, err := s.Fork(t.Context(), "deps", "new")
	must(t, err)
	if got := s.content(t, f); got != "old" {
		t.Errorf("forked %q", got)
	}
	// By force it is taken, and that is said.
	*s.said = nil
	_, err = s.Snapshot(t.Context(), "deps", "forced", true)
	must(t, err)
	if len(*s.said) != 1 || !strings.Contains((*s.said)[0], "lose files") {
		t.Errorf("said %q", *s.said)
	}
	if l.Stands() {
		t.Error("the holder still has it")
	}
	// One that has recorded its end is no hindrance.
	o := me("bbbbbbbb")
	o.Dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(o.Dir, "exit.json"), []byte("{}"), 0o600))
	_, err = Acquire(i.Dir, o, never)
	must(t, err)
	_, err = s.Snapshot(t.Context(), "deps", "after", false)
	must(t, err)
	// Nor is a process of this machine that is gone, when its container must be, too.
	p := lease.Self()
	o = Owner{Version: 1, Attempt: o.Attempt, Dir: t.TempDir(), Host: p.Host, BootID: "before/1", PID: 7}
	_, err = Acquire(i.Dir, o, never)
	must(t, err)
	must(t, s.Remove(t.Context(), "deps", false))
}

func TestSetNames(t *testing.T) {
	s := newSet(t)
	for _, name := range []string{"", ".", "..", "../../x", "a/b", "a b", "a:b", "a,b", "-x", ".x", "A", "a\nb", "a\x1b[2J", strings.Repeat("n", 300)} {
		for verb, do := range map[string]func() error{
			"create":   func() error { _, err := s.Create(t.Context(), jobs.OverlaySpec{Name: name}, ""); return err },
			"rm":       func() error { return s.Remove(t.Context(), name, true) },
			"snapshot": func() error { _, err := s.Snapshot(t.Context(), name, "", true); return err },
			"fork":     func() error { _, err := s.Fork(t.Context(), "deps", name); return err },
		} {
			if err := do(); jobs.CodeOf(err) != jobs.CodeUsage {
				t.Errorf("%s %q: %v", verb, name, err)
			}
		}
	}
	if got := names(t, s.Dir); got != "" {
		t.Errorf("made %s", got)
	}
	s.create(t, "deps", jobs.DriverFuse)
	for _, label := range []string{"..", "a/b", "a b", strings.Repeat("n", 300)} {
		if _, err := s.Snapshot(t.Context(), "deps", label, false); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%q: %v", label, err)
		}
		if err := s.Restore(t.Context(), "deps", label, false); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%q: %v", label, err)
		}
	}
	for what, spec := range map[string]jobs.OverlaySpec{
		"again": {Name: "deps"}, "driver": {Name: "x", Driver: "zfs"},
	} {
		if _, err := s.Create(t.Context(), spec, ""); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Links where berth has put files and directories lead nowhere.
func TestSetPlanted(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o600))
	for name, plant := range map[string]func(i *Info) error{
		"the overlay": func(i *Info) error { return errors.Join(os.RemoveAll(i.Dir), os.Symlink(outside, i.Dir)) },
		"its mark": func(i *Info) error {
			m := filepath.Join(i.Dir, fileMark)
			return errors.Join(os.Rename(m, filepath.Join(outside, fileMark)), os.Symlink(filepath.Join(outside, fileMark), m))
		},
		"its layer": func(i *Info) error { return errors.Join(os.RemoveAll(i.Layer()), os.Symlink(outside, i.Layer())) },
		"its upper directory": func(i *Info) error {
			u := filepath.Join(i.Layer(), "upper")
			return errors.Join(os.RemoveAll(u), os.Symlink(outside, u))
		},
	} {
		s := newSet(t)
		i := s.create(t, "deps", jobs.DriverFuse)
		must(t, plant(i))
		if _, err := s.Snapshot(t.Context(), "deps", "x", false); jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
		_ = s.Remove(t.Context(), "deps", true)
		if _, err := os.Lstat(filepath.Join(outside, "keep")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	// What berth has not made is not removed.
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	must(t, os.WriteFile(filepath.Join(i.Dir, "thesis.tex"), nil, 0o600))
	if err := s.Remove(t.Context(), "deps", false); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "thesis.tex") {
		t.Error(err)
	}
}

func TestSetHardToRemove(t *testing.T) {
	if !asNobody(t) {
		return
	}
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	for _, d := range []string{"upper/a", "work/work"} {
		must(t, os.MkdirAll(filepath.Join(i.Layer(), d), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(i.Layer(), "upper/a/f"), nil, 0o400))
	must(t, os.Chmod(filepath.Join(i.Layer(), "upper/a"), 0o500))
	must(t, os.Chmod(filepath.Join(i.Layer(), "work/work"), 0))
	_, err := s.Snapshot(t.Context(), "deps", "x", false)
	must(t, err)
	if fi, err := os.Stat(filepath.Join(i.Dir, "snapshots/x/layer/upper/a")); err != nil || fi.Mode().Perm() != 0o500 {
		t.Errorf("%v, %v", fi, err)
	}
	must(t, s.Restore(t.Context(), "deps", "x", false))
	must(t, s.Remove(t.Context(), "deps", false))
	if got := names(t, s.Dir); got != "" {
		t.Errorf("left %s", got)
	}
}

func TestGrow(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverExt3)
	before, err := i.Usage()
	must(t, err)
	if err := s.Grow(t.Context(), "deps", 8*jobs.MiB, false); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
	must(t, s.Grow(t.Context(), "deps", 64*jobs.MiB, false))
	if i, err = s.Get("deps"); err != nil || i.Mark.Size != 64*jobs.MiB {
		t.Errorf("%+v, %v", i, err)
	}
	after, err := i.Usage()
	if err != nil || after.Size != 64*jobs.MiB || after.Free < before.Free+40*jobs.MiB || after.FreeInodes <= before.FreeInodes {
		t.Errorf("%+v, before %+v, %v", after, before, err)
	}
	if out, err := e2fsck(t, i.Layer()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if got := names(t, i.Dir); strings.Contains(got, ".new") {
		t.Errorf("left %s", got)
	}
	s.create(t, "dir", jobs.DriverFuse)
	if err := s.Grow(t.Context(), "dir", jobs.GiB, false); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
	// A directory that was made with a size keeps it in its mark.
	_, err = s.Create(t.Context(), jobs.OverlaySpec{Name: "sized", Driver: jobs.DriverKernel, Size: 2 * jobs.MiB, Inodes: 7}, "")
	must(t, err)
	limit := func() Space {
		l, err := Persistent(t.Context(), here, filepath.Join(s.Dir, "sized"), jobs.OverlaySpec{Name: "sized", Driver: jobs.DriverKernel, Size: 9}, Image{Path: sif(t, uuid.New(), "x")}, me("aaaaaaaa"), never)
		must(t, err)
		must(t, l.Close())
		return l.Limit()
	}
	if got := limit(); got != (Space{2 * jobs.MiB, 7}) {
		t.Errorf("%+v", got)
	}
	if err := s.Grow(t.Context(), "sized", 2*jobs.MiB, false); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
	must(t, s.Grow(t.Context(), "sized", 3*jobs.MiB, false))
	if i, err := s.Get("sized"); err != nil || i.Mark.Size != 3*jobs.MiB || i.Mark.Inodes != 7 {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestCheckRepairs(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverExt3)
	poke(t, i.Layer(), superblockAt+offsetState, 0, 0)
	if repaired, err := s.Check(t.Context(), "deps", false); err != nil || len(repaired) == 0 {
		t.Errorf("%q, %v", repaired, err)
	}
	if repaired, err := s.Check(t.Context(), "deps", false); err != nil || len(repaired) != 0 {
		t.Errorf("%q, %v", repaired, err)
	}
	must(t, os.WriteFile(i.Layer(), []byte("x"), 0o600))
	if _, err := s.Check(t.Context(), "deps", false); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
}

func TestCollectOverlays(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	s.change(t, i, "kept")
	_, err := s.Snapshot(t.Context(), "deps", "x", false)
	must(t, err)
	for _, d := range []string{"deps/.making-1/layer/upper", "deps/snapshots/.making-2/layer", ".gone-old-1f/layer/upper", "half/layer/upper", ".gone-foreign/thesis", "busy/layer"} {
		must(t, os.MkdirAll(filepath.Join(s.Dir, d), 0o700))
	}
	o := me("aaaaaaaa")
	o.Dir = t.TempDir()
	_, err = Acquire(filepath.Join(s.Dir, "busy"), o, never)
	must(t, err)
	const want = 4
	for _, dry := range []bool{true, false} {
		found, err := s.Collect(t.Context(), dry)
		must(t, err)
		if len(found) != want {
			t.Errorf("dry %t: %+v", dry, found)
		}
		for _, l := range found {
			must(t, l.Err)
		}
	}
	if found, err := s.Collect(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if got := names(t, s.Dir); got != ".gone-foreign busy deps" {
		t.Errorf("left %s", got)
	}
	if got := s.content(t, i); got != "kept" {
		t.Errorf("%q", got)
	}
	_, err = os.Stat(filepath.Join(i.Dir, "snapshots/x/layer/upper/f"))
	must(t, err)
}

// A restore that was killed between its two renames is finished by the next
// who comes, a job or a verb.
func TestRestoreKilled(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	must(t, os.Mkdir(filepath.Join(i.Dir, dirRestored), 0o700))
	s.change(t, i, "restored")
	must(t, os.Rename(i.Layer(), filepath.Join(i.Dir, dirRestored, dirLayer)))
	l, err := Persistent(t.Context(), here, i.Dir, named(jobs.DriverFuse), Image{Path: sif(t, uuid.New(), "x")}, me("aaaaaaaa"), never)
	must(t, err)
	must(t, l.Close())
	if got := s.content(t, i); got != "restored" {
		t.Errorf("%q", got)
	}
	// Also where two names cannot be exchanged.
	from, to := filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "layer")
	must(t, os.Mkdir(from, 0o700))
	must(t, swap(from, to))
	_, err = os.Stat(to)
	must(t, err)
}

// A size that no image can have is refused, and what comes to nothing leaves
// nothing.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		driver string
		size   jobs.Bytes
		inodes int64
		bad    string
	}{
		{jobs.DriverExt3, 0, 0, ""},
		{jobs.DriverExt3, 4 * jobs.MiB, 4096, ""},
		{jobs.DriverExt3, 4 * jobs.MiB, 4097, "cannot hold 4097 files"},
		{jobs.DriverExt3, jobs.GiB, 262145, "cannot hold 262145 files"},
		{jobs.DriverExt3, jobs.MiB, 0, "too small"},
		{jobs.DriverExt3, 16 * jobs.TiB, 0, "too large"},
		{jobs.DriverFuse, jobs.KiB, 0, ""},
	} {
		err := CheckSize(c.driver, c.size, c.inodes)
		if (err == nil) != (c.bad == "") || err != nil && (!strings.Contains(err.Error(), c.bad) || jobs.CodeOf(err) != jobs.CodeUsage || jobs.HintOf(err) == "") {
			t.Errorf("%s of %s, %d files: %v", c.driver, c.size, c.inodes, err)
		}
	}
	s := newSet(t)
	if _, err := s.Create(t.Context(), jobs.OverlaySpec{Name: "small", Driver: jobs.DriverExt3, Size: jobs.MiB}, ""); jobs.CodeOf(err) != jobs.CodeUsage {
		t.Error(err)
	}
	if _, err := s.Import(t.Context(), strings.NewReader("no tar"), jobs.OverlaySpec{Name: "none"}, ""); err == nil {
		t.Error("imported")
	}
	left, err := os.ReadDir(s.Dir)
	must(t, err)
	for _, e := range left {
		t.Errorf("%s is left", e.Name())
	}
}

// The smallest image has the journal without which Apptainer does not take it.
func TestSmallestExt3(t *testing.T) {
	s := newSet(t)
	need(t, "mke2fs")
	i, err := s.Create(t.Context(), jobs.OverlaySpec{Name: "small", Driver: jobs.DriverExt3, Size: smallestExt3, Inodes: 4096}, "")
	must(t, err)
	f, err := os.Open(i.Layer())
	must(t, err)
	defer f.Close()
	const offsetCompat, hasJournal = 0x5C, 0x4
	b := make([]byte, 1)
	_, err = f.ReadAt(b, superblockAt+offsetCompat)
	must(t, err)
	if b[0]&hasJournal == 0 {
		t.Error("no journal")
	}
}

// Over an unpacked image auto is kernel, and fuse is refused.
func TestCreateOverDirectory(t *testing.T) {
	s := newSet(t)
	img := t.TempDir()
	i, err := s.Create(t.Context(), jobs.OverlaySpec{Name: "auto"}, img)
	must(t, err)
	if i.Mark.Driver != jobs.DriverKernel {
		t.Errorf("%+v", i.Mark)
	}
	if _, err := s.Create(t.Context(), jobs.OverlaySpec{Name: "fuse", Driver: jobs.DriverFuse}, img); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Error(err)
	}
}
