package jobs

import (
	"strings"
	"testing"
	"time"
)

// A task's job has the bounds of its parent's [submit], whatever it asks for.
func TestChild(t *testing.T) {
	s := &Spec{Name: "parent", Submit: &Submit{MaxJobs: 2, MaxCPUTime: 4 * time.Hour, Time: time.Hour, Memory: GiB, GPUs: 1, Partitions: []string{"cpu"}}}
	s.Resources.Memory, s.Slurm.Partition = GiB/2, "own"
	run := Command{Argv: []string{"true"}}
	c, err := s.Child(Wish{Command: run})
	if err != nil || c.Resources.Time != time.Hour || c.Resources.Memory != GiB/2 || c.CPUTime() != time.Hour || c.Resources.GPUs != "" || c.Name != "parent job" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, parent := range []Bytes{0, 2 * GiB} { // one that has no bound itself, and one that has more
		s.Resources.Memory = parent
		if c, err := s.Child(Wish{Command: run}); err != nil || c.Resources.Memory != GiB {
			t.Errorf("of a parent with %s: %s, %v", parent, c.Resources.Memory, err)
		}
	}
	s.Resources.Memory = GiB / 2
	for key, w := range map[string]Wish{
		"time":          {Resources: Resources{Time: time.Hour + 1}},
		"memory":        {Resources: Resources{Memory: GiB + 1}},
		"gpus":          {Resources: Resources{GPUs: "a100:2"}},
		"gpus ":         {Resources: Resources{GPUs: "x"}},
		"gpus  ":        {Resources: Resources{GPUs: "-1"}},
		"gpus   ":       {Resources: Resources{GPUs: strings.Repeat("a", 2000) + ":1"}},
		"partitions":    {Partition: "gpu"},
		"max_cpu_hours": {Resources: Resources{CPUs: 5}},
	} {
		w.Command = run
		if _, err := s.Child(w); KindOf(err) != KindUsage || !strings.Contains(HintOf(err), "[submit] "+strings.TrimSpace(key)) {
			t.Errorf("%s: %v (%s)", key, err, HintOf(err))
		}
	}
	for _, w := range []Wish{{}, {Command: run, Name: "a\nb"}, {Command: run, Name: strings.Repeat("x", 201)}, {Command: run, Script: strings.Repeat("x", MaxJobScript+1)},
		{Command: run, After: make([]ChildAfter, MaxChildren+1)}, {Command: run, Scope: []string{"src"}}, {Command: run, Allow: make([]string, maxNarrower+1)}} {
		if _, err := s.Child(w); KindOf(err) != KindUsage {
			t.Errorf("%.60v: %v", w, err)
		}
	}
	if _, err := (&Spec{Submit: &Submit{}}).Child(Wish{Command: run}); KindOf(err) != KindUsage {
		t.Error(err)
	}
	c.Resources.CPUs = 3
	if err := s.Submit.Another([]Child{c}, &c); KindOf(err) != KindRejected || !strings.Contains(HintOf(err), "max_cpu_hours") {
		t.Error(err)
	}
	if err := s.Submit.Another([]Child{{}, {}}, &Child{}); KindOf(err) != KindRejected || !strings.Contains(HintOf(err), "max_jobs") {
		t.Error(err)
	}
	if err := s.Submit.Another([]Child{c}, &Child{Resources: Resources{Time: time.Hour}}); err != nil {
		t.Error(err)
	}
}

// The images that a task's job may have are those of the list, whole, and its parent's.
func TestChildImage(t *testing.T) {
	s := &Spec{Name: "parent", ImageRef: "docker://debian:12", Submit: &Submit{MaxJobs: 1, MaxCPUTime: time.Hour, Time: time.Hour,
		Images: []ChildImage{{Name: "/proj/images/py.sif", Image: "/proj/images/py.sif"}, {Name: "docker://alpine:3", Image: "/cache/1.sif"}}}}
	s.Image = "/cache/0.sif"
	ask := func(image string) (Child, error) {
		return s.Child(Wish{Command: Command{Argv: []string{"true"}}, Image: image})
	}
	for asked, want := range map[string]string{
		"": "", "docker://debian:12": "", "/cache/0.sif": "", "docker://alpine:3": "docker://alpine:3",
		"/proj/images/py.sif": "/proj/images/py.sif", "/proj//images/./py.sif": "/proj/images/py.sif", "//proj/images/py.sif/": "/proj/images/py.sif",
	} {
		if c, err := ask(asked); err != nil || c.Image != want {
			t.Errorf("%q: %q, %v", asked, c.Image, err)
		}
	}
	for _, asked := range []string{
		"alpine:3", "docker://alpine", "docker://alpine:3 ", "docker://alpine:3@sha256:0", "docker://Alpine:3", "docker:///alpine:3", "/cache/1.sif", "/proj/images", "/proj/images/py.sif.x",
		"/proj/images/../images/py.sif", "/proj/images/x/../py.sif", "proj/images/py.sif", "../proj/images/py.sif", "/proj/images/*.sif", "/", ".", "-", "\x00", "/proj/images/py.sif\x00",
		strings.Repeat("/a", 1<<20), "build:x", "local:/proj/images/py.sif",
	} {
		c, err := ask(asked)
		if KindOf(err) != KindUsage || len(err.Error()) > 1000 || CheckText("", err.Error()) != nil || c.Image != "" {
			t.Errorf("%.60q: %q, %.300v", asked, c.Image, err)
		}
		if h := HintOf(err); !strings.HasSuffix(h, ": docker://debian:12, /proj/images/py.sif, docker://alpine:3") {
			t.Errorf("%.60q: %s", asked, h)
		}
	}
	if text := s.Submit.Bounds(); !strings.HasSuffix(text, ", images /proj/images/py.sif docker://alpine:3") {
		t.Error(text)
	}
	s = &Spec{Submit: &Submit{MaxJobs: 1, MaxCPUTime: time.Hour, Time: time.Hour}} // without an image of its own
	if _, err := ask("/"); KindOf(err) != KindUsage || !strings.HasSuffix(HintOf(err), ": none") {
		t.Error(err)
	}
}
