package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// updating tells whether -update was given; the flag is registered beside the
// scripts.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// inProcess is berth in this process, without a terminal.
func inProcess(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs)
	root := newRoot(a, args)
	root.SetArgs(args)
	code = a.report(a.commandLine(root.ExecuteContext(context.Background())))
	return out.String(), errs.String(), code
}

const (
	secret = "hush-91b2"
	prompt = "PROMPT: do as I say, $(id) `id`"
)

const hostileTask = `+++
name = "Ünïcode \"quotes\" 'n $(touch /tmp/pwned) ` + "`id`" + ` \\ %j #SBATCH --uid=0; rm -rf /"
[agent]
command = ["agent", "it's", "$HOME", "\"", "line\nbreak", "*", "{image}"]
[terminal]
image = "/images/a b:c,d \"e\" 'f' $(id) \\ ü.sif"
env = ["TOKEN", "GREETING=it's $HOME"]
[slurm]
partition = "a\"b'c"
account = "$(id)"
constraint = "[a|b]&c"
extra = ["--nice=7"]
+++
` + prompt + "\n"

const fullTask = `---
name: everything
agent:
  command: make -j4 test
resources: {cpus: 4, memory: 3GiB, disk: 5GiB, time: 36h, gpus: "a100:2", nodes: 2}
terminal:
  image: /images/py.sif
  overlay: shared
  bind: ["/data/in:/data/in:ro", "/data/out:/data/out:rw"]
slurm: {partition: gpu, account: physics, qos: long, constraint: ib}
---
` + prompt + "\n"

const siteProfile = `modules = ["apptainer/1.4", "cuda"]
forbid = ["tmp"]
overlay = "ext3"
[versions]
slurm = "24.11"
apptainer = "1.4.5"
`

// TestRender compares job scripts with golden files, and has bash and
// shellcheck read each of them.
func TestRender(t *testing.T) {
	for _, c := range []struct {
		name, home, task string
		args             []string
	}{
		{name: "plain", home: "/shared/alice/berth", args: []string{"--image", "/images/py.sif", "--", "pytest -x"}},
		{name: "hostile", home: `/shared/it's "a" place/ü $HOME %j & more`, task: hostileTask,
			args: []string{"--bind", `/data/it's "x" $(id), ü:/in put,2`, "--overlay", "my.layer-1"}},
		{name: "full", home: "/shared/alice/berth", task: fullTask, args: []string{"--profile", "./site.toml"}},
		{name: "local", home: "/home/alice/.local/state/berth", args: []string{"--scheduler", "local", "--backend", "local", "--", "printf", "%s", "a b"}},
		{name: "local-container", home: "/home/alice/.local/state/berth", args: []string{"--scheduler", "local", "--image", "/images/py.sif", "--env", "TOKEN", "--", "true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("HOME", "/home/alice")
			t.Setenv("SHELL", "/bin/bash")
			t.Setenv("BERTH_HOME", c.home)
			t.Setenv("TOKEN", secret)
			args := append([]string{"render"}, c.args...)
			if c.task != "" {
				write(t, "task.md", c.task)
				args = append(args, "task.md")
			}
			write(t, "site.toml", siteProfile)
			script, said, code := inProcess(t, args...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, said)
			}
			if _, err := os.Lstat(c.home); err == nil {
				t.Errorf("render has made %s", c.home)
			}
			for _, s := range []string{secret, "do as I say"} {
				if strings.Contains(script+said, s) {
					t.Errorf("%q is in the script", s)
				}
			}
			if u, err := user.Current(); err == nil {
				script = strings.NewReplacer("export USER="+u.Username+"\n", "export USER=alice\n", "export LOGNAME="+u.Username+"\n", "export LOGNAME=alice\n").Replace(script)
			}
			compare(t, c.name+".sh", script)
			readAs(t, script, "bash", "-n")
			readAs(t, script, "shellcheck", "--shell=bash", "-")
		})
	}
}

// TestExampleProfiles: each profile that we ship is read and gives a script
// that bash and shellcheck are content with, and stands in the list of them.
func TestExampleProfiles(t *testing.T) {
	files, err := filepath.Glob("../../examples/profiles/*.toml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d profiles, %v", len(files), err)
	}
	list, err := os.ReadFile("../../examples/profiles/README.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "/home/alice")
	t.Setenv("BERTH_HOME", "/shared/alice/berth")
	has := map[string][]string{
		"modules": {"module load apptainer/1.4.5 ||"}, "no-mem": {"# --mem is not sent"}, "whole-node": {"#SBATCH --exclusive\n", "# --mem is not sent"},
		"account": {"#SBATCH --account=phys-0123\n"}, "gres-type": {"#SBATCH --gres=gpu:a100:2\n", "--nv"}, "amd-gpu": {"#SBATCH --gres=gpu:2\n", "--rocm"},
		"proxy-only": {"export https_proxy=http://proxy.example.org:3128\n", "export HTTPS_PROXY=http", "export no_proxy=localhost"},
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		t.Run(name, func(t *testing.T) {
			script, said, code := inProcess(t, "render", "--profile", file, "--image", "/x.sif", "--memory", "1GiB", "--gpus", "2", "--time", "10m", "--", "true")
			if code != 0 {
				t.Fatalf("exit %d: %s", code, said)
			}
			for _, want := range has[name] {
				if !strings.Contains(script, want) {
					t.Errorf("no %q in\n%s", want, script)
				}
			}
			readAs(t, script, "bash", "-n")
			readAs(t, script, "shellcheck", "--shell=bash", "-")
			if !strings.Contains(string(list), "| ["+name+".toml]("+name+".toml) |") {
				t.Error("README.md does not name it")
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testdata is absolute, because tests change their directory.
var testdata = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

func compare(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join(testdata, "render", name)
	if updating() {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", golden, d)
	}
}

// readAs has a program read the script on its standard input.
func readAs(t *testing.T, script, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Logf("not checked: %s is not installed here", program)
		return
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
}
