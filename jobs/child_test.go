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
