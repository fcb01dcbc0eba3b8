package task

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
	"berth/slurm/options"
)

func FuzzParse(f *testing.F) {
	for _, c := range refused {
		f.Add(headTOML + c.lines + "\n+++\n")
	}
	for _, c := range refusedFiles {
		if len(c.text) < 10_000 {
			f.Add(c.text)
		}
	}
	f.Add(headTOML + "done = [\"a\\nb\"]\n[terminal]\nbind = [\"~/a:/b:rw\", {source = \"c\"}]\nenv = [\"A=b\"]\nimage = \"x.sif\"\noverlay = \"o\"\n" +
		"[workspace]\nscope = [\"a\"]\n[slurm]\nextra = [\"--nice=3\"]\n[resources]\ncpus = 1\nmemory = \"1KiB\"\ntime = \"1ms\"\ngpus = 1\n+++\nx")
	f.Add(headYAML + "done:\n- |\n  a\n- [b, c]\nterminal: {bind: [/a], env: [A, B=c]}\nworkspace:\nslurm: {extra: [--nice]}\n---\nx")
	f.Setenv("HOME", "/home/ada")
	f.Fuzz(func(t *testing.T, text string) {
		task, err := Parse("/t/fix.md", []byte(text))
		if err != nil {
			var e *jobs.Error
			if !errors.As(err, &e) || e.Kind != jobs.KindUsage || !strings.HasPrefix(e.Msg, "/t/fix.md:") {
				t.Errorf("not a usage error with a place: %v", err)
			}
			for line := range strings.Lines(e.Msg) {
				if jobs.CheckText("", strings.TrimSuffix(line, "\n")) != nil {
					t.Errorf("control characters in %q", e.Msg)
				}
			}
			return
		}
		if string(task.Source) != text {
			t.Error("Source is not the file")
		}
		checkTask(t, task)
	})
}

// checkTask holds a task to what Parse promises.
func checkTask(t *testing.T, task jobs.Task) {
	t.Helper()
	need := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, task)
		}
	}
	line := func(s string) bool { return jobs.CheckText("", s) == nil }
	abs := func(s string) bool { return line(s) && filepath.IsAbs(s) && filepath.Clean(s) == s }
	command := func(c jobs.Command) {
		t.Helper()
		need((c.Shell == "") != (len(c.Argv) == 0), "command is one of two")
		for _, s := range append(slices.Clone(c.Argv), c.Shell) {
			need(line(strings.NewReplacer("\n", "", "\t", "").Replace(s)), "command text")
		}
		need(len(c.Argv) == 0 || c.Argv[0] != "", "program")
	}
	inside := func(list []string) {
		t.Helper()
		for _, s := range list {
			need(s != "" && line(s) && filepath.IsLocal(s), "inside the workspace")
		}
	}
	need(task.Name != "" && line(task.Name), "name")
	need(task.Prompt == "" || strings.HasSuffix(task.Prompt, "\n"), "prompt")
	command(task.Command)
	for _, c := range task.Done {
		command(c)
	}
	inside(task.Artifacts)
	if w := task.Workspace; w != nil {
		need(abs(w.Repo) && line(w.Base) && !strings.HasPrefix(w.Base, "-"), "workspace")
		inside(w.Scope)
	}
	r := task.Resources
	need(r.CPUs >= 0 && r.Nodes >= 0 && r.Memory >= 0 && r.Disk >= 0 && r.Time >= 0, "resources")
	need(line(r.GPUs), "gpus")
	p := task.Place
	need(slices.Contains([]string{"", "auto", "singularity", "docker", "local"}, p.Backend), "backend")
	need(p.Image == "" || abs(p.Image), "image")
	need(p.Overlay.Name == "" || overlayForm().MatchString(p.Overlay.Name), "overlay")
	for i, m := range p.Mounts {
		need(abs(m.Source) && abs(m.Destination), "bind")
		for _, k := range append(kept, "/") {
			need(m.Destination != k && !(k != "/" && strings.HasPrefix(m.Destination, k+"/")), "destination")
		}
		for _, other := range p.Mounts[:i] {
			need(other.Destination != m.Destination, "destinations differ")
		}
	}
	names := map[string]bool{}
	for _, e := range p.Env {
		name, value, _ := strings.Cut(e, "=")
		need(envName().MatchString(name) && envOwner(name) == "" && line(value) && !names[name], "env")
		names[name] = true
	}
	o := task.Slurm
	need(line(o.Partition) && line(o.Account) && line(o.QOS) && line(o.Constraint), "slurm")
	for _, e := range o.Extra {
		name, _, _ := strings.Cut(e, "=")
		need(line(e) && strings.HasPrefix(name, "--") && options.Full(name[2:]) == name[2:], "extra")
	}
}
