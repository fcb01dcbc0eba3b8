package jobs_test

import (
	"testing"

	"berth/jobs"
)

func TestGPUKind(t *testing.T) {
	for _, c := range []struct {
		place jobs.Place
		want  string
	}{
		{jobs.Place{}, ""}, {jobs.Place{Profile: jobs.Profile{GPU: "amd"}}, ""}, {jobs.Place{GPU: "amd"}, "amd"},
		{jobs.Place{Resources: jobs.Resources{GPUs: "1"}}, "nvidia"},
		{jobs.Place{Resources: jobs.Resources{GPUs: "1"}, Profile: jobs.Profile{GPU: "amd"}}, "amd"},
		{jobs.Place{GPU: "nvidia", Resources: jobs.Resources{GPUs: "1"}, Profile: jobs.Profile{GPU: "amd"}}, "nvidia"},
	} {
		if got := c.place.GPUKind(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.place, got, c.want)
		}
	}
}
