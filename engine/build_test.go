package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
	"berth/templates"
)

// What a job that builds said last is what a person would have seen.
func TestLastLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stderr")
	if err := os.WriteFile(file, []byte(strings.Repeat("early\n", 5000)+" 1%\r 50%\r100%\nlast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := lastLines(file)
	if len(got) != 12 || !slices.Equal(got[9:], []string{"early", "100%", "last"}) {
		t.Errorf("%q", got)
	}
	if got := lastLines(filepath.Join(t.TempDir(), "none")); got != nil {
		t.Errorf("%q", got)
	}
}

func TestKindOfCode(t *testing.T) {
	for _, code := range []int{jobs.CodeUsage, jobs.CodeNotFound, jobs.CodeAuth, jobs.CodeInfra, jobs.CodeAgain, jobs.CodeConfig} {
		if got := jobs.CodeOf(&jobs.Error{Kind: kindOfCode(code)}); got != code {
			t.Errorf("%d became %d", code, got)
		}
	}
	if kindOfCode(jobs.CodeTaskFailed) != jobs.KindUsage || kindOfCode(137) != jobs.KindInfra {
		t.Error("a script that failed is the template's fault, a signal is not")
	}
}

// A template's limits and variables count where the task says nothing.
func TestTaskTemplate(t *testing.T) {
	dir := t.TempDir()
	text := "image = \"/x.sif\"\nenv = [\"TEMPLATE_A\", \"TEMPLATE_B\", \"TEMPLATE_C\"]\n[resources]\ncpus = 3\nmemory = \"2GiB\"\ndisk = \"1GiB\"\n"
	if err := os.WriteFile(filepath.Join(dir, "x.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEMPLATE_A", "1")
	t.Setenv("TEMPLATE_B", "1")
	task := jobs.Task{Template: "x", Place: jobs.Place{Resources: jobs.Resources{CPUs: 1}, Env: []string{"TEMPLATE_B=mine"}}}
	if err := TaskTemplate(dir, &task); err != nil {
		t.Fatal(err)
	}
	if r := task.Resources; r.CPUs != 1 || r.Memory != 2*jobs.GiB || r.Disk != jobs.GiB {
		t.Errorf("%+v", r)
	}
	if got := task.Env; !slices.Equal(got, []string{"TEMPLATE_B=mine", "TEMPLATE_A"}) {
		t.Errorf("%q", got)
	}
	task = jobs.Task{Template: "x", Place: jobs.Place{Overlay: jobs.OverlaySpec{Name: "o"}}} // which has a size of its own
	if err := TaskTemplate(dir, &task); err != nil || task.Resources.Disk != 0 {
		t.Errorf("%+v, %v", task.Resources, err)
	}
	task.Template = "none"
	if err := TaskTemplate(dir, &task); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
}

// Where there are no images of Apptainer's, a template is refused by name.
func TestTemplatePlaces(t *testing.T) {
	task := jobs.Task{Template: "default"}
	for _, backend := range []string{jobs.BackendLocal, jobs.BackendSSH, jobs.BackendDocker} {
		err := refuse(&jobs.Place{Backend: backend}, wanted{template: task.Template})
		if jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "template") || !strings.Contains(err.Error(), backend) {
			t.Errorf("%s: %v", backend, err)
		}
	}
	if why := unfit(jobs.BackendDocker, &task.Place, wanted{template: task.Template}); !strings.Contains(why, "default is a SIF") {
		t.Error(why)
	}
	e := &Engine{}
	if _, err := e.envTemplate(jobs.EnvOptions{Template: "default", Place: jobs.Place{Login: &jobs.SSHSpec{Host: "far"}}}); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
	w, err := templates.FindWorkspace("", "default")
	if err != nil {
		t.Fatal(err)
	}
	o, err := e.envTemplate(jobs.EnvOptions{Template: w.Name, Place: jobs.Place{Resources: jobs.Resources{CPUs: 2}}})
	if err != nil || o.Resources.CPUs != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
