package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/config/keys"
	"berth/jobs"
)

// refused loads a hostile project's file and wants it refused, with the line
// and words, and gives the hint.
func (w world) refused(t *testing.T, project string, want ...string) string {
	t.Helper()
	w.write(t, w.proj, project)
	_, err := Load(w.src)
	if err == nil {
		t.Errorf("accepted:\n%s", project)
		return ""
	}
	for _, s := range append(want, ProjectFile+":") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("no %q in: %v\n%s", s, err, project)
		}
	}
	return jobs.HintOf(err)
}

func (w world) accepted(t *testing.T, project string) *Config {
	t.Helper()
	w.write(t, w.proj, project)
	c, err := Load(w.src)
	if err != nil {
		t.Errorf("%v\n%s", err, project)
	}
	return c
}

// TestAttacks: what a cloned repository tries.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	for _, a := range []struct{ file, says string }{
		{"[terminal]\nbackend = \"local\"\n", ":2: terminal.backend"},
		{"[terminal]\nbackend = \"ssh\"\nssh_host = \"evil.example\"\n", ":3: terminal.ssh_host"},
		{"[terminal]\nssh_key = \"~/.ssh/id_ed25519\"\n", ":2: terminal.ssh_key"},
		{"[terminal]\nbind = [\"~/.ssh:/keys\"]\n", ":2: terminal.bind"},
		{"[terminal]\nhost_sockets = [\"munge\"]\n", ":2: terminal.host_sockets"},
		{"[terminal]\ndocker_volumes = [\"/:/host\"]\n", ":2: terminal.docker_volumes"},
		{"[terminal]\ndocker_mount_cwd_to_workspace = true\n", ":2: terminal.docker_mount_cwd"},
		{"[terminal]\ndocker_extra_args = [\"--publish=0.0.0.0:80:80\"]\n", ":2: terminal.docker_extra_args"},
		{"[terminal]\ndocker_run_as_host_user = true\n", ":2: terminal.docker_run_as_host_user"},
		{"[terminal]\nenv_passthrough = [\"GITHUB_TOKEN\"]\n", ":2: terminal.env_passthrough"},
		{"[terminal]\ndocker_forward_env = [\"AWS_SECRET_ACCESS_KEY\"]\n", ":2: terminal.docker_forward_env"},
		{"[terminal]\ndocker_binary = \"./docker\"\n", ":2: terminal.docker_binary"},
		{"[terminal]\nscratch_dir = \"/home/ada/.ssh\"\n", ":2: terminal.scratch_dir"},
		{"[terminal]\nsingularity_image = \"/\"\n", ":2: terminal.singularity_image"},
		{"[terminal]\nsingularity_image = \"../../.ssh\"\n", ":2: terminal.singularity_image"},
		{"[terminal]\nsingularity_image = \"docker-archive:///etc/shadow\"\n", ":2: terminal.singularity_image"},
		{"[terminal]\nsingularity_image = \"file:///\"\n", ":2: terminal.singularity_image"},
		{"[terminal]\ncontainer_memory = 0\n", ":2: terminal.container_memory"},
		{"[terminal]\ncontainer_cpu = 0\n", ":2: terminal.container_cpu"},
		{"[terminal]\nlifetime_seconds = 0\n", ":2: terminal.lifetime_seconds"},
		{"[terminal]\nlifetime_seconds = \"25h\"\n", ":2: terminal.lifetime_seconds"},
		{"[terminal]\ncontainer_persistent = false\n", ":2: terminal.container_persistent"},
		{"[terminal.daytona]\napi_url = \"https://evil.example\"\n", ":2: terminal.daytona.api_url"},
		{"[terminal.daytona]\napi_token = \"x\"\n", ":2: terminal.daytona.api_token"},
		{"[terminal.daytona]\nauto_destroy = true\n", ":2: terminal.daytona.auto_destroy"},
		{"[notify]\nmail = \"evil@example.org\"\n", ":2: notify.mail"},
		{"[notify]\ncommand = [\"./evil\"]\n", ":2: notify.command"},
		{"[notify]\nwebhook_file = \"./hook\"\n", ":2: notify.webhook_file"},
		{"profile = \"./evil.toml\"\n", ":1: profile"},
		{"[slurm]\naccount = \"somebody-elses\"\n", ":2: slurm.account"},
		{"[slurm]\nextra = [\"--mail-user=evil@example.org\"]\n", ":2: slurm.extra"},
		{"[slurm]\nextra = [\"--container-mounts=/:/host\"]\n", ":2: slurm.extra"},
		{"[slurm]\nextra = [\"--bbf=/home/ada/x\"]\n", ":2: slurm.extra"},
		{"[slurm]\nextra = [\"--wrap=id\"]\n", ":2: slurm.extra[0] must not set --wrap"},
		{"[slurm]\npartition = \"x\\n#SBATCH --uid=0\"\n", ":2: slurm.partition holds a control character"},
		{"[targets.mine]\nbackend = \"local\"\n", ":1: key \"targets\" belongs into your own"},
		{"[projects.\"/\"]\nallow = [\"paths\"]\n", ":1: key \"projects\" belongs into your own"},
		{"[max]\ncpus = 1000\n", ":1: key \"max\" belongs into your own"},
		{"allow = [\"paths\"]\n", ":1: key \"allow\" belongs into your own"},
		{"include = \"/etc/passwd\"\n", ":1: unknown key \"include\""},
		{"terminal = {backend = \"local\"}\n", ":1: terminal.backend"},
		{"terminal.backend = \"local\"\n", ":1: terminal.backend"},
		{"\"terminal\".\"back\\u0065nd\" = \"local\"\n", ":1: terminal.backend"},
	} {
		hint := w.refused(t, a.file, a.says)
		if strings.Contains(hint, "config set") && !strings.Contains(hint, fmt.Sprintf("'projects.%q.allow'", filepath.Dir(w.proj))) {
			t.Errorf("hint %q", hint)
		}
	}
	// What it may do.
	for _, ok := range []string{
		"[terminal]\nbackend = \"docker\"\ndocker_image = \"evil/image\"\ndocker_network = false\nnetwork = \"none\"\ngpu = \"nvidia\"\n",
		"[terminal]\nbackend = \"singularity\"\nsingularity_image = \"docker://debian:12\"\ncwd = \"/srv\"\ntimeout = 0\ncontainer_memory = \"64GiB\"\ncontainer_cpu = 8\n",
		"[terminal.daytona]\nauto_destroy = false\n",
		"[terminal]\nsingularity_image = \"images/base.sif\"\ndocker_env = {A = \"b\"}\ndocker_volumes = []\nenv_passthrough = []\n",
		"profile = \"other\"\nscheduler = \"slurm\"\n[slurm]\npartition = \"gpu\"\nqos = \"x\"\n[resources]\ngpus = 8\ntime = \"9h\"\n",
	} {
		w.accepted(t, ok)
	}
}

// TestAttackTemplate: a template of the user's brings the user's variables and
// limits with it, and is not the project's to choose.
func TestAttackTemplate(t *testing.T) {
	w := newWorld(t)
	w.src.Templates = t.TempDir()
	for name, text := range map[string]string{
		"tokens": "image = \"docker://debian:12\"\nenv = [\"GITHUB_TOKEN\"]\n", "large": "image = \"docker://debian:12\"\n[resources]\nmemory = \"900GiB\"\n",
		"plain": "image = \"docker://debian:12\"\nenv = [\"LANG\"]\n[resources]\nmemory = \"1GiB\"\n", "broken": "image = 7\n",
	} {
		w.write(t, filepath.Join(w.src.Templates, name+".toml"), text)
	}
	choose := func(name string) string { return "[terminal]\ntemplate = " + literal(name) + "\n" }
	own := "[terminal]\nenv_passthrough = [\"LANG\"]\n[max]\nmemory = \"2GiB\"\n"
	w.write(t, w.user, own)
	for _, name := range []string{"tokens", "large", "broken"} {
		if hint := w.refused(t, choose(name), ":2: terminal.template"); !strings.Contains(hint, " env") {
			t.Errorf("%s: hint %q", name, hint)
		}
	}
	w.refused(t, choose("../x"), "terminal.template")
	for _, name := range []string{"plain", "minimal", "none-such"} {
		w.accepted(t, choose(name))
	}
	w.write(t, w.user, own+fmt.Sprintf("[projects.%q]\nallow = [\"env\"]\n", filepath.Dir(w.proj)))
	w.accepted(t, choose("tokens"))
	w.write(t, w.user, choose("tokens")) // what holds anyway
	w.accepted(t, choose("tokens"))
}

// TestAttackOffline: who asks no registry goes on asking none.
func TestAttackOffline(t *testing.T) {
	w := newWorld(t)
	w.accepted(t, "offline = false\n")
	w.accepted(t, "offline = true\n")
	w.write(t, w.user, "offline = true\n")
	w.refused(t, "offline = false\n", ":1: offline = false")
	w.accepted(t, "offline = true\n")
}

// TestAttackLogin: a login that goes to whichever registry is asked does not go to
// the project's.
func TestAttackLogin(t *testing.T) {
	w := newWorld(t)
	image := func(ref string) string { return "[terminal]\nsingularity_image = " + literal(ref) + "\n" }
	w.accepted(t, image("docker://evil.example/x:1"))
	for _, name := range []string{"APPTAINER_DOCKER_PASSWORD", "SINGULARITY_DOCKER_PASSWORD"} {
		w.src.Environ = []string{name + "=pw-canary", "APPTAINER_DOCKER_USERNAME=ada"}
		w.write(t, w.user, "")
		for _, ref := range []string{"docker://evil.example/x:1", "oras://evil.example/x:1", "docker://127.0.0.1:5000/x:1"} {
			hint := w.refused(t, image(ref), ":2: terminal.singularity_image", "which would be sent your "+name)
			if !strings.Contains(hint, " paths") || strings.Contains(hint, "pw-canary") {
				t.Errorf("hint %q", hint)
			}
		}
		w.accepted(t, image("docker://python:3.13")) // Docker Hub
		w.accepted(t, image("library://org/col/x:1"))
		w.write(t, w.user, image("docker://hub.example/mine:1"))
		w.accepted(t, image("docker://hub.example/other:2"))
		w.write(t, w.user, fmt.Sprintf("[projects.%q]\nallow = [\"paths\"]\n", filepath.Dir(w.proj)))
		w.accepted(t, image("docker://evil.example/x:1"))
	}
}

// TestStrongerImage: of an image and a template the one counts that stands
// higher.
func TestStrongerImage(t *testing.T) {
	w := newWorld(t)
	used := func(c *Config) (image, template string) {
		t.Helper()
		task := jobs.Task{Place: jobs.Place{Backend: jobs.BackendSingularity}}
		if _, err := c.Task(&task); err != nil {
			t.Fatal(err)
		}
		o, _, err := c.forBackend(jobs.BackendSingularity)
		if err != nil || o.Image != task.Image || o.Template != task.Template {
			t.Errorf("%+v, %+v, %v", o, task.Place, err)
		}
		return o.Image, o.Template
	}
	image := "[terminal]\nsingularity_image = \"docker://debian:12\"\n"
	w.write(t, w.user, image)
	if i, tmpl := used(w.accepted(t, "[terminal]\ntemplate = \"minimal\"\n")); i != "" || tmpl != "minimal" {
		t.Error(i, tmpl)
	}
	w.write(t, w.user, "[terminal]\ntemplate = \"minimal\"\n")
	if i, tmpl := used(w.accepted(t, image)); i != "docker://debian:12" || tmpl != "" {
		t.Error(i, tmpl)
	}
	w.src.Environ = []string{"TERMINAL_SINGULARITY_IMAGE=docker://alpine:3"}
	if i, tmpl := used(w.accepted(t, "[terminal]\ntemplate = \"minimal\"\n")); i != "docker://alpine:3" || tmpl != "" {
		t.Error(i, tmpl)
	}
	// Of the images of two backends a job has that of its own; both, where it is still to be chosen.
	w.src.Environ = append(w.src.Environ, "TERMINAL_DOCKER_IMAGE=debian:12")
	for backend, want := range map[string][2]string{
		jobs.BackendSingularity: {"docker://alpine:3", ""}, jobs.BackendDocker: {"", "debian:12"}, "": {"docker://alpine:3", "debian:12"}, jobs.BackendLocal: {},
	} {
		task := jobs.Task{Place: jobs.Place{Backend: backend}}
		if _, err := w.load(t).Task(&task); err != nil || [2]string{task.Image, task.Reference} != want {
			t.Errorf("%q: %q, %q, %v", backend, task.Image, task.Reference, err)
		}
	}
}

// TestHostileName: nothing that a directory is called may run when the hint is
// copied.
func TestHostileName(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(filepath.Dir(w.proj), "x'$(touch ran)'\x1b[2J")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.src.Dir, w.proj = dir, filepath.Join(dir, ProjectFile)
	hint := w.refused(t, "[terminal]\nbackend = \"local\"\n")
	if strings.Contains(hint, "config set") || strings.Contains(hint, "\x1b") || !strings.Contains(hint, `allow = ["backend"]`) {
		t.Errorf("%q", hint)
	}
}

// TestImageInside: an image inside the project is the project's own; a link
// that leads out of it is not.
func TestImageInside(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Dir(w.proj)
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"out": "/", "up": w.src.Home, "keys.sif": w.src.Home, "node": "/only-on-a-node"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	w.accepted(t, "[terminal]\nsingularity_image = \"rootfs\"\n")
	for _, image := range []string{"out", "out/", "up/.config", "keys.sif", "rootfs/../../..", "~/.config", "node", "node/spool"} {
		w.refused(t, "[terminal]\nsingularity_image = "+literal(image)+"\n", ":2: terminal.singularity_image")
	}
	w.accepted(t, "[terminal]\nsingularity_image = \"build/later.sif\"\n")
	shared := filepath.Join(w.src.Home, "shared.sif")
	w.write(t, shared, "x")
	w.accepted(t, "[terminal]\nsingularity_image = "+literal(shared)+"\n")
}

// TestRaise: what the user has shut stays shut.
func TestRaise(t *testing.T) {
	w := newWorld(t)
	for _, a := range []struct{ user, project, says string }{
		{"[terminal]\ndocker_network = false\n", "[terminal]\ndocker_network = true\n", "terminal.docker_network"},
		// Another backend would not have what is shut on this one.
		{"[terminal]\nbackend = \"docker\"\ndocker_network = false\n", "[terminal]\nbackend = \"singularity\"\n", "terminal.backend"},
		{"[terminal]\nbackend = \"docker\"\ndocker_network = false\n", "[terminal]\nbackend = \"auto\"\n", "terminal.backend"},
		// What runs on another host must not come here.
		{"[terminal]\nbackend = \"ssh\"\nssh_host = \"h\"\n", "[terminal]\nbackend = \"docker\"\n", "terminal.backend"},
		{"scheduler = \"slurm\"\n", "\nscheduler = \"local\"\n", "scheduler"},
		{"target = \"far\"\n[targets.far]\nscheduler = \"slurm\"\nhost = \"lake\"\n", "\nscheduler = \"auto\"\n", "scheduler"},
		{"target = \"far\"\n[targets.far]\nscheduler = \"slurm\"\nhost = \"lake\"\n[targets.box]\nbackend = \"docker\"\n", "\ntarget = \"box\"\n", "it chooses the target box, and with that scheduler"},
		{"[terminal]\nssh_host = \"h\"\n", "[terminal]\nssh_host = \"evil\"\n", "terminal.ssh_host"},
		{"[terminal]\nbind = [\"/data\"]\n", "[terminal]\nbind = [\"/data:/data:rw\"]\n", "terminal.bind"},
		{"[max]\ncpus = 4\n", "[terminal]\ncontainer_cpu = 5\n", "terminal.container_cpu"},
		{"[max]\ncpus = 4\n", "[resources]\ncpus = 5\n", "resources.cpus"},
		{"[max]\nmemory = \"8GiB\"\n", "[terminal]\ncontainer_memory = \"9GiB\"\n", "terminal.container_memory"},
		{"[max]\nmemory = \"8GiB\"\n", "[resources]\nmemory = \"9GiB\"\n", "resources.memory"},
		{"[max]\ndisk = \"8GiB\"\n", "[resources]\ndisk = \"9GiB\"\n", "resources.disk"},
		{"[max]\ndisk = \"8GiB\"\n", "[terminal]\ncontainer_disk = \"9GiB\"\n", "terminal.container_disk"},
		{"[terminal]\ncontainer_disk = \"8GiB\"\n", "[terminal]\ncontainer_disk = 0\n", "terminal.container_disk"},
		{"[max]\ntime = \"1h\"\n", "[resources]\ntime = \"2h\"\n", "resources.time"},
		{"[max]\ngpus = 1\n", "[resources]\ngpus = \"a100:2\"\n", "resources.gpus"},
		{"[max]\nnodes = 1\n", "[resources]\nnodes = 2\n", "resources.nodes"},
	} {
		w.write(t, w.user, a.user)
		w.refused(t, a.project, ":2: "+a.says)
	}
	// What is up to the bound, or what the user has, is fine.
	for _, a := range [][2]string{
		{"[max]\ncpus = 4\nmemory = \"8GiB\"\n", "[resources]\ncpus = 4\nmemory = \"8GiB\"\n"},
		{"[terminal]\nbackend = \"local\"\n", "[terminal]\nbackend = \"local\"\n"},
		{"[terminal]\nbackend = \"local\"\n", "[terminal]\nbackend = \"docker\"\n"},
		{"[terminal]\nbind = [\"/data\", \"/b\"]\n", "[terminal]\nbind = [\"/data\"]\n"},
		{"[terminal]\ncontainer_memory = 0\n", "[terminal]\ncontainer_memory = 0\n"},
	} {
		w.write(t, w.user, a[0])
		w.accepted(t, a[1])
	}
	// The profile may have sent it to the cluster, too.
	w.write(t, filepath.Join(w.src.Profiles[0], "lake.toml"), "scheduler = \"slurm\"\n")
	w.write(t, w.user, "profile = \"lake\"\n")
	w.refused(t, "\nscheduler = \"local\"\n", ":2: scheduler")
	w.accepted(t, "scheduler = \"slurm\"\n")
	w.write(t, w.user, "")
	w.accepted(t, "scheduler = \"local\"\n")
	w.src.Environ = []string{"BERTH_PROFILE=lake"}
	w.refused(t, "\nscheduler = \"local\"\n", ":2: scheduler")
	w.src.Environ = nil
	// The network stays off whichever of the two ways the user has shut it.
	w.write(t, w.user, "[terminal]\nnetwork = \"none\"\n")
	c := w.accepted(t, "[terminal]\nbackend = \"docker\"\ndocker_network = true\n")
	if o, _, err := c.forBackend(jobs.BackendDocker); err != nil || o.Network.Mode != "none" {
		t.Errorf("%v, %v", o.Network, err)
	}
	task := jobs.Task{Place: jobs.Place{Backend: jobs.BackendDocker, Image: "debian:12"}}
	if _, err := c.Task(&task); err != nil || task.Network.Mode != "none" {
		t.Errorf("a job has the network %v: %v", task.Network, err)
	}
}

// TestNetworkBound: what a project says of the network is a bound beside what the user
// says, also over a flag or a task file, and never takes its place.
func TestNetworkBound(t *testing.T) {
	w := newWorld(t)
	origin := "project " + w.proj
	for name, c := range map[string]struct {
		user, project string
		task, want    jobs.Network
	}{
		"nothing wider": {user: "[terminal]\nnetwork = \"none\"\n", project: "[terminal]\nnetwork = \"host\"\n",
			want: jobs.Network{Mode: "none", Bounds: []jobs.NetworkBound{{Origin: origin, Mode: "open"}}}},
		"another list": {user: "[network]\nallow = [\"a.example\"]\n", project: "[network]\nallow = [\"b.example\"]\n",
			want: jobs.Network{Mode: "allow", Allow: []string{"a.example"}, Bounds: []jobs.NetworkBound{{Origin: origin, Mode: "allow", Allow: []string{"b.example"}}}}},
		"none over the task's list": {project: "[network]\nmode = \"none\"\n", task: jobs.Network{Mode: "allow", Allow: []string{"a.example"}},
			want: jobs.Network{Mode: "none", Asked: "allow", Allow: []string{"a.example"}, Bounds: []jobs.NetworkBound{{Origin: origin, Mode: "none"}}}},
		"off for docker": {project: "[terminal]\ndocker_network = false\n", task: jobs.Network{Mode: "open"},
			want: jobs.Network{Mode: "none", Asked: "open", Bounds: []jobs.NetworkBound{{Origin: origin, Mode: "none"}}}},
		"a longer deny": {user: "[network]\nmode = \"allow\"\ndeny = [\"a.example\"]\n", project: "[network]\ndeny = [\"b.example\"]\nopaque = [\"c.example:1\"]\n",
			task: jobs.Network{Deny: []string{"d.example"}}, want: jobs.Network{Mode: "allow", Deny: []string{"a.example", "d.example"},
				Bounds: []jobs.NetworkBound{{Origin: origin, Deny: []string{"b.example"}, Opaque: []string{"c.example:1"}}}}},
	} {
		w.write(t, w.user, c.user)
		conf := w.accepted(t, c.project)
		task := jobs.Task{Place: jobs.Place{Backend: jobs.BackendDocker, Network: c.task}}
		if _, err := conf.Task(&task); err != nil {
			t.Fatal(err)
		}
		env, _, err := conf.forBackend(jobs.BackendDocker)
		if err != nil {
			t.Fatal(err)
		}
		over := jobs.Place{Network: c.task}
		keys.Under(&over, env.Place, "")
		for _, got := range []jobs.Network{task.Network, over.Network} {
			if diff := cmp.Diff(c.want, got.Settled()); diff != "" {
				t.Errorf("%s\n%s", name, diff)
			}
		}
	}
	w.write(t, w.user, "")
	w.refused(t, "[network]\nvia = \"login\"\n", ":2: network.via")
	w.refused(t, "[network]\ntransparent = \"never\"\n", ":2: network.transparent")
	w.refused(t, "[network]\nallow = [\"*.com\"]\n", ":2: network.allow[0] is no rule of a network")
}

// TestProjectTarget: a project chooses among the user's targets only what opens
// nothing, also by leaving out what the user's own target shuts.
func TestProjectTarget(t *testing.T) {
	w := newWorld(t)
	const targets = `
[targets.bare]
backend = "local"
[targets.box]
backend = "docker"
[targets.sealed]
backend = "docker"
[targets.sealed.terminal]
docker_network = false
[targets.data]
[targets.data.terminal]
bind = ["/data:/data:rw"]
[targets.far]
scheduler = "slurm"
host = "lake"
[targets.near]
scheduler = "slurm"
`
	w.write(t, w.user, targets)
	for name, says := range map[string]string{"bare": `terminal.backend = "local"`, "data": "terminal.bind", "far": "another host"} {
		hint := w.refused(t, "target = "+literal(name)+"\n", ":1: ", says, "config.toml:")
		if !strings.Contains(hint, "targets") {
			t.Errorf("hint %q", hint)
		}
	}
	w.refused(t, "target = \"evil\"\n", "there is no target")
	for _, name := range []string{"box", "sealed", "near"} {
		if c := w.accepted(t, "target = "+literal(name)+"\n"); c != nil && c.Target() != name {
			t.Errorf("%s: %q", name, c.Target())
		}
	}
	w.write(t, w.user, "target = \"sealed\"\n"+targets)
	w.refused(t, "target = \"box\"\n", ":1: ", "terminal.docker_network = true")
	w.accepted(t, "target = \"sealed\"\n")
	w.refused(t, "[terminal]\ndocker_network = true\n", ":2: terminal.docker_network")
	w.refused(t, "target = \"near\"\n", ":1: ", "terminal.backend")
	// Allowed by the user, to this directory and no other.
	for dir, ok := range map[string]bool{filepath.Dir(w.proj): true, w.src.Home: false, filepath.Join(filepath.Dir(w.proj), "sub"): false} {
		w.write(t, w.user, targets+fmt.Sprintf("[projects.%q]\nallow = [\"targets\"]\n", dir))
		w.write(t, w.proj, "target = \"bare\"\n")
		if _, err := Load(w.src); (err == nil) != ok {
			t.Errorf("%s: %v", dir, err)
		}
	}
	// Who names a target has the last word.
	w.write(t, w.user, targets)
	w.write(t, w.proj, "target = \"near\"\n[terminal]\ntimeout = 5\n")
	w.src.Environ = []string{"BERTH_TARGET=box"}
	if c := w.load(t); c.Target() != "box" {
		t.Error(c.Target())
	}
	w.src.Flags = []Flag{{"target", "target", "far"}}
	c := w.load(t)
	var o jobs.EnvOptions
	if err := c.Environment(&o); err != nil || o.Login == nil || o.Login.Host != "lake" || o.Scheduler != "slurm" || o.Target != "far" {
		t.Errorf("%+v, %v", o, err)
	}
	if c.Timeout() != 5*time.Second {
		t.Error(c.Timeout())
	}
	w.src.Flags = []Flag{{"target", "target", ""}}
	if c := w.load(t); c.Target() != "" {
		t.Error(c.Target())
	}
}

// TestProjectFiles: which berth.toml is looked at, and which is no file of a
// project at all.
func TestProjectFiles(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Dir(w.proj)
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	has := func(from, want string) {
		t.Helper()
		w.src.Dir = from
		if got := w.load(t).ProjectPath(); got != want {
			t.Errorf("from %s: %q, not %q", from, got, want)
		}
	}
	w.write(t, filepath.Join(w.src.Home, ProjectFile), "[terminal]\ntimeout = 1\n")
	has(deep, "") // not above the repository
	has(w.src.Home, filepath.Join(w.src.Home, ProjectFile))
	above := filepath.Join(filepath.Dir(w.src.Home), ProjectFile) // removed with the test's directories
	w.write(t, above, "x")
	if err := os.Remove(filepath.Join(w.src.Home, ProjectFile)); err != nil {
		t.Fatal(err)
	}
	has(filepath.Dir(dir), "") // not above home
	w.write(t, w.proj, "[terminal]\ntimeout = 2\n")
	has(deep, w.proj)
	w.write(t, filepath.Join(dir, "a", ProjectFile), "")
	has(deep, filepath.Join(dir, "a", ProjectFile)) // the nearest
	if err := os.Remove(filepath.Join(dir, "a", ProjectFile)); err != nil {
		t.Fatal(err)
	}

	// A directory in which anybody may put a file is not looked at.
	w.src.Dir = deep
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // that is the attack
		t.Fatal(err)
	}
	c := w.load(t)
	if c.ProjectPath() != "" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "anybody may write") {
		t.Errorf("%q, %q", c.ProjectPath(), c.Notes)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	bad := func(why string) {
		t.Helper()
		loaded := make(chan error, 1)
		go func() {
			_, err := Load(w.src)
			loaded <- err
		}()
		select {
		case err := <-loaded:
			if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), why) {
				t.Errorf("%v, not %s", err, why)
			}
		case <-time.After(3 * time.Minute):
			t.Fatal("it hangs")
		}
	}
	if err := os.Chmod(w.proj, 0o666); err != nil { //nolint:gosec // that is the attack
		t.Fatal(err)
	}
	bad("can be written by anybody")
	replace := func(make func() error) {
		t.Helper()
		if err := os.RemoveAll(w.proj); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, w.user, "[terminal]\ntimeout = 3\n")
	replace(func() error { return os.Symlink(w.user, w.proj) })
	bad("is a symbolic link")
	replace(func() error { return os.Symlink("/dev/zero", w.proj) })
	bad("is a symbolic link")
	replace(func() error { return syscall.Mkfifo(w.proj, 0o600) })
	bad("is not a file")
	replace(func() error { return os.Mkdir(w.proj, 0o700) })
	bad("is not a file")
	replace(func() error { return os.WriteFile(w.proj, make([]byte, 2<<20), 0o600) })
	if _, err := Load(w.src); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
	if os.Getuid() == 0 {
		replace(func() error { return os.WriteFile(w.proj, []byte("[terminal]\ntimeout = 4\n"), 0o600) })
		if err := os.Chown(w.proj, 4242, 4242); err != nil {
			t.Skip(err)
		}
		if c := w.load(t); c.ProjectPath() != "" || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "another user") {
			t.Errorf("%q, %q", c.ProjectPath(), c.Notes)
		}
	}
}

// TestUserFile: the user's own file must be that.
func TestUserFile(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, "[terminal]\ntimeout = 4\n")
	if err := os.Chmod(w.user, 0o666); err != nil { //nolint:gosec // that is the attack
		t.Fatal(err)
	}
	if _, err := Load(w.src); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "chmod o-w") {
		t.Errorf("%v", err)
	}
}

// TestShaped: of an environment it is known whose berth.toml decided what
// commands find in it.
func TestShaped(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, "[terminal]\nenv_passthrough = [\"A\", \"B\"]\n")
	for project, on := range map[string]string{
		"[terminal]\ndocker_image = \"evil\"\n":               "docker",
		"[terminal]\ndocker_env = {LD_PRELOAD = \"/evil\"}\n": "docker",
		"[terminal]\nsingularity_image = \"docker://evil\"\n": "singularity",
		"[terminal]\ncwd = \"/srv\"\n":                        "docker singularity local",
		"profile = \"other\"\n":                               "docker singularity local",
		"[terminal]\nnetwork = \"none\"\ndocker_network = false\ncontainer_memory = 1000\ntimeout = 5\nbackend = \"docker\"\n": "",
		"[resources]\ngpus = 1\n[slurm]\npartition = \"gpu\"\n":                                                                "",
		"": "",
	} {
		c := w.accepted(t, project)
		var o jobs.EnvOptions
		if err := c.Environment(&o); err != nil || o.Configured.Project != filepath.Dir(w.proj) {
			t.Errorf("%v, %+v\n%s", err, o.Configured, project)
		}
		for _, backend := range []string{jobs.BackendDocker, jobs.BackendSingularity, jobs.BackendLocal} {
			want := ""
			if strings.Contains(on, backend) {
				want = filepath.Dir(w.proj)
			}
			if o, _, err := c.forBackend(backend); err != nil || o.Project != want {
				t.Errorf("%s: %q, not %q (%v)\n%s", backend, o.Project, want, err, project)
			}
		}
	}
	if err := os.Remove(w.proj); err != nil {
		t.Fatal(err)
	}
	var o jobs.EnvOptions
	if err := w.load(t).Environment(&o); err != nil || o.Configured.Project != "" {
		t.Errorf("%v, %+v", err, o.Configured)
	}
}
