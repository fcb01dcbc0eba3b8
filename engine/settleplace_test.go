package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/backends/docker"
	"berth/jobs"
)

// dockerd is the backend docker with a health of the test's.
type dockerd struct {
	docker.Backend
	checked jobs.Checked
}

func (d *dockerd) Check(context.Context) jobs.Checked { return d.checked }

// TestDocker: when docker is chosen, and what it cannot give.
func TestDocker(t *testing.T) {
	gone := jobs.Checked{Health: jobs.Undetected, Reason: "no apptainer on the PATH"}
	down := jobs.Checked{Health: jobs.Unhealthy, Reason: "Cannot connect to the Docker daemon", Hint: "systemctl start docker"}
	well := jobs.Checked{Health: jobs.Healthy, Reason: "/usr/bin/docker"}
	for name, c := range map[string]struct {
		change       func(*jobs.Task)
		choice       jobs.Place
		apptainer    jobs.Checked
		docker       jobs.Checked
		want         string // the backend
		code         int
		says, absent string // in the notes or the error
	}{
		"by name":                        {choice: jobs.Place{Backend: "docker"}, docker: well, want: "docker", absent: "was chosen"},
		"auto, and apptainer is there":   {apptainer: well, docker: well, want: "singularity", change: func(t *jobs.Task) { t.Image = "SIF" }, absent: "was chosen"},
		"auto, and apptainer is not":     {apptainer: gone, docker: well, want: "docker", says: "backend docker was chosen (singularity: no apptainer on the PATH)"},
		"auto, and nothing is there":     {apptainer: gone, docker: down, code: 78, says: "singularity: no apptainer on the PATH; docker: Cannot connect"},
		"auto, and the image is a SIF":   {apptainer: gone, docker: well, code: 78, says: "docker: the image ./py.sif is a file", change: func(t *jobs.Task) { t.Reference = "./py.sif" }},
		"auto, and there is no image":    {apptainer: gone, docker: well, code: 78, says: "docker: the task names no image", change: func(t *jobs.Task) { t.Reference = "" }},
		"by name, and it is down":        {choice: jobs.Place{Backend: "docker"}, docker: down, code: 78, says: "Cannot connect"},
		"a SIF":                          {choice: jobs.Place{Backend: "docker"}, docker: well, code: 2, says: "is a file", change: func(t *jobs.Task) { t.Reference = "/py.sif" }},
		"no image":                       {choice: jobs.Place{Backend: "docker"}, docker: well, code: 2, says: "names no image", change: func(t *jobs.Task) { t.Reference = "" }},
		"a flag for an image":            {choice: jobs.Place{Backend: "docker"}, docker: well, code: 2, says: "cannot name an image", change: func(t *jobs.Task) { t.Reference = "--privileged" }},
		"overlay":                        {choice: jobs.Place{Backend: "docker"}, docker: well, code: 78, says: "[terminal] overlay", change: func(t *jobs.Task) { t.Overlay.Name = "x" }},
		"disk":                           {choice: jobs.Place{Backend: "docker"}, docker: well, code: 78, says: "[resources] disk", change: func(t *jobs.Task) { t.Resources.Disk = jobs.GiB }},
		"the daemon's socket":            {choice: jobs.Place{Backend: "docker"}, docker: well, code: 78, says: "socket", change: func(t *jobs.Task) { t.Mounts = []jobs.Mount{{Source: "/run/docker.sock", Destination: "/x"}} }},
		"on a cluster":                   {choice: jobs.Place{Backend: "docker", Scheduler: "slurm"}, docker: down, want: "docker", says: "outside of the job's cgroup"},
		"GPUs of a cluster":              {choice: jobs.Place{Backend: "docker", Scheduler: "slurm"}, docker: well, code: 78, says: "[resources] gpus", change: func(t *jobs.Task) { t.Resources.GPUs = "1" }},
		"auto on a cluster asks nobody":  {choice: jobs.Place{Scheduler: "slurm"}, apptainer: gone, docker: well, want: "singularity", change: func(t *jobs.Task) { t.Image = "SIF" }},
		"limits that docker itself hold": {choice: jobs.Place{Backend: "docker"}, docker: well, want: "docker", change: func(t *jobs.Task) { t.Resources = jobs.Resources{CPUs: 2, Memory: jobs.GiB} }},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			f := newFixture(t)
			f.container.checked = c.apptainer
			f.Backends = slices.Insert(f.Backends, 1, jobs.Backend(&dockerd{checked: c.docker}))
			if c.choice.Scheduler == "" {
				c.choice.Scheduler = "local"
			}
			work := task(func(w *jobs.Task) { w.Place, w.Reference = jobs.Place{Image: "/src/debian:12"}, "debian:12" })
			if c.change != nil {
				c.change(&work)
			}
			if work.Image == "SIF" {
				work.Image = f.sif
			}
			s, err := f.Plan(t.Context(), at(work, c.choice), Choice{}, false)
			if c.code != 0 {
				if err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || jobs.HintOf(err) == "" {
					t.Errorf("%v, code %d, hint %q", err, jobs.CodeOf(err), jobs.HintOf(err))
				}
				return
			}
			must(t, err)
			notes := strings.Join(s.Notes, "\n")
			if s.Backend != c.want || s.Level != jobs.LevelFS || !strings.Contains(notes, c.says) || c.absent != "" && strings.Contains(notes, c.absent) {
				t.Errorf("%s, level %s, notes %q", s.Backend, s.Level, notes)
			}
			if c.want != "docker" {
				return
			}
			if s.Image != "debian:12" {
				t.Errorf("image %s", s.Image)
			}
			l, err := f.launch(s, jobs.AttemptInfo{ID: "a", Name: "berth-fix-0123456789ab"}, "/adir", selected{node: "/bin/node", owner: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())})
			must(t, err)
			line := strings.Join(l.Argv, " ")
			for _, part := range []string{" -- docker run --rm -i --name berth-fix-0123456789ab ", fmt.Sprintf(" --user %d:%d ", os.Getuid(), os.Getgid()), " debian:12 guest"} {
				if !strings.Contains(line, part) {
					t.Errorf("no %q in %s", part, line)
				}
			}
			if c.change != nil && !strings.Contains(line, "--cpus 2 --memory 1073741824") {
				t.Error(line)
			}
		})
	}
}

// TestImageFile: a job and an environment refuse the same images, in the same words.
func TestImageFile(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, path, sif string)
		code int
		says string
	}{
		"missing":         {code: 3, says: "does not exist", make: func(*testing.T, string, string) {}},
		"no SIF":          {code: 78, says: "is not a SIF", make: func(t *testing.T, path, _ string) { must(t, os.WriteFile(path, []byte("text"), 0o600)) }},
		"a pipe":          {code: 78, says: "is not a SIF", make: func(t *testing.T, path, _ string) { must(t, unix.Mkfifo(path, 0o600)) }},
		"not unpacked":    {code: 78, says: "is no unpacked image", make: func(t *testing.T, path, _ string) { must(t, os.Mkdir(path, 0o700)) }},
		"an unpacked one": {make: func(t *testing.T, path, _ string) { must(t, os.MkdirAll(filepath.Join(path, ".singularity.d"), 0o700)) }},
		"a SIF":           {make: func(t *testing.T, path, sif string) { must(t, os.Link(sif, path)) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.container.checked = jobs.Checked{Health: jobs.Healthy}
			path := filepath.Join(t.TempDir(), "image")
			c.make(t, path, f.sif)
			_, job := f.Plan(t.Context(), at(task(func(w *jobs.Task) { w.Place = jobs.Place{Image: path} }), jobs.Place{Scheduler: "local"}), Choice{}, false)
			_, env := f.planEnv(t.Context(), "e", jobs.EnvOptions{Place: jobs.Place{Image: path}})
			if c.code == 0 {
				must(t, job)
				must(t, env)
				return
			}
			for _, err := range []error{job, env} {
				if err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), path+" "+c.says) || jobs.HintOf(err) == "" {
					t.Errorf("%v, code %d, hint %q", err, jobs.CodeOf(err), jobs.HintOf(err))
				}
			}
		})
	}
}
