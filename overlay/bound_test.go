package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/uuid"
)

// A layer is opened over its own image alone: by the id, and by the sum of the
// whole file once both sides know it.
func TestCheckImage(t *testing.T) {
	for name, c := range map[string]struct {
		mark Mark
		img  Image
		bad  bool
		sum  string // in the mark afterwards
	}{
		"none yet":              {Mark{}, Image{ID: "sif:1", Sum: "aa"}, false, "aa"},
		"the same id":           {Mark{ImageID: "sif:1"}, Image{ID: "sif:1"}, false, ""},
		"another id":            {Mark{ImageID: "sif:1"}, Image{ID: "sif:2", Sum: "aa"}, true, ""},
		"the sum becomes known": {Mark{ImageID: "sif:1"}, Image{ID: "sif:1", Sum: "aa"}, false, "aa"},
		"the same sum":          {Mark{ImageID: "sif:1", ImageSum: "aa"}, Image{ID: "sif:1", Sum: "aa"}, false, "aa"},
		"not summed here":       {Mark{ImageID: "sif:1", ImageSum: "aa"}, Image{ID: "sif:1"}, false, "aa"},
		"its id in another":     {Mark{ImageID: "sif:1", ImageSum: "aa"}, Image{ID: "sif:1", Sum: "bb"}, true, "aa"},
		"no image":              {Mark{}, Image{}, false, ""},
	} {
		m := c.mark
		err := m.CheckImage("deps", c.img)
		if (err != nil) != c.bad || err != nil && (jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "berth overlay convert deps --image ")) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.bad {
			m.bind(c.img)
		}
		if m.ImageSum != c.sum || !c.bad && m.ImageID != c.img.ID {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// The first use writes down what it knows of the image; what an environment
// has is bound as what a job has.
func TestBound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deps")
	img := Image{Path: sif(t, uuid.New(), "x")}
	l, err := Persistent(t.Context(), here, dir, named(jobs.DriverKernel), img, me("aaaaaaaa"), never)
	must(t, err)
	must(t, l.Close())
	img.Sum = strings.Repeat("ab", 32)
	l, err = Persistent(t.Context(), here, dir, named(jobs.DriverKernel), img, me("bbbbbbbb"), never)
	must(t, err)
	must(t, l.Close())
	if m, err := ReadMark(dir); err != nil || m.ImageSum != img.Sum || m.Driver != jobs.DriverKernel {
		t.Errorf("%+v, %v", m, err)
	}
	img.Sum = strings.Repeat("cd", 32)
	if _, err := Persistent(t.Context(), here, dir, named(jobs.DriverKernel), img, me("cccccccc"), never); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("%v", err)
	}
	own := filepath.Join(t.TempDir(), "overlay")
	must(t, os.MkdirAll(own, 0o700))
	must(t, writeMark(own, &Mark{Version: markVersion, Name: "e", Driver: jobs.DriverFuse}))
	_, err = makeLayer(t.Context(), here, own, jobs.OverlaySpec{Driver: jobs.DriverFuse})
	must(t, err)
	for _, id := range []string{"sif:1", "sif:2"} {
		_, err := Own(t.Context(), here, own, jobs.OverlaySpec{Name: "e", Driver: jobs.DriverFuse}, Image{Path: "/x.sif", ID: id})
		if (err == nil) != (id == "sif:1") {
			t.Errorf("%s: %v", id, err)
		}
	}
	// Another driver is refused, with the way to it; and binds nothing.
	if _, err := Own(t.Context(), here, own, jobs.OverlaySpec{Name: "e", Driver: jobs.DriverKernel}, Image{Path: "/x.sif", ID: "sif:1"}); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "convert e --driver kernel") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
}
