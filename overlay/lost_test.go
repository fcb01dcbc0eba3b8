package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"

	"github.com/google/uuid"
)

// An overlay that has lost its mark to whoever removes old files is not made
// again, nor is it left over; one that is half made is both.
func TestLostMark(t *testing.T) {
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(driver, func(t *testing.T) {
			s := newSet(t)
			i := s.create(t, "deps", driver)
			mark := filepath.Join(i.Dir, fileMark)
			spec, img := named(driver), Image{Path: sif(t, uuid.New(), "x")}
			open := func() error {
				l, err := Persistent(t.Context(), here, i.Dir, spec, img, me("aaaaaaaa"), never)
				if err == nil {
					err = l.Close()
				}
				return err
			}
			must(t, os.Remove(mark))
			must(t, open()) // no one has worked in it
			must(t, os.Chtimes(mark, time.Now(), time.Now().Add(-48*time.Hour)))
			must(t, open())
			if fi, err := os.Stat(mark); err != nil || time.Since(fi.ModTime()) > time.Hour {
				t.Errorf("the mark is not fresh: %v, %v", fi.ModTime(), err)
			}
			s.change(t, i, "work")
			if driver == jobs.DriverExt3 {
				poke(t, i.Layer(), superblockAt+0x2C, 1) // it was mounted
			}
			must(t, os.Remove(mark))
			for what, do := range map[string]func() error{
				"a job":    open,
				"create":   func() error { _, err := s.Create(t.Context(), spec, ""); return err },
				"snapshot": func() error { _, err := s.Snapshot(t.Context(), "deps", "x", false); return err },
			} {
				err := do()
				if jobs.CodeOf(err) != jobs.CodeConfig || err.Error() != "overlay deps has files, but its mark "+mark+" is gone" || !strings.Contains(jobs.HintOf(err), "berth overlay rm deps") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if found, err := s.Collect(t.Context(), false); err != nil || len(found) != 0 {
				t.Errorf("%+v, %v", found, err)
			}
			if got := s.content(t, i); got != "work" {
				t.Errorf("%q", got)
			}
			// What a verb has begun and not ended is half made.
			must(t, os.WriteFile(filepath.Join(i.Dir, fileBegun), nil, 0o600))
			if found, err := s.Collect(t.Context(), true); err != nil || len(found) != 1 {
				t.Errorf("%+v, %v", found, err)
			}
			must(t, open())
			must(t, s.Remove(t.Context(), "deps", false))
		})
	}
}

// TestLostAll: an overlay that has lost its mark and its layer still has its
// snapshots.
func TestLostAll(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	s.change(t, i, "work")
	_, err := s.Snapshot(t.Context(), "deps", "good", false)
	must(t, err)
	must(t, errors.Join(os.Remove(filepath.Join(i.Dir, fileMark)), os.RemoveAll(i.Layer())))
	if found, err := s.Collect(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := s.Create(t.Context(), named(jobs.DriverFuse), ""); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "its mark") {
		t.Errorf("%v", err)
	}
	if got := s.content(t, &Info{Dir: snapshotDir(i.Dir, "good"), Mark: i.Mark}); got != "work" {
		t.Errorf("%q", got)
	}
}
