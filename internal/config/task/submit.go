package task

import (
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Bounds of [submit].
const (
	maxCPUHours = 1_000_000
	maxGPUs     = 10_000
)

// submit reads what a task may ask of berth while it runs.
func submit(t *strict.Reader) *jobs.Submit {
	t.Later("it is not built yet", "running", "credentials")
	t.Synonyms("max_jobs", "jobs", "max_children")
	t.Synonyms("max_cpu_hours", "cpu_hours")
	t.Synonyms("end_with_parent", "children")
	most := t.Take("max_jobs")
	s := &jobs.Submit{MaxJobs: most.Count(jobs.MaxChildren)}
	hours := t.Take("max_cpu_hours")
	s.MaxCPUTime = time.Duration(hours.Count(maxCPUHours)) * time.Hour
	for _, key := range []string{"time", "memory", "gpus", "partitions", "images", "end_with_parent"} {
		v := t.Take(key)
		switch key {
		case "time":
			s.Time = keys.Duration(v)
		case "memory":
			s.Memory = keys.Size(v)
		case "gpus":
			s.GPUs = v.Count(maxGPUs)
		case "partitions":
			s.Partitions = v.Texts("partitions")
		case "images":
			for _, name := range v.Texts("images") {
				s.Images = append(s.Images, jobs.ChildImage{Name: name})
			}
			if len(s.Images) > jobs.MaxChildImages {
				v.Failf("leave some out", "names %d images, and may name %d", len(s.Images), jobs.MaxChildImages)
			}
		case "end_with_parent":
			s.EndWithParent = v.Bool()
		}
		if v.Given() && !most.Given() {
			v.Failf("add max_jobs, such as max_jobs = 4", "bounds jobs that the task submits, and it may submit none")
		}
	}
	switch {
	case hours.Given() && !most.Given():
		hours.Failf("add max_jobs, such as max_jobs = 4", "bounds jobs that the task submits, and it may submit none")
	case most.Given() && !hours.Given():
		most.Failf("add max_cpu_hours, such as max_cpu_hours = 8: CPUs times time of all of them", "needs max_cpu_hours beside it")
	}
	if !t.Given() {
		return nil
	}
	return s
}
