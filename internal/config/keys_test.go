package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"berth/jobs"
)

// sample is two values of a key that differ from each other and from the
// default, as they stand in a file and in a variable. The first is the one that
// a project may not set, where there is such a one.
type sample struct{ file, text [2]string }

func same2(a, b string) sample {
	return sample{[2]string{literal(a), literal(b)}, [2]string{a, b}}
}

func bare(a, b string) sample { return sample{[2]string{a, b}, [2]string{a, b}} }

// special are the samples that the type does not give.
var special = map[string]sample{
	"target": same2("lake", "pond"), "profile": same2("/etc/passwd-like.toml", "other"), "scheduler": same2("slurm", "local"),
	"terminal.backend": same2("local", "docker"), "terminal.cwd": same2("/srv", "/opt"), "network.mode": same2("none", "allow"), "terminal.gpu": same2("nvidia", "amd"),
	"terminal.bind":            {[2]string{`["/data:/data"]`, `["/b:/c:rw"]`}, [2]string{"/data", "/b:/c:rw"}},
	"terminal.auto":            {[2]string{`["docker", "bwrap"]`, `["bwrap"]`}, [2]string{"docker,bwrap", `["bwrap"]`}},
	"terminal.host_sockets":    {[2]string{`["tmux", "/run/x.sock"]`, `["a display"]`}, [2]string{`["tmux","/run/x.sock"]`, `["a display"]`}},
	"terminal.env_passthrough": {[2]string{`["A", "B"]`, `["C"]`}, [2]string{`["A","B"]`, "C"}}, "terminal.docker_forward_env": {[2]string{`["A", "B"]`, `["C"]`}, [2]string{"A,B", `["C"]`}},
	"terminal.scratch_dir": same2("/local/$USER", "/scratch/x"), "terminal.singularity_image": same2("/", "docker://debian:12"), "terminal.docker_image": same2("debian:12", "alpine:3"), "terminal.template": same2("default", "minimal"),
	"terminal.docker_env":        {[2]string{`{A = "1", B = "x=y"}`, `["C=3"]`}, [2]string{`{"A":"1","B":"x=y"}`, "C=3"}},
	"terminal.docker_volumes":    {[2]string{`["/a:/b"]`, `["v:/c"]`}, [2]string{`["/a:/b"]`, "v:/c"}},
	"terminal.docker_extra_args": {[2]string{`["--gpus=all"]`, `["--init"]`}, [2]string{"--gpus=all", `["--init"]`}},
	"terminal.docker_shm_size":   same2("2g", "512MiB"), "terminal.docker_binary": same2("/opt/docker", "/opt/podman"),
	"terminal.ssh_host": same2("gpu1", "ada@gpu2:22"), "terminal.ssh_user": same2("ada", "bob"), "terminal.ssh_port": bare("2222", "22"), "terminal.ssh_key": same2("/k1", "/k2"),
	"network.allow":      {[2]string{`["*.example.com"]`, `["10.0.0.0/8"]`}, [2]string{"*.example.com", "10.0.0.0/8"}},
	"network.deny":       {[2]string{`["*.example.com"]`, `["10.0.0.0/8", "@pip"]`}, [2]string{"*.example.com", "10.0.0.0/8,@pip"}},
	"network.opaque":     {[2]string{`["db.example.com:5432"]`, `["10.0.0.7:22"]`}, [2]string{"db.example.com:5432", "10.0.0.7:22"}},
	"network.build.mode": same2("none", "allow"), "network.build.allow": {[2]string{`["pypi.org"]`, `["10.0.0.7:22"]`}, [2]string{"pypi.org", "10.0.0.7:22"}},
	"review.by": same2("other", "any"), "review.agent": same2("claude", "none"), "network.transparent": same2("always", "never"), "network.via": same2("proxy:http://p.example:3128", "login"),
	"terminal.external":   {[2]string{`{modal = {region = "eu"}}`, `{my-cloud = {zone = "b"}}`}, [2]string{"modal.region=eu", `["my-cloud.zone=b"]`}},
	"terminal.modal_mode": same2("direct", "managed"), "terminal.modal_image": same2("im-1", "debian"), "terminal.daytona_image": same2("a", "b"),
	"terminal.daytona.api_url": same2("https://a.example", "https://b.example"), "terminal.daytona.api_token": same2("t1", "t2"), "terminal.daytona.workspace_template": same2("a", "b"),
	"terminal.container_cpu": bare("0", "4"), "terminal.container_memory": {[2]string{"0", `"8GiB"`}, [2]string{"0", "8GiB"}},
	"terminal.lifetime_seconds": {[2]string{"0", `"1h"`}, [2]string{"0", "1h"}}, "terminal.timeout": {[2]string{`"10m"`, "7"}, [2]string{"10m", "7"}},
	"terminal.container_disk": {[2]string{`"10GiB"`, "20480"}, [2]string{"10GiB", "20480"}},
	"resources.gpus":          {[2]string{`"a100:2"`, "1"}, [2]string{"a100:2", "1"}},
	"notify.mail":             same2("ada@example.org", "ada"), "notify.webhook_file": same2("/w1", "/w2"),
	"mcp.confirm":    same2("never", "always"),
	"notify.command": {[2]string{`["tell", "--x"]`, `["/bin/tell"]`}, [2]string{"tell,--x", `["/bin/tell"]`}},
	"slurm.extra":    {[2]string{`["--exclusive"]`, `["--nice=5"]`}, [2]string{"--exclusive", `["--nice=5"]`}},
}

func sampleOf(t *testing.T, k *Key) sample {
	t.Helper()
	if s, ok := special[k.Name]; ok {
		return s
	}
	switch k.Type {
	case Bool:
		first := "true"
		if k.Default == "true" {
			first = "false"
		}
		second := map[string]string{"true": "false", "false": "true"}[first]
		return bare(first, second)
	case Count:
		return bare("7", "3")
	case Size:
		return sample{[2]string{`"64GiB"`, "4096"}, [2]string{"64GiB", "4096"}}
	case Time:
		return sample{[2]string{`"48h"`, "600"}, [2]string{"48h", "600"}}
	case Dollars:
		return bare("5", "0.50")
	case Text:
		return same2("first", "second")
	}
	t.Fatalf("no sample of %s", k.Name)
	return sample{}
}

// inTable writes a key as a file has it.
func inTable(k *Key, value string) string {
	if k.table() == "" {
		return k.leaf() + " = " + value + "\n"
	}
	return "[" + k.table() + "]\n" + k.leaf() + " = " + value + "\n"
}

// world is a home with a configuration, and a project in it.
type world struct {
	src        Sources
	user, proj string
}

const twoTargets = "[targets.lake]\nscheduler = \"slurm\"\n[targets.pond]\nbackend = \"docker\"\n"

func newWorld(t testing.TB) world {
	t.Helper()
	home := t.TempDir()
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		t.Fatal(err)
	}
	w := world{user: filepath.Join(home, ".config", "berth", "config.toml"), proj: filepath.Join(home, "src", "lab", ProjectFile)}
	w.src = Sources{User: w.user, Dir: filepath.Dir(w.proj), Home: home, Profiles: []string{filepath.Join(home, ".config", "berth", "profiles")}}
	for _, d := range []string{filepath.Join(filepath.Dir(w.proj), ".git"), w.src.Profiles[0]} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"other", "site"} {
		w.write(t, filepath.Join(w.src.Profiles[0], n+".toml"), "image = \"/shared/base.sif\"\nscratch = \"/local/$USER\"\n[slurm]\npartition = \"batch\"\naccount = \"phys\"\nqos = \"normal\"\nconstraint = \"x\"\nextra = [\"--exclusive\"]\n")
	}
	return w
}

func (w world) write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w world) load(t *testing.T) *Config {
	t.Helper()
	c, err := Load(w.src)
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, jobs.HintOf(err))
	}
	return c
}

func usable() []*Key {
	var out []*Key
	for i := range Keys() {
		if Keys()[i].Refused == "" {
			out = append(out, &Keys()[i])
		}
	}
	return out
}

// valueOf is what a text means, as [shown] writes it.
func valueOf(t *testing.T, k *Key, text string) string {
	t.Helper()
	v, err := k.Parse(text, k.Name)
	if err != nil || v == nil {
		t.Fatalf("%s = %s: %v, %v", k.Name, text, v, err)
	}
	return shown(v)
}

// TestEveryKey sets every key of the table in every way there is, and looks at
// what holds, where it is said to come from, and which of two ways wins.
func TestEveryKey(t *testing.T) {
	for _, k := range usable() {
		t.Run(k.Name, func(t *testing.T) {
			s := sampleOf(t, k)
			first, second := valueOf(t, k, s.text[0]), valueOf(t, k, s.text[1])
			if first == second {
				t.Fatalf("the samples are the same: %s", first)
			}
			w := newWorld(t)
			want := func(origin, value string) {
				t.Helper()
				v := w.load(t).Get(k.Name)
				if shown(v.V) != value || v.Origin.String() != origin {
					t.Errorf("%s = %s from %s, not %s from %s", k.Name, shown(v.V), v.Origin, value, origin)
				}
			}
			tail := "\n" + twoTargets
			w.write(t, w.user, inTable(k, s.file[0])+tail)
			line := 2
			if k.table() == "" {
				line = 1
			}
			want(fmt.Sprintf("%s:%d", w.user, line), first)

			// A project's file wins over the user's, where it may say it at all.
			if k.Allow != never {
				allow := ""
				word := k.Allow
				if k.Name == "target" { // what it is judged by is in the target
					word = "targets"
				}
				if word != free {
					allow = fmt.Sprintf("[projects.%q]\nallow = [%q]\n", filepath.Dir(w.proj), word)
				}
				w.write(t, w.user, inTable(k, s.file[0])+tail+allow)
				w.write(t, w.proj, inTable(k, s.file[1]))
				if k.Bound { // which it says beside the user's, TestNetworkBound
					want(fmt.Sprintf("%s:%d", w.user, line), first)
				} else {
					want(fmt.Sprintf("%s:%d", w.proj, line), second)
				}
			}
			for i, name := range k.Env {
				w.src.Environ = append([]string{"OTHER=1"}, name+"="+s.text[0])
				want("env "+name, first)
				if i > 0 { // the first one is the one that counts
					w.src.Environ = []string{name + "=" + s.text[0], k.Env[0] + "=" + s.text[1]}
					want("env "+k.Env[0], second)
				}
			}
			if k.Flag != "" {
				w.src.Flags = []Flag{{k.Name, k.Flag, s.text[1]}}
				want("flag --"+k.Flag, second)
			}
			if err := os.RemoveAll(w.proj); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDefaults: what is shown as a default is one, and a profile wins over it.
func TestDefaults(t *testing.T) {
	w := newWorld(t)
	for _, k := range usable() {
		v := w.load(t).Get(k.Name)
		if v.Origin.String() != "default" || (v.V == nil) != (k.Default == "") {
			t.Errorf("%s: %v from %s", k.Name, v.V, v.Origin)
		}
	}
	w.write(t, w.user, "profile = \"site\"\n[slurm]\nqos = \"high\"\n")
	c := w.load(t)
	if _, err := c.ReadProfile(); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"terminal.singularity_image": "/shared/base.sif", "terminal.scratch_dir": "/local/$USER", "slurm.partition": "batch", "slurm.account": "phys", "slurm.constraint": "x", "slurm.extra": `["--exclusive"]`} {
		if v := c.Get(name); shown(v.V) != value || v.Origin.String() != "profile site" {
			t.Errorf("%s = %s from %s", name, shown(v.V), v.Origin)
		}
	}
	if v := c.Get("slurm.qos"); shown(v.V) != "high" {
		t.Errorf("the profile won over the file: %s", shown(v.V))
	}
}

// TestEffect: every key changes what it is said to change, and nothing else.
func TestEffect(t *testing.T) {
	backends := jobs.Backends()
	type effect struct {
		Env      map[string]jobs.EnvOptions
		Notes    map[string][]string
		General  jobs.EnvOptions
		Backend  string
		Timeout  any
		Offline  bool
		Auto     []string
		Notify   *jobs.Notify
		Waiting  int
		Fresh    bool
		Confirm  string
		Task     map[string]jobs.Task
		NoImages []string
	}
	get := func(t *testing.T, c *Config) effect {
		t.Helper()
		e := effect{Env: map[string]jobs.EnvOptions{}, Notes: map[string][]string{}, Task: map[string]jobs.Task{}}
		if err := c.Environment(&e.General); err != nil {
			t.Fatal(err)
		}
		e.Backend = e.General.Configured.Backend
		for _, b := range backends {
			o, notes, err := e.General.Configured.For(b)
			if err != nil {
				t.Fatal(err)
			}
			e.Env[b], e.Notes[b] = o, notes
			task := jobs.Task{Place: jobs.Place{Backend: b}}
			if _, err := c.Task(&task); err != nil {
				t.Fatal(err)
			}
			e.Task[b] = task
		}
		var plain jobs.Task
		if _, err := c.Task(&plain); err != nil {
			t.Fatal(err)
		}
		e.Task[""] = plain
		e.General.Configured = nil
		e.Offline, e.Auto, e.Notify = c.Offline(), c.Auto(), c.notify()
		e.Waiting, _ = c.MaxWaiting()
		e.Timeout, e.Fresh, e.Confirm = c.Timeout(), c.FreshShells(), c.ConfirmSubmits()
		return e
	}
	equal := func(a, b any) bool {
		return cmp.Equal(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(jobs.EnvOptions{}, "Configured"))
	}
	// What is seen only beside another key.
	beside := map[string]string{"terminal.ssh_user": "TERMINAL_SSH_HOST=h", "terminal.ssh_port": "TERMINAL_SSH_HOST=h", "terminal.ssh_key": "TERMINAL_SSH_HOST=h"}
	for _, k := range usable() {
		if strings.HasPrefix(k.Name, "max.") || k.table() == "caps" || k.Places != nil && (k.Places[0] == "modal" || k.Places[0] == "daytona" || k.Places[0] == programs) {
			continue // TestAttacks, TestCredentials, TestProgram
		}
		t.Run(k.Name, func(t *testing.T) {
			w := newWorld(t)
			w.src.Environ = []string{"A=1", "B=2"}
			if b := beside[k.Name]; b != "" {
				w.src.Environ = append(w.src.Environ, b)
			}
			top := ""
			if k.table() == "resources" || k.table() == "slurm" {
				top = "scheduler = \"slurm\"\n"
			}
			w.write(t, w.user, top+twoTargets)
			before := get(t, w.load(t))
			value := sampleOf(t, k).file[0]
			switch k.Name {
			case "profile":
				value = `"site"`
			case "terminal.singularity_image":
				value = `"/images/x.sif"`
			}
			w.write(t, w.user, top+inTable(k, value)+twoTargets)
			after := get(t, w.load(t))
			envs := !equal(before.Env, after.Env) || !equal(before.General, after.General) || before.Backend != after.Backend || before.Timeout != after.Timeout || before.Fresh != after.Fresh
			if envs == k.NotEnvs {
				t.Errorf("of environments it changes something: %v", envs)
			}
			tasks := !equal(before.Task, after.Task) || before.Offline != after.Offline || !equal(before.Auto, after.Auto) || !equal(before.Notify, after.Notify) ||
				before.Waiting != after.Waiting || before.Confirm != after.Confirm
			if tasks != k.Jobs {
				t.Errorf("of jobs it changes something: %v\n%s", tasks, cmp.Diff(before.Task, after.Task))
			}
			for _, b := range backends {
				if places := k.Places; len(places) > 0 && !slices.Contains(places, b) && !equal(before.Env[b], after.Env[b]) {
					t.Errorf("it is not for %s, and changes\n%s", b, cmp.Diff(before.Env[b], after.Env[b], cmpopts.IgnoreFields(jobs.EnvOptions{}, "Configured")))
				}
			}
		})
	}
}
