package engine

import (
	"context"
	"strings"
	"testing"

	"berth/jobs"
)

// TestSameProject: what one repository's berth.toml has shaped is not used for
// the commands of another place, unless it is named.
func TestSameProject(t *testing.T) {
	e := newFixture(t).Engine
	wanted := func(name, project string, shapes bool) error {
		o := jobs.EnvOptions{Name: name, Configured: &jobs.EnvConfig{Backend: jobs.BackendLocal, Project: project, For: func(string) (jobs.EnvOptions, []string, error) {
			if shapes {
				return jobs.EnvOptions{Project: project}, nil, nil
			}
			return jobs.EnvOptions{}, nil, nil
		}}}
		_, err := e.Environment(context.Background(), o)
		return err
	}
	if err := wanted("", "/src/evil", true); err != nil {
		t.Fatal(err)
	}
	for _, project := range []string{"", "/src/lab", "/src/evil/sub"} {
		if err := wanted("", project, false); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "/src/evil/berth.toml") || !strings.Contains(jobs.HintOf(err), "berth env rm local") {
			t.Errorf("%q: %v", project, err)
		}
	}
	if err := wanted("", "/src/evil", false); err != nil {
		t.Error(err)
	}
	if err := wanted("local", "/src/lab", false); err != nil {
		t.Errorf("named: %v", err)
	}
	if err := wanted("own", "/src/lab", false); err != nil {
		t.Error(err)
	}
	if err := wanted("own", "", false); err != nil {
		t.Errorf("shaped by nobody: %v", err)
	}
}
