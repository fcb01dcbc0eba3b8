package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/images"
	sweeps "berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// asks is a task in a container that may have jobs submitted in these images.
func asks(f *fixture, names ...string) jobs.Task {
	return task(func(t *jobs.Task) {
		t.Place = jobs.Place{Backend: jobs.BackendSingularity, Image: f.sif, Scheduler: jobs.SchedulerLocal}
		t.Submit = &jobs.Submit{MaxJobs: 1, MaxCPUTime: 3600e9}
		for _, n := range names {
			t.Submit.Images = append(t.Submit.Images, jobs.ChildImage{Name: n})
		}
	})
}

// What a task's job may have is settled with its parent: a file is what it was then, whatever
// the task does, and the layer over the parent's image is not over another one.
func TestChildImages(t *testing.T) {
	f := newFixture(t)
	other := filepath.Join(t.TempDir(), "other.sif")
	must(t, os.WriteFile(other, siftest.New(uuid.New(), []byte("x")), 0o600))
	work := asks(f, filepath.Dir(other)+"/./other.sif")
	s := f.plan(work, Choice{})
	want := jobs.ChildImage{Name: other, Image: other, ImageSum: sumOf(t, other)}
	if got := s.Submit.Images; len(got) != 1 || got[0] != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	if work.Submit.Images[0].Image != "" {
		t.Errorf("the task itself was changed: %+v", work.Submit)
	}
	s.Overlay = jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverExt3, Why: "what the overlay was written with", Size: jobs.GiB}
	c := &jobs.Child{Job: "00000000-0000-7000-8000-000000000002", Name: "x", Command: jobs.Command{Argv: []string{"true"}}}
	same, err := f.childOf(s, c)
	if err != nil || same.Image != f.sif || same.ImageSum != s.ImageSum || same.Overlay.Driver != jobs.DriverExt3 {
		t.Errorf("in its parent's image: %+v, %v", same, err)
	}
	c.Image = other
	child, err := f.childOf(s, c)
	if err != nil || child.Image != other || child.ImageSum != want.ImageSum || child.ImageSum == s.ImageSum ||
		child.Overlay != (jobs.OverlaySpec{Driver: jobs.DriverFuse, Why: "no profile says what was found right"}) {
		t.Errorf("in another: %+v, %v", child, err)
	}
	if s.Image != f.sif || s.Overlay.Name != "deps" {
		t.Errorf("its parent is %+v", s.Place)
	}
	c.Image = f.sif // a record of what is not on the list submits nothing
	if _, err := f.childOf(s, c); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
}

// A list that cannot be settled is refused when the parent is submitted, by one error, and
// nothing is written.
func TestChildImagesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jobs.Task)
		image  string
		code   int
		text   string
	}{
		"control characters": {image: "/a\x1b[2J.sif", code: 2, text: "holds a control character"},
		"a relative path":    {image: "images/py.sif", code: 2, text: "neither an absolute path nor a reference"},
		"a word":             {image: "debian", code: 2, text: "neither an absolute path nor a reference"},
		"up":                 {image: "../py.sif", code: 2, text: "neither an absolute path nor a reference"},
		"an option":          {image: "-v", code: 2, text: "neither an absolute path nor a reference"},
		"missing":            {image: "/none/x.sif", code: 3, text: "/none/x.sif does not exist"},
		"no SIF":             {image: "/proc/self/status", code: 78, text: "is not a SIF"},
		"not a reference":    {image: "docker://UPPER:1", code: 2},
		"on the host":        {func(t *jobs.Task) { t.Place = jobs.Place{Backend: jobs.BackendLocal} }, "/none/x.sif", 78, "[submit] images: not available on the backend local"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			work := asks(f, c.image)
			if c.change != nil {
				c.change(&work)
			}
			_, err := f.Plan(t.Context(), work, Choice{}, false)
			if err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "[submit] images") ||
				jobs.HintOf(err) == "" || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v (%s), code %d", err, jobs.HintOf(err), jobs.CodeOf(err))
			}
			if left := f.files(); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// An image that a child of a job that has not ended may ask for is not collected.
func TestChildImagesInUse(t *testing.T) {
	f := newFixture(t)
	f.images = &images.Cache{Dir: filepath.Join(f.Store.Home(), "images")}
	other := filepath.Join(t.TempDir(), "other.sif")
	must(t, os.WriteFile(other, siftest.New(uuid.New(), nil), 0o600))
	rec := f.submit(asks(f, other), Choice{})
	use, err := f.ImagesInUse()
	if err != nil || use[other] != "job "+jobs.Short(rec.Spec.ID) {
		t.Errorf("%v, %v", use, err)
	}
}

// Nothing is said to be unused while a sweep cannot be read, which may need it.
func TestImagesOfSweepUnread(t *testing.T) {
	f := newFixture(t)
	f.images = &images.Cache{Dir: filepath.Join(f.Store.Home(), "images")}
	s, err := sweeps.Create(filepath.Join(f.Store.Home(), "sweeps"), sweeps.Spec{ID: "01890000-0000-7000-8000-0123456789ab", Name: "lr",
		Worker: &jobs.Place{Image: f.sif}}, 1, nil, func(add func(command.Task) error) error { return add(command.Task{Number: 1}) })
	must(t, err)
	use, err := f.ImagesInUse()
	must(t, err)
	if use[f.sif] != "sweep lr" {
		t.Errorf("%v", use)
	}
	must(t, os.WriteFile(sweeps.SpecFile(s.Dir), []byte("{"), 0o600))
	if use, err := f.ImagesInUse(); err == nil || !strings.Contains(err.Error(), "456789ab") || !strings.Contains(jobs.HintOf(err), s.Dir) {
		t.Errorf("%v, %v, %q", use, err, jobs.HintOf(err))
	}
}

// named is a backend whose images are names, which it pins.
type named struct {
	container
	asked []string
}

func (*named) Name() string { return jobs.BackendDocker }

// Fetch implements [jobs.Fetcher].
func (n *named) Fetch(_ context.Context, image string, offline bool) (string, error) {
	if offline {
		return "", &jobs.Error{Kind: jobs.KindNotFound, Msg: "not here"}
	}
	n.asked = append(n.asked, image)
	return "sha256:0a", nil
}

// With a backend that takes names an image is fetched with the parent, and pinned; nodes of a
// cluster have images of their own.
func TestChildImagesNamed(t *testing.T) {
	f := newFixture(t)
	n := &named{container: *f.container}
	f.Backends = append(f.Backends, n)
	work := asks(f, "docker://alpine:3")
	work.Place = jobs.Place{Backend: jobs.BackendDocker, Image: "debian:12", Scheduler: jobs.SchedulerLocal}
	work.Reference = "debian:12"
	s, err := f.Plan(t.Context(), work, Choice{}, true)
	if err != nil || s.Submit.Images[0].Image != "alpine:3" || len(n.asked) != 0 {
		t.Errorf("to be rendered: %+v, %v, asked %q", s, err, n.asked)
	}
	for _, c := range []Choice{{Offline: true}, {NoChildImages: true}} {
		if _, err := f.Plan(t.Context(), work, c, false); jobs.KindOf(err) != jobs.KindNotFound || len(n.asked) != 0 {
			t.Errorf("%+v: %v, asked %q", c, err, n.asked)
		}
	}
	s = f.plan(work, Choice{})
	if want := (jobs.ChildImage{Name: "docker://alpine:3", Image: "sha256:0a", ImageRef: "alpine:3"}); s.Submit.Images[0] != want || len(n.asked) != 1 {
		t.Errorf("%+v, asked %q", s.Submit.Images, n.asked)
	}
	child, err := f.childOf(s, &jobs.Child{Job: "00000000-0000-7000-8000-000000000002", Name: "x", Image: "docker://alpine:3"})
	if err != nil || child.Image != "sha256:0a" || child.ImageRef != "alpine:3" {
		t.Errorf("%+v, %v", child, err)
	}
	work.Submit.Images[0].Name = "oras://example.test/x:1"
	if _, err := f.Plan(t.Context(), work, Choice{}, false); jobs.CodeOf(err) != 78 || !strings.Contains(err.Error(), "cannot take it") {
		t.Error(err)
	}
	work.Submit.Images[0].Name, work.Scheduler = "alpine:3", jobs.SchedulerSlurm
	if _, err := f.Plan(t.Context(), work, Choice{}, false); jobs.CodeOf(err) != 78 || !strings.Contains(err.Error(), "has images on each node") {
		t.Error(err)
	}
}
