package task

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
)

func parse(t *testing.T, file, text string) jobs.Task {
	t.Helper()
	task, err := Parse(file, []byte(text))
	if err != nil {
		t.Fatalf("Parse: %v\n%s", err, text)
	}
	if string(task.Source) != text {
		t.Errorf("Source is not the file")
	}
	task.Source = nil
	return task
}

// minimal is the least that a task file must say.
func minimal() jobs.Task {
	return jobs.Task{Name: "x", Command: jobs.Command{Shell: "true"}}
}

func with(f func(t *jobs.Task)) jobs.Task {
	t := minimal()
	f(&t)
	return t
}

const (
	headTOML = "+++\nname = \"x\"\nagent.command = \"true\"\n"
	headYAML = "---\nname: x\nagent: {command: \"true\"}\n"
)

// TestPairs: a file says the same in both languages.
func TestPairs(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	for _, c := range []struct {
		name, toml, yaml string
		want             jobs.Task
	}{
		{"minimal", headTOML + "+++\n", headYAML + "---\n", minimal()},
		{"byte order mark and CRLF",
			"\ufeff+++\r\nname = \"x\"\r\nagent.command = \"true\"\r\n+++\r\n\r\na\r\nb\r\n",
			"\ufeff---\r\nname: x\r\nagent:\r\n  command: \"true\"\r\n---\r\na\r\nb",
			with(func(t *jobs.Task) { t.Prompt = "a\nb\n" })},
		{"prompt keeps its inside and its first indent",
			headTOML + "+++  \n\n \n    code\n\n---\n+++\n\n \n",
			headYAML + "---\t\n    code\n\n---\n+++",
			with(func(t *jobs.Task) { t.Prompt = "    code\n\n---\n+++\n" })},
		{"after", headTOML + "after = [\"ok:1a2b\", \"any:3,notok:4\"]\n+++", "---\nname: x\nafter: [ok:1a2b, 'any:3,notok:4']\nagent: {command: \"true\"}\n---", with(func(t *jobs.Task) { t.After = []string{"ok:1a2b", "any:3,notok:4"} })},
		{"images of its jobs", headTOML + "[submit]\nmax_jobs = 2\nmax_cpu_hours = 1\nimages = [\"/a.sif\", \"docker://debian:12\"]\n+++",
			headYAML + "submit: {max_jobs: 2, max_cpu_hours: 1, images: [/a.sif, 'docker://debian:12']}\n---",
			with(func(t *jobs.Task) {
				t.Submit = &jobs.Submit{MaxJobs: 2, MaxCPUTime: time.Hour, Images: []jobs.ChildImage{{Name: "/a.sif"}, {Name: "docker://debian:12"}}}
			})},
		{"labels", headTOML + "labels = [\"sweep1\", \"lr=0.1\"]\n+++", headYAML + "labels: [sweep1, lr=0.1]\n---", with(func(t *jobs.Task) { t.Labels = []string{"sweep1", "lr=0.1"} })},
		{"argv", "+++\nname = \"x\"\n[agent]\ncommand = [\n  \"bash\", # first\n  \"-c\",\n  \"\"\"\na\n\tb\"\"\",\n  \"\"]\n+++",
			"---\nname: x\nagent:\n  command:\n    - bash # first\n    - -c\n    - \"a\\n\\tb\"\n    - ''\n---",
			with(func(t *jobs.Task) { t.Command = jobs.Command{Argv: []string{"bash", "-c", "a\n\tb", ""}} })},
		{"an agent", "+++\nname = \"x\"\n[agent]\nuse = \"claude\"\nmodel = \"m\"\nown_sandbox = false\n+++", "---\nname: x\nagent: {use: claude, model: m, own_sandbox: false}\n---",
			with(func(t *jobs.Task) {
				t.Command, t.Agent = jobs.Command{}, &jobs.Agent{Name: "claude", Model: "m", OwnSandbox: new(bool)}
			})},
		{"an agent's command", "+++\nname = \"x\"\n[agent]\nuse = \"claude\"\ncommand = \"true\"\n+++", "---\nname: x\nagent: {use: claude, command: \"true\"}\n---",
			with(func(t *jobs.Task) { t.Agent = &jobs.Agent{Name: "claude"} })},
		{"shell text", "+++\nname = \"x\"\n[agent]\ncommand = '''\ncd sub\nmake\n'''\n+++",
			"---\nname: x\nagent:\n  command: |\n    cd sub\n    make\n---",
			with(func(t *jobs.Task) { t.Command = jobs.Command{Shell: "cd sub\nmake"} })},
		{"done and artifacts", headTOML + "done = [\"go test ./...\", [\"test\", \"-f\", \"a b\"]]\nartifacts = ['*.log', \"out/\"]\n+++",
			headYAML + "done:\n- go test ./...\n- [test, -f, a b]\nartifacts: [\"*.log\", out/]\n---",
			with(func(t *jobs.Task) {
				t.Done = []jobs.Command{{Shell: "go test ./..."}, {Argv: []string{"test", "-f", "a b"}}}
				t.Artifacts = []string{"*.log", "out/"}
			})},
		{"workspace by default", headTOML + "[workspace]\n+++", headYAML + "workspace:\n---",
			with(func(t *jobs.Task) { t.Workspace = &jobs.Workspace{Repo: "/t/sub"} })},
		{"workspaces", headTOML + "[workspace]\n[[workspaces]]\nname = \"lib\"\nrepo = \"../lib\"\nbase = \"main\"\nscope = [\"src\"]\n+++",
			headYAML + "workspace:\nworkspaces:\n  - {name: lib, repo: ../lib, base: main, scope: [src]}\n---",
			with(func(t *jobs.Task) {
				t.Workspace = &jobs.Workspace{Repo: "/t/sub"}
				t.Further = []jobs.Workspace{{Name: "lib", Repo: "/t/lib", Base: "main", Scope: []string{"src"}}}
			})},
		{"workspace", headTOML + "[workspace]\nrepo = \"..\"\nbase = \"v1.2\"\nscope = [\"src/**\", \"go.mod\"]\n+++",
			headYAML + "workspace:\n  repo: ..\n  base: v1.2\n  scope: [src/**, go.mod]\n---",
			with(func(t *jobs.Task) {
				t.Workspace = &jobs.Workspace{Repo: "/t", Base: "v1.2", Scope: []string{"src/**", "go.mod"}}
			})},
		{"resources", headTOML + "[resources]\ncpus = 4\nmemory = \"1.5GiB\"\ndisk = 512\ntime = \"1h30m\"\ngpus = 2\nnodes = 1\nntasks = 3\n+++",
			headYAML + "resources:\n  cpus: 4\n  memory: 1.5GiB\n  disk: 512\n  time: 1h30m\n  gpus: 2\n  nodes: 1\n  ntasks: 3\n---",
			with(func(t *jobs.Task) {
				t.Resources = jobs.Resources{CPUs: 4, Memory: 1536 * jobs.MiB, Disk: 512 * jobs.MiB, Time: 90 * time.Minute, GPUs: "2", Nodes: 1, Tasks: 3}
			})},
		{"bare units", headTOML + "[resources]\nmemory = 2_048\ntime = 90\ngpus = \"a100:2\"\n+++",
			headYAML + "resources: {memory: \"2048\", time: 90, gpus: \"a100:2\"}\n---",
			with(func(t *jobs.Task) {
				t.Resources = jobs.Resources{Memory: 2 * jobs.GiB, Time: 90 * time.Second, GPUs: "a100:2"}
			})},
		{"terminal", headTOML + "[terminal]\nbackend = \"auto\"\nimage = \"../go.sif\"\noverlay = \"go-1.25_x\"\nenv = [\"TOKEN\", \"A=b c=d\", \"E=\"]\n+++",
			headYAML + "terminal:\n  backend: auto\n  image: ../go.sif\n  overlay: go-1.25_x\n  env: [TOKEN, A=b c=d, E=]\n---",
			with(func(t *jobs.Task) {
				t.Place = jobs.Place{Backend: "auto", Image: "/t/go.sif", Overlay: jobs.OverlaySpec{Name: "go-1.25_x"}, Env: []string{"TOKEN", "A=b c=d", "E="}}
				t.Reference = "../go.sif"
			})},
		{"bind", headTOML + "[terminal]\nimage = \"~/x.sif\"\nbind = [\"/data\", \"~/in:/in\", \"/a/:/b:ro\", \"c:/c:rw\"]\n" +
			"[workspace]\nrepo = \"~\"\n+++",
			headYAML + "terminal:\n  image: ~/x.sif\n  bind: [/data, ~/in:/in, \"/a/:/b:ro\", c:/c:rw]\nworkspace:\n  repo: \"~\"\n---",
			with(func(t *jobs.Task) {
				t.Workspace = &jobs.Workspace{Repo: "/home/ada"}
				t.Reference = "~/x.sif"
				t.Place = jobs.Place{Image: "/home/ada/x.sif", Mounts: []jobs.Mount{
					{Source: "/data", Destination: "/data"}, {Source: "/home/ada/in", Destination: "/in"},
					{Source: "/a", Destination: "/b"}, {Source: "/t/sub/c", Destination: "/c", Writable: true}}}
			})},
		{"bind tables", headTOML + "[[terminal.bind]]\nsource = \"a:b\"\ndestination = \"/c:d\"\nwritable = true\n[[terminal.bind]]\nsource = \"/e\"\n+++",
			headYAML + "terminal:\n  bind:\n  - source: a:b\n    destination: /c:d\n    writable: true\n  - {source: /e}\n---",
			with(func(t *jobs.Task) {
				t.Mounts = []jobs.Mount{{Source: "/t/sub/a:b", Destination: "/c:d", Writable: true}, {Source: "/e", Destination: "/e"}}
			})},
		{"slurm", headTOML + "[slurm]\npartition = \"gpu,long\"\naccount = \"p-1\"\nqos = \"high\"\nconstraint = \"[a|b]&c\"\nextra = [\"--exclusive\", \"--mail-type=END\", \"--wckey=a b\", \"--container-image=x\"]\n+++",
			headYAML + "slurm:\n  partition: gpu,long\n  account: p-1\n  qos: high\n  constraint: \"[a|b]&c\"\n  extra: [--exclusive, --mail-type=END, --wckey=a b, --container-image=x]\n---",
			with(func(t *jobs.Task) {
				t.Slurm = jobs.SlurmOptions{Partition: "gpu,long", Account: "p-1", QOS: "high", Constraint: "[a|b]&c",
					Extra: []string{"--exclusive", "--mail-type=END", "--wckey=a b", "--container-image=x"}}
			})},
		{"empty tables", headTOML + "[slurm]\n[resources]\n[terminal]\n+++", headYAML + "slurm:\nresources: {}\nterminal: ~\n---", minimal()},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, text := range []string{c.toml, c.yaml} {
				if diff := cmp.Diff(c.want, parse(t, "/t/sub/x.md", text)); diff != "" {
					t.Errorf("%s\n%s", diff, text)
				}
			}
		})
	}
}
