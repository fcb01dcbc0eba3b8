package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/overlay"

	"github.com/google/go-cmp/cmp"
)

// TestChoose goes through the choice of scheduler and backend.
func TestChoose(t *testing.T) {
	const (
		slurm, local, sing = jobs.SchedulerSlurm, jobs.SchedulerLocal, jobs.BackendSingularity
	)
	gone := jobs.Checked{Health: jobs.Undetected, Reason: "no apptainer on the PATH"}
	sick := jobs.Checked{Health: jobs.Unhealthy, Reason: "it does not run"}
	for name, c := range map[string]struct {
		choice    jobs.Place
		backend   string // of the task
		slurm     jobs.Health
		container jobs.Checked
		dry       bool
		scheduler string
		want      string // the backend
		code      int
		text      string // in the error
	}{
		"auto, on a cluster":                  {scheduler: slurm, want: sing},
		"auto, slurm is down":                 {slurm: jobs.Unhealthy, scheduler: slurm, want: sing},
		"auto, no cluster":                    {slurm: jobs.Undetected, scheduler: local, want: sing},
		"the profile's":                       {choice: jobs.Place{Profile: jobs.Profile{Scheduler: local}}, scheduler: local, want: sing},
		"the profile says auto":               {choice: jobs.Place{Profile: jobs.Profile{Scheduler: "auto"}}, scheduler: slurm, want: sing},
		"the flag over the profile's":         {choice: jobs.Place{Scheduler: slurm, Profile: jobs.Profile{Scheduler: local}}, scheduler: slurm, want: sing},
		"the flag auto":                       {choice: jobs.Place{Scheduler: "auto", Backend: "auto"}, backend: "local", scheduler: slurm, want: sing},
		"the task's backend":                  {backend: "local", scheduler: slurm, want: "local"},
		"the flag over the task's":            {backend: "local", choice: jobs.Place{Backend: sing}, scheduler: slurm, want: sing},
		"dry asks nobody":                     {dry: true, slurm: jobs.Undetected, container: gone, scheduler: slurm, want: sing},
		"login nodes need no apptainer":       {container: gone, scheduler: slurm, want: sing},
		"no cluster and no apptainer":         {slurm: jobs.Undetected, container: gone, code: 78, text: "no apptainer on the PATH"},
		"no cluster and a sick apptainer":     {slurm: jobs.Undetected, container: sick, code: 78, text: "it does not run"},
		"apptainer by name, and it is absent": {choice: jobs.Place{Scheduler: local, Backend: sing}, container: gone, code: 78, text: "singularity cannot be used here"},
		"the bare host needs nothing":         {slurm: jobs.Undetected, container: gone, backend: "local", scheduler: local, want: "local"},
		"an unknown scheduler":                {choice: jobs.Place{Scheduler: "pbs"}, code: 2, text: "unknown scheduler pbs"},
		"an unknown backend":                  {choice: jobs.Place{Backend: "abacus"}, code: 2, text: "unknown backend abacus"},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			f := newFixture(t)
			f.slurm.Health = c.slurm
			if c.container.Health != "" {
				f.container.checked = c.container
			}
			work := task(func(w *jobs.Task) { w.Place = jobs.Place{Backend: c.backend, Image: f.sif} })
			s, err := f.Plan(t.Context(), at(work, c.choice), Choice{}, c.dry)
			if c.code != 0 {
				if s != nil && err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || jobs.HintOf(err) == "" {
					t.Errorf("%v, code %d, hint %q", err, jobs.CodeOf(err), jobs.HintOf(err))
				}
				return
			}
			must(t, err)
			if s.Scheduler != c.scheduler || s.Backend != c.want {
				t.Errorf("%s and %s", s.Scheduler, s.Backend)
			}
			if want := map[string]jobs.Level{"local": jobs.LevelNone, sing: jobs.LevelFS}[c.want]; s.Level != want {
				t.Errorf("level %s", s.Level)
			}
		})
	}
	f := newFixture(t)
	f.slurm.Health, f.queue.Health = jobs.Undetected, jobs.Undetected
	if _, err := f.Plan(t.Context(), task(), Choice{}, false); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
		t.Error(err)
	}
}

// TestPlanRefuses: an unavailable limit or place is an error.
func TestPlanRefuses(t *testing.T) {
	const sing = jobs.BackendSingularity
	set := func(change func(*jobs.Task)) func(*fixture, *jobs.Task) {
		return func(_ *fixture, t *jobs.Task) { change(t) }
	}
	for name, c := range map[string]struct {
		change func(f *fixture, t *jobs.Task)
		code   int
		text   string
	}{
		"no name":             {set(func(t *jobs.Task) { t.Name = "" }), 2, "needs a name"},
		"no command":          {set(func(t *jobs.Task) { t.Command = jobs.Command{} }), 2, "and a command"},
		"name with a newline": {set(func(t *jobs.Task) { t.Name = "a\n#SBATCH --wrap=x" }), 2, "the task's name holds a control character"},
		"overlay on the host": {set(func(t *jobs.Task) { t.Overlay.Name = "deps" }), 78, "[terminal] overlay"},
		"bind on the host":    {set(func(t *jobs.Task) { t.Mounts = []jobs.Mount{{Source: "/a", Destination: "/a"}} }), 78, "[terminal] bind"},
		"disk on the host":    {set(func(t *jobs.Task) { t.Resources.Disk = jobs.GiB }), 78, "[resources] disk"},
		"gpus here": {func(_ *fixture, t *jobs.Task) {
			t.Resources.GPUs, t.Scheduler = "1", "local"
		}, 78, "[resources] gpus"},
		"nodes here": {func(_ *fixture, t *jobs.Task) {
			t.Resources.Nodes, t.Scheduler = 2, "local"
		}, 78, "[resources] nodes"},
		"tasks here": {func(_ *fixture, t *jobs.Task) {
			t.Resources.Tasks, t.Scheduler = 2, "local"
		}, 78, "[resources] ntasks"},
		"fewer tasks than nodes": {set(func(t *jobs.Task) { t.Resources.Tasks, t.Resources.Nodes = 2, 3 }), 2, "fewer tasks than nodes (3)"},
		"tasks on an overlay": {func(f *fixture, t *jobs.Task) {
			t.Place, t.Resources.Tasks = jobs.Place{Backend: sing, Image: f.sif, Overlay: jobs.OverlaySpec{Name: "deps"}}, 2
		}, 78, "would all write the overlay deps"},
		"tasks that go on": {set(func(t *jobs.Task) {
			t.Resources.Tasks, t.Resources.Time, t.Resume = 2, time.Hour, &jobs.Resume{Attempts: 3}
		}), 78, "cannot be stopped at one point"},
		"forbidden tasks": {func(_ *fixture, t *jobs.Task) {
			t.Resources.Tasks, t.Profile = 2, jobs.Profile{Name: "site", Forbid: []string{"ntasks"}}
		}, 78, "forbids --ntasks"},
		"mpi alone": {set(func(t *jobs.Task) { t.Slurm.MPI = "pmix" }), 2, "has no other rank to find"},
		"forbidden cpus": {func(_ *fixture, t *jobs.Task) {
			t.Resources.CPUs, t.Profile = 2, jobs.Profile{Name: "site", Forbid: []string{"cpus-per-task"}}
		}, 78, "forbids --cpus-per-task"},
		"forbidden gpus": {func(_ *fixture, t *jobs.Task) {
			t.Resources.GPUs, t.Profile = "1", jobs.Profile{Name: "site", Forbid: []string{"gres", "gpus"}}
		}, 78, "[resources] gpus is not available"},
		"no image":        {set(func(t *jobs.Task) { t.Backend = sing }), 2, "names no image"},
		"image missing":   {set(func(t *jobs.Task) { t.Place = jobs.Place{Backend: sing, Image: "/none/x.sif"} }), 3, "/none/x.sif does not exist"},
		"image is no SIF": {set(func(t *jobs.Task) { t.Place = jobs.Place{Backend: sing, Image: "/proc/self/status"} }), 78, "is not a SIF"},
		"image is a tree": {set(func(t *jobs.Task) { t.Place = jobs.Place{Backend: sing, Image: "/tmp"} }), 78, "no unpacked image"},
		"overlay by path": {func(f *fixture, t *jobs.Task) {
			t.Place = jobs.Place{Backend: sing, Image: f.sif, Overlay: jobs.OverlaySpec{Name: "../x"}}
		}, 2, "cannot name an overlay"},
		"env missing":        {set(func(t *jobs.Task) { t.Env = []string{"ABSENT"} }), 2, "takes ABSENT from your environment"},
		"env without a name": {set(func(t *jobs.Task) { t.Env = []string{"=x"} }), 2, "cannot name an environment variable"},
		"env with a bad name": {func(f *fixture, t *jobs.Task) {
			f.environ["A B"] = "1"
			t.Env = []string{"A B"}
		}, 2, "cannot name an environment variable"},
		"bind with an escape": {func(f *fixture, t *jobs.Task) {
			t.Place = jobs.Place{Backend: sing, Image: f.sif, Mounts: []jobs.Mount{{Source: "/a\x1b[2J", Destination: "/a"}}}
		}, 2, `the bind source "/a\x1b[2J"`},
		"partition":      {set(func(t *jobs.Task) { t.Slurm.Partition = "a\nb" }), 2, "partition holds a control character"},
		"artifacts only": {set(func(t *jobs.Task) { t.Artifacts = []string{"*"} }), 2, "artifacts are taken from the workspace"},
		"no repository":  {set(func(t *jobs.Task) { t.Workspace = &jobs.Workspace{Repo: "/proc/self"} }), 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			work := task()
			c.change(f, &work)
			_, err := f.Plan(t.Context(), work, Choice{}, false)
			if err == nil || jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v, code %d", err, jobs.CodeOf(err))
			}
			if jobs.HintOf(err) == "" && name != "no name" && name != "no command" {
				t.Errorf("no hint for %v", err)
			}
			if left := f.files(); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// The state directory is refused before anything waits for a node, for jobs and
// for environments.
func TestPlanPrivate(t *testing.T) {
	f := newFixture(t)
	home := f.Store.Home()
	for source, code := range map[string]int{home: jobs.CodeConfig, filepath.Join(home, "jobs"): jobs.CodeConfig, filepath.Dir(home): 0} {
		if err := os.MkdirAll(source, 0o700); err != nil {
			t.Fatal(err)
		}
		work := task(func(w *jobs.Task) {
			w.Place = jobs.Place{Image: f.sif, Mounts: []jobs.Mount{{Source: source, Destination: "/x"}}}
		})
		if _, err := f.Plan(t.Context(), work, Choice{}, false); code != 0 && jobs.CodeOf(err) != code || code == 0 && err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestPlan(t *testing.T) {
	f := newFixture(t)
	site := jobs.Profile{Name: "site", Slurm: jobs.SlurmOptions{Partition: "batch", Account: "proj", Extra: []string{"--exclusive"}}, Forbid: []string{"mem", "time"}, Image: f.sif}
	s, err := f.Plan(t.Context(), task(func(w *jobs.Task) {
		w.Place = jobs.Place{Profile: site, Mounts: []jobs.Mount{{Source: "/data/of/nodes", Destination: "/data"}}, Env: []string{"A=1=2", "TOKEN", "EMPTY="}}
		w.Slurm = jobs.SlurmOptions{Partition: "long", QOS: "low", Extra: []string{"--nice"}}
		w.Resources = jobs.Resources{CPUs: 4, Memory: jobs.GiB, Time: 90}
		w.Prompt = "canary"
		w.Done = []jobs.Command{{Shell: "make check"}}
	}), Choice{}, false)
	must(t, err)
	want := &jobs.Spec{
		Version: 1, ID: s.ID, Name: "Fix the parser", Slug: "fix-the-parser", Command: jobs.Command{Shell: "make test"}, Prompt: true, PromptBytes: 6, ImageSum: sumOf(t, f.sif), EnvNames: []string{"TOKEN"}, Done: []jobs.Command{{Shell: "make check"}}, Created: f.now(), User: s.User, Host: s.Host, Notes: []string{
			"--mem is not sent to the scheduler: the profile site forbids it; the runner watches [resources] memory",
			"--time is not sent to the scheduler: the profile site forbids it; the runner watches [resources] time",
			"the bind source /data/of/nodes does not exist on this machine: the job needs it where it runs",
		},
		Place: jobs.Place{
			Resources: jobs.Resources{CPUs: 4, Memory: jobs.GiB, Time: 90}, Scheduler: "slurm", Backend: "singularity", Level: jobs.LevelFS, Image: f.sif, Overlay: jobs.OverlaySpec{Driver: jobs.DriverFuse, Why: "no profile says what was found right"}, Mounts: []jobs.Mount{{Source: "/data/of/nodes", Destination: "/data"}}, Env: []string{"A=1=2", "EMPTY="}, Slurm: jobs.SlurmOptions{Partition: "long", Account: "proj", QOS: "low", Extra: []string{"--exclusive", "--nice"}}, Profile: site,
		},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	if !jobs.ValidID(s.ID) || s.User == "" || s.Host == "" {
		t.Errorf("%q, %q, %q", s.ID, s.User, s.Host)
	}
	if len(site.Slurm.Extra) != 1 {
		t.Error("the profile was changed")
	}
}

func TestPlanNotes(t *testing.T) {
	f := newFixture(t)
	if s := f.plan(at(task(func(w *jobs.Task) { w.Resources.Nodes = 2 }), jobs.Place{Profile: jobs.Profile{Slurm: jobs.SlurmOptions{MPI: "pmix"}}}), Choice{}); !strings.Contains(strings.Join(s.Notes, " "), "runs once, on the first of the 2 nodes") || s.Slurm.MPI != "" {
		t.Errorf("%q, mpi %q", s.Notes, s.Slurm.MPI)
	}
	s := f.plan(task(), Choice{})
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "no containment") {
		t.Errorf("%q", s.Notes)
	}
	there := t.TempDir()
	s = f.plan(task(func(w *jobs.Task) {
		w.Place = jobs.Place{Backend: "singularity", Image: f.sif, Mounts: []jobs.Mount{{Source: there, Destination: "/a"}, {Source: there + "/none", Destination: "/b"}}}
	}), Choice{})
	if want := "the bind source " + there + "/none does not exist on this machine: the job needs it where it runs"; strings.Join(s.Notes, "\n") != want {
		t.Errorf("%q", s.Notes)
	}
	s = f.plan(task(func(w *jobs.Task) { w.Image = "/x.sif" }), Choice{})
	if len(s.Notes) != 2 || !strings.Contains(s.Notes[1], "/x.sif is not used") || s.Image != "" {
		t.Errorf("%q", s.Notes)
	}
}

// TestOverlayDriver: the driver is settled at submit, so that the script shows
// the true command line.
func TestOverlayDriver(t *testing.T) {
	for name, c := range map[string]struct {
		overlay string
		profile string
		disk    jobs.Bytes
		memory  jobs.Bytes
		mark    string
		stage   string
		want    string
		code    int
	}{
		"never unpacked":           {overlay: "deps", stage: jobs.StageNever, mark: `{"version":1,"driver":"kernel"}`, code: 78},
		"no image so small":        {disk: jobs.MiB, code: 2},
		"thrown away":              {want: jobs.DriverFuse},
		"thrown away, of a size":   {disk: jobs.GiB, want: jobs.DriverExt3},
		"the profile's":            {profile: jobs.DriverExt3, want: jobs.DriverExt3},
		"the profile's, by trying": {profile: jobs.DriverKernel, want: jobs.DriverKernel},
		"with enough to unpack":    {profile: jobs.DriverKernel, memory: jobs.GiB, want: jobs.DriverKernel},
		"too small to unpack":      {profile: jobs.DriverKernel, memory: 256 * jobs.MiB, want: jobs.DriverFuse},
		"a named one":              {overlay: "deps", profile: jobs.DriverKernel, want: jobs.DriverKernel},
		"its mark is kernel":       {overlay: "deps", memory: 256 * jobs.MiB, mark: `{"version":1,"driver":"kernel"}`, want: jobs.DriverKernel},
		"a size and the profile":   {profile: jobs.DriverFuse, disk: jobs.GiB, want: jobs.DriverFuse},
		"its mark":                 {overlay: "deps", mark: `{"version":1,"driver":"ext3"}`, want: jobs.DriverExt3},
		"its mark over all":        {overlay: "deps", profile: jobs.DriverExt3, mark: `{"version":1,"driver":"fuse"}`, want: jobs.DriverFuse},
		"the same size":            {overlay: "deps", disk: jobs.GiB, mark: `{"version":1,"driver":"ext3","size_bytes":1073741824}`, want: jobs.DriverExt3},
		"another size":             {overlay: "deps", disk: 2 * jobs.GiB, mark: `{"version":1,"driver":"ext3","size_bytes":1073741824}`, code: 2},
		"of another image":         {overlay: "deps", mark: `{"version":1,"driver":"fuse","image":"/a.sif","image_id":"sif:0"}`, code: 78},
		"a size for a directory":   {overlay: "deps", disk: jobs.GiB, mark: `{"version":1,"driver":"fuse"}`, want: jobs.DriverFuse},
		"a mark that is no mark":   {overlay: "deps", mark: `{`, code: 78},
		"a mark of a later schema": {overlay: "deps", mark: `{"version":9,"driver":"magic"}`, code: 78},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			f := newFixture(t)
			if c.mark != "" {
				dir := filepath.Join(f.Store.Overlays(), "deps")
				must(t, os.MkdirAll(dir, 0o700))
				must(t, os.WriteFile(filepath.Join(dir, "mark.json"), []byte(c.mark), 0o600))
			}
			s, err := f.Plan(t.Context(), task(func(w *jobs.Task) {
				w.Place = jobs.Place{Image: f.sif, Overlay: jobs.OverlaySpec{Name: c.overlay}, Stage: c.stage}
				w.Resources.Disk, w.Resources.Memory = c.disk, c.memory
				w.Profile.Overlay = c.profile
			}), Choice{}, false)
			if jobs.CodeOf(err) != c.code || err != nil && jobs.HintOf(err) == "" {
				t.Fatalf("%v, code %d", err, jobs.CodeOf(err))
			}
			if err == nil && (s.Overlay.Driver != c.want || s.Overlay.Size != c.disk || s.Overlay.Name != c.overlay || s.Overlay.Why == "") {
				t.Errorf("%+v", s.Overlay)
			}
		})
	}
}

// TestLaunch: what stands in the job script.
func TestLaunch(t *testing.T) {
	f := newFixture(t)
	s := f.plan(task(func(w *jobs.Task) { w.Resources.GPUs = "1" }), Choice{})
	s.Workspace = &jobs.WorkspaceSpec{Repo: "/repo"}
	s.Backend, s.Image = jobs.BackendSingularity, f.sif
	info, err := attemptInfo(s, "", f.now())
	must(t, err)
	here := selected{node: "/bin/node", who: identity()}
	l, err := f.launch(s, info, "/state/attempts/0001", here)
	must(t, err)
	want := []string{"/bin/node", "runner", "--attempt", "/state/attempts/0001", "--", jobs.PlaceholderNode, "guest"} // the fake's container is the guest itself
	if d := cmp.Diff(want, l.Argv); d != "" {
		t.Error(d)
	}
	if l.Name != info.Name || l.Attempt != info.ID || l.Identity.User == "" || l.Identity.Shell == "" {
		t.Errorf("%+v", l)
	}
	text := strings.Join(l.Comment, "\n")
	for _, part := range []string{jobs.Short(s.ID), "Fix the parser", jobs.BackendSingularity, "image " + f.sif, "no profile"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in the comment\n%s", part, text)
		}
	}
	s.Profile = jobs.Profile{Name: "site", Versions: jobs.Versions{Slurm: "24.11"}}
	l, err = f.launch(s, info, "/x", here)
	must(t, err)
	if got := l.Comment[len(l.Comment)-1]; got != "profile site: slurm 24.11, apptainer of unknown version" {
		t.Error(got)
	}
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestPlanUnpacked: a directory is an image, over which fuse-overlayfs is not
// right.
func TestPlanUnpacked(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "sandbox")
	must(t, os.MkdirAll(filepath.Join(dir, "etc"), 0o700))
	plan := func(p jobs.Profile, change func(*jobs.Task)) (*jobs.Spec, error) {
		return f.Plan(t.Context(), task(func(w *jobs.Task) {
			w.Place = jobs.Place{Image: dir, Profile: p}
			if change != nil {
				change(w)
			}
		}), Choice{}, false)
	}
	if _, err := plan(jobs.Profile{}, nil); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "no unpacked image") || jobs.HintOf(err) == "" {
		t.Errorf("any directory: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "usr"), 0o700))
	id, err := overlay.DirID(dir)
	must(t, err)
	for name, c := range map[string]struct {
		profile string
		disk    jobs.Bytes
		driver  string
	}{"alone": {driver: jobs.DriverKernel}, "fuse": {profile: jobs.DriverFuse, driver: jobs.DriverKernel}, "ext3": {profile: jobs.DriverExt3, driver: jobs.DriverExt3}, "size": {disk: jobs.GiB, driver: jobs.DriverExt3}} {
		s, err := plan(jobs.Profile{Overlay: c.profile}, func(w *jobs.Task) { w.Resources.Disk, w.Resources.Memory = c.disk, 64*jobs.MiB })
		if err != nil || s.Image != dir || s.ImageDir != id || s.ImageSum != "" || s.Overlay.Driver != c.driver {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	deps := filepath.Join(f.Store.Overlays(), "deps")
	must(t, os.MkdirAll(deps, 0o700))
	must(t, os.WriteFile(filepath.Join(deps, "mark.json"), []byte(`{"version":1,"driver":"fuse"}`), 0o600))
	if _, err := plan(jobs.Profile{}, func(w *jobs.Task) { w.Overlay.Name = "deps" }); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) != "berth overlay convert deps --driver kernel" {
		t.Errorf("over a layer of fuse: %v", err)
	}
}

// TestHintNoBackend: where the machine has no container program, its cluster is the
// way that is open.
func TestHintNoBackend(t *testing.T) {
	f := newFixture(t)
	f.container.checked = jobs.Checked{Health: jobs.Undetected, Reason: "no apptainer"}
	for _, health := range []jobs.Health{jobs.Healthy, jobs.Undetected} {
		f.slurm.Health = health
		_, err := f.Environment(t.Context(), jobs.EnvOptions{Place: jobs.Place{Image: f.sif}})
		if hint := jobs.HintOf(err); !strings.Contains(hint, "--backend local") || strings.Contains(hint, "--scheduler "+jobs.SchedulerSlurm) != (health == jobs.Healthy) {
			t.Errorf("%s: %v, hint %q", health, err, hint)
		}
	}
}
