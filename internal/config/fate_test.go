package config

import (
	"testing"
	"time"

	"berth/jobs"
)

// The keys of fresh places count for jobs and environments of every backend, those that
// cannot have one too, which refuse it; Daytona's are for Daytona alone.
func TestFate(t *testing.T) {
	all := "per_task_workspace = true\nauto_destroy = true\nauto_destroy_after_seconds = 60\n"
	want := jobs.Fate{PerTask: true, Destroy: true, DestroyAfter: time.Minute}
	for table, backends := range map[string][]string{
		"[terminal]\n":         {"singularity", "docker", "bwrap", "local", "ssh", "modal", "daytona", ""},
		"[terminal.daytona]\n": {"daytona"},
	} {
		w := newWorld(t)
		w.write(t, w.user, table+all)
		c := w.load(t)
		var o jobs.EnvOptions
		if err := c.Environment(&o); err != nil {
			t.Fatal(err)
		}
		for _, backend := range append(jobs.Backends(), "modal", "daytona", "") {
			counts := false
			for _, b := range backends {
				counts = counts || b == backend
			}
			for _, job := range []bool{false, true} {
				p, _, _, err := c.place(backend, job)
				if got := p.Fate; err != nil || counts && got != want || !counts && got != (jobs.Fate{}) {
					t.Errorf("%s %q, job %v: %+v, %v", table, backend, job, got, err)
				}
			}
			if got := o.Configured.PerTask(backend); got != counts {
				t.Errorf("%s %q: %v", table, backend, got)
			}
		}
	}
}

// workspace_template is the template, which a fresh place of a backend without templates
// is not silently made without.
func TestFateTemplate(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, "[terminal]\nworkspace_template = \"tools\"\nper_task_workspace = true\n[terminal.daytona]\nworkspace_template = \"snap\"\n")
	c := w.load(t)
	for backend, want := range map[string]string{"singularity": "tools", "docker": "tools", "bwrap": "tools", "daytona": ""} {
		o, _, _, err := c.place(backend, true)
		if err != nil || o.Template != want {
			t.Errorf("%s: %q, %v", backend, o.Template, err)
		}
	}
	w.write(t, w.user, "[terminal]\nworkspace_template = \"tools\"\n")
	if o, _, _, err := w.load(t).place("bwrap", true); err != nil || o.Template != "" {
		t.Errorf("without the promise: %q, %v", o.Template, err)
	}
}
