package overlay

import (
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"berth/jobs"
)

// What was kept can be gone on from any number of times, and is removed for its
// own job only.
func TestAgain(t *testing.T) {
	for _, driver := range []string{jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(driver, func(t *testing.T) {
			if driver == jobs.DriverExt3 {
				need(t, "mke2fs", "e2fsck")
			}
			s := newSet(t)
			image := sif(t, uuid.New(), "x")
			l := throwAway(t, s, t.TempDir(), driver)
			m := keptMark(driver)
			id, err := LowerID(image)
			must(t, err)
			m.Image, m.ImageID = image, id
			name, err := Keep(t.Context(), here, s.Dir, l, m, me("cccccccc"))
			must(t, err)
			spec := named(driver)
			spec.Name = ""
			for range 2 {
				again, err := Again(t.Context(), here, s.Dir, name, t.TempDir(), spec, Image{Path: image})
				must(t, err)
				if got := s.content(t, &Info{Dir: filepath.Dir(again.Path), Mark: &Mark{Driver: driver}}); got != "kept" {
					t.Errorf("it holds %q", got)
				}
				must(t, again.Close())
			}
			other := spec
			other.Driver = jobs.DriverKernel
			if _, err := Again(t.Context(), here, s.Dir, name, t.TempDir(), other, Image{Path: image}); jobs.KindOf(err) != jobs.KindInfra {
				t.Errorf("another driver: %v", err)
			}
			if err := Drop(t.Context(), here, s.Dir, name, "00000000-0000-7000-8000-0000eeeeeeee"); err == nil {
				t.Error("it was removed for another job")
			}
			must(t, Drop(t.Context(), here, s.Dir, name, m.Kept.Job))
			must(t, Drop(t.Context(), here, s.Dir, name, m.Kept.Job))
			if _, err := Again(t.Context(), here, s.Dir, name, t.TempDir(), spec, Image{Path: image}); jobs.KindOf(err) != jobs.KindConfig {
				t.Errorf("one that is gone: %v", err)
			}
			if _, err := Again(t.Context(), here, s.Dir, "mine", t.TempDir(), spec, Image{Path: image}); err == nil {
				t.Error("an overlay with a name was taken for a kept one")
			}
		})
	}
}
