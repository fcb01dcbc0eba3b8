package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// throwAway is the layer of an attempt below dir, with a file in it.
func throwAway(t *testing.T, s testSet, dir, driver string) *Layer {
	t.Helper()
	spec := named(driver)
	spec.Name = ""
	l, err := Temporary(t.Context(), here, dir, spec)
	must(t, err)
	s.change(t, &Info{Dir: filepath.Dir(l.Path), Mark: &Mark{Driver: driver}}, "kept")
	return l
}

func keptMark(driver string) Mark {
	return Mark{Driver: driver, Size: named(driver).Size, Image: "/i.sif", ImageID: "sif:1",
		Kept: &Kept{Job: "00000000-0000-7000-8000-0000dddddddd", Attempt: "00000000-0000-7000-8000-0000cccccccc", State: jobs.StateFailed}}
}

func TestKeep(t *testing.T) {
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		for where, base := range map[string]string{"here": "", "from another file system": "/dev/shm"} {
			t.Run(driver+" "+where, func(t *testing.T) {
				if driver == jobs.DriverExt3 {
					need(t, "mke2fs", "e2fsck")
				}
				s := newSet(t)
				scratch, err := os.MkdirTemp(base, "berth-test-*") //nolint:usetesting // on another file system
				must(t, err)
				defer func() { _ = os.RemoveAll(scratch) }()
				for n, want := range []string{"kept/dddddddd", "kept/dddddddd-cccccccc"} {
					l := throwAway(t, s, scratch, driver)
					name, err := Keep(t.Context(), here, s.Dir, l, keptMark(driver), me("cccccccc"))
					must(t, err)
					must(t, l.Close())
					if name != want {
						t.Errorf("%d: %s", n, name)
					}
					i, err := s.Get(name)
					must(t, err)
					if got := s.content(t, i); got != "kept" || i.Name != want || i.Mark.Name != want || i.Mark.Kept.State != jobs.StateFailed || i.Holder != nil {
						t.Errorf("%q, %+v", got, i)
					}
				}
				if got := names(t, scratch); got != "" {
					t.Errorf("left %s", got)
				}
				if list, err := s.List(); err != nil || len(list) != 0 {
					t.Errorf("with a name: %+v, %v", list, err)
				}
				if list, err := s.ListKept(); err != nil || len(list) != 2 || list[0].Name != "kept/dddddddd" {
					t.Errorf("%+v, %v", list, err)
				}
				i, err := s.Fork(t.Context(), "kept/dddddddd", "found")
				must(t, err)
				if got := s.content(t, i); got != "kept" || i.Mark.Kept != nil {
					t.Errorf("forked %q, %+v", got, i.Mark)
				}
			})
		}
	}
}

// A link in the place of the directory of kept layers leads nowhere, and what
// could not be kept leaves nothing.
func TestKeepRefused(t *testing.T) {
	s := newSet(t)
	outside := t.TempDir()
	l := throwAway(t, s, t.TempDir(), jobs.DriverFuse)
	must(t, os.Symlink(outside, filepath.Join(s.Dir, dirKept)))
	if name, err := Keep(t.Context(), here, s.Dir, l, keptMark(jobs.DriverFuse), me("cccccccc")); jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "is not a directory of berth's making") {
		t.Errorf("%s, %v", name, err)
	}
	if got := names(t, outside); got != "" {
		t.Errorf("made %s", got)
	}
	if list, err := s.ListKept(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	must(t, os.Remove(filepath.Join(s.Dir, dirKept)))
	must(t, os.RemoveAll(l.Path))
	if name, err := Keep(t.Context(), here, s.Dir, l, keptMark(jobs.DriverFuse), me("cccccccc")); err == nil {
		t.Errorf("kept nothing as %s", name)
	}
	if got := names(t, filepath.Join(s.Dir, dirKept)); got != "" {
		t.Errorf("left %s", got)
	}
	named := &Layer{Path: l.Path}
	if _, err := Keep(t.Context(), here, s.Dir, named, keptMark(jobs.DriverFuse), me("cccccccc")); err == nil {
		t.Error("kept what has a name")
	}
}

// Kept layers go by age: not before, not while someone uses one, and only what
// berth has kept.
func TestCollectKept(t *testing.T) {
	s := newSet(t)
	scratch := t.TempDir()
	keep := func(job string, age time.Duration) *Info {
		l := throwAway(t, s, scratch, jobs.DriverFuse)
		m := keptMark(jobs.DriverFuse)
		m.Kept.Job = "00000000-0000-7000-8000-0000" + job
		name, err := Keep(t.Context(), here, s.Dir, l, m, me("cccccccc"))
		must(t, err)
		must(t, l.Close())
		i, err := s.Get(name)
		must(t, err)
		i.Mark.Created = time.Now().Add(-age)
		must(t, writeMark(i.Dir, i.Mark))
		return i
	}
	const day = 24 * time.Hour
	keep("00000001", 13*day)
	waiting := keep("00000006", 60*day)
	waiting.Mark.Kept.GoesOn = true
	must(t, writeMark(waiting.Dir, waiting.Mark))
	old := keep("00000002", 15*day)
	used := keep("00000003", 15*day)
	o := me("aaaaaaaa")
	o.Dir = t.TempDir()
	_, err := Acquire(used.Dir, o, never)
	must(t, err)
	foreign := keep("00000004", 15*day)
	must(t, os.WriteFile(filepath.Join(foreign.Dir, "thesis.tex"), nil, 0o600))
	half := filepath.Join(s.Dir, dirKept, "00000005")
	must(t, os.MkdirAll(filepath.Join(half, "layer/upper"), 0o700))
	for _, dry := range []bool{true, false} {
		found, err := s.Collect(t.Context(), dry)
		must(t, err)
		if len(found) != 2 || found[0].What != "layer of job 00000002, kept for 15 days" || found[1].What != "half made overlay" {
			t.Errorf("dry %t: %+v", dry, found)
		}
		if _, err := os.Stat(old.Dir); (err == nil) != dry {
			t.Errorf("dry %t: %v", dry, err)
		}
	}
	if got := names(t, filepath.Join(s.Dir, dirKept)); got != "00000001 00000003 00000004 00000006" {
		t.Errorf("left %s", got)
	}
	s.Older = day
	if found, err := s.Collect(t.Context(), false); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	if got := names(t, s.Dir); got != dirKept {
		t.Errorf("left %s", got)
	}
}
