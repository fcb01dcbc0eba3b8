package templates_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
	"berth/templates"
)

var update = flag.Bool("update", false, "write the golden files")

func launch() jobs.Launch {
	return jobs.Launch{
		Attempt:  "01890000-0000-7000-8000-0123456789ab",
		Name:     "berth-fix-the-parser-0123456789ab",
		Dir:      "/home/alice/.local/state/berth/jobs/01/a/attempts/0001",
		Comment:  []string{"berth job 456789ab: fix the parser", "attempt 1, submitted by alice on login"},
		Identity: jobs.Identity{User: "alice", Home: "/home/alice", Shell: "/bin/zsh"},
		Argv: []string{"/home/alice/.local/state/berth/bin/0f0f/berth-node", "runner", "--attempt", "/home/alice/.local/state/berth/jobs/01/a/attempts/0001", "--",
			"apptainer", "exec", "--containall", "--no-home", "--cleanenv", "--no-eval", "--pwd", "/tmp", "--workdir", jobs.PlaceholderScratch, "--overlay", jobs.PlaceholderOverlay,
			"--mount", "type=bind,source=/home/alice/.local/state/berth/bin/0f0f/berth-node,destination=/.berth/node,readonly", jobs.PlaceholderImage, "/.berth/node", "guest", "--json"},
	}
}

func TestGolden(t *testing.T) {
	hostile := launch()
	hostile.Comment = []string{`$(touch /tmp/pwned) "quotes' \ and %j and #SBATCH --array=1-9`, "日本語"}
	hostile.Identity = jobs.Identity{User: "o'brien", Home: "/home/o'brien $HOME `x`"}
	hostile.Profile.Modules = []string{"apptainer/1.4", `weird "module" $(id)`}
	hostile.Argv = []string{"/srv/a b/berth-node", "runner", "--attempt", `/srv/it's "here" $(id) \ %j #x`, "--", "apptainer", "exec", "--mount", `type=bind,"source=/a,b:c ""q""",destination=/x`,
		"{image}", "{scratch", "{overlay},x", "", "~", "*", "!!", "FOO=bar", "-n", "é 日本", "{a,b}", "a\\nb", "&&", "--"}
	for name, c := range map[string]struct {
		launch jobs.Launch
		head   templates.Head
	}{
		"plain":   {launch(), templates.Head{}},
		"slurm":   {launch(), templates.Head{Lines: []string{"#SBATCH --job-name=x", "# --mem is not sent: the profile forbids it"}, Env: []string{"SLURM_EXPORT_ENV=ALL"}, Unset: []string{"SLURM_EXIT_ERROR"}}},
		"hostile": {hostile, templates.Head{Env: []string{"A=it's $HOME"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := templates.Script(c.launch, c.head)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden.sh")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("differs from %s (run with -update when it is meant):\n%s", file, diff)
			}
		})
	}
}

func TestGoldensAreSoundShell(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden.sh")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, check := range [][]string{{"bash", "-n"}, {"shellcheck", "--shell=bash"}} {
		if _, err := exec.LookPath(check[0]); err != nil {
			t.Skipf("%s is not installed", check[0])
		}
		for _, f := range files {
			if out, err := exec.CommandContext(t.Context(), check[0], append(check[1:], f)...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", check[0], f, err, out)
			}
		}
	}
}

// The shell itself says what it makes of the words.
func TestWordsArriveUnchanged(t *testing.T) {
	dir := t.TempDir()
	show := filepath.Join(dir, "show it")
	if err := os.WriteFile(show, []byte("#!/bin/bash\nprintf '%s\\0' \"$@\"\nprintf 'env:%s\\0' \"$HOME\" \"$USER\" \"$SHELL\" \"${APPTAINER_BIND-unset}\" \"${SINGULARITYENV_X-unset}\" \"${BASH_ENV-unset}\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := launch()
	words := []string{"{image}", "{overlay}", "{scratch}", "", " ", "a b", "it's", `"`, `\`, `\\n`, "$HOME", "`id`", "$(id)", "*", "?", "[a]", "~", "~root", "{a,b}", "{1..3}", "{image", "a{image}b", "!!", "#x", "-n", "--", "--x", "é日本", ";", "&&", "|", "<", ">", "a=b", "%j", "x\u00a0y", "^", "(", ")"}
	l.Argv = append([]string{show}, words...)
	script, err := templates.Script(l, templates.Head{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", file)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "APPTAINER_BIND=/x", "SINGULARITYENV_X=1", "BASH_ENV=/dev/null", "HOME=/nope"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	want := append(words, "env:/home/alice", "env:alice", "env:/bin/zsh", "env:unset", "env:unset", "env:unset")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestModules: the function is found in a file of any name, and a file that ends
// its shell or fails is left alone; what cannot be loaded ends the job.
func TestModules(t *testing.T) {
	const define = "module() { [ \"$2\" = good ] && echo loaded $2 from "
	for name, c := range map[string]struct {
		files map[string]string
		named string
		load  string
		code  int
		want  string
	}{
		"no file":              {load: "good", code: 78, want: "no file defines \"module\": looked at "},
		"a usual file":         {files: map[string]string{"profile.d/modules.sh": define + "usual; }"}, load: "good", want: "loaded good from usual"},
		"another name":         {files: map[string]string{"profile.d/a.sh": "exit 3", "profile.d/zz-site.sh": define + "zz; }; export -f module"}, load: "good", want: "loaded good from zz"},
		"the profile":          {files: map[string]string{"profile.d/a.sh": "exit 3", "profile": define + "profile; }"}, load: "good", want: "loaded good from profile"},
		"a named file":         {files: map[string]string{"profile.d/modules.sh": define + "usual; }", "opt/init": define + "opt; }"}, named: "/opt/init", load: "good", want: "loaded good from opt"},
		"a module that is not": {files: map[string]string{"profile.d/modules.sh": define + "usual; }"}, load: "no/such $(module)", code: 78, want: "does not load: no/such $(module)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range c.files {
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l := launch()
			l.Profile.Modules = []string{c.load}
			if c.named != "" {
				l.Profile.ModuleInit = dir + c.named
			}
			l.Argv = []string{"/bin/true"}
			script, err := templates.Script(l, templates.Head{})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-s")
			cmd.Env = []string{"PATH=/usr/bin:/bin"}
			cmd.Stdin = strings.NewReader(strings.NewReplacer("/etc/profile", dir+"/profile", "/usr/share", dir+"/share").Replace(script))
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A user without an entry in the user database is told what is missing, and what helps.
func TestIdentity(t *testing.T) {
	for want, who := range map[string]jobs.Identity{
		"the name of this user is not known: the user database has no entry for it, and USER is not set":           {Home: "/home/alice"},
		"the home directory of this user is not known: the user database has no entry for it, and HOME is not set": {User: "alice"},
		`the home directory of this user is no absolute path: "alice"`:                                             {User: "alice", Home: "alice"},
	} {
		l := launch()
		l.Identity = who
		_, err := templates.Script(l, templates.Head{})
		if err == nil || err.Error() != want || jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "export ") {
			t.Errorf("%+v: %v, hint %q", who, err, jobs.HintOf(err))
		}
	}
}

func TestRefused(t *testing.T) {
	for name, spoil := range map[string]func(*jobs.Launch, *templates.Head){
		"line break in a word":      func(l *jobs.Launch, _ *templates.Head) { l.Argv = append(l.Argv, "a\nb") },
		"line break in a comment":   func(l *jobs.Launch, _ *templates.Head) { l.Comment = []string{"a\n#SBATCH --array=1"} },
		"carriage return":           func(l *jobs.Launch, _ *templates.Head) { l.Comment = []string{"a\r#SBATCH"} },
		"escape":                    func(l *jobs.Launch, _ *templates.Head) { l.Argv = append(l.Argv, "\x1b[2J") },
		"NUL":                       func(l *jobs.Launch, _ *templates.Head) { l.Identity.Home = "/home/\x00" },
		"not UTF-8":                 func(l *jobs.Launch, _ *templates.Head) { l.Argv = append(l.Argv, "\xff") },
		"line separator":            func(l *jobs.Launch, _ *templates.Head) { l.Argv = append(l.Argv, "a\u2028b") },
		"header that is a command":  func(_ *jobs.Launch, h *templates.Head) { h.Lines = []string{"rm -rf x"} },
		"line break in the header":  func(_ *jobs.Launch, h *templates.Head) { h.Lines = []string{"# a\nrm -rf x"} },
		"variable with a bad name":  func(_ *jobs.Launch, h *templates.Head) { h.Env = []string{"A B=1"} },
		"variable without a value":  func(_ *jobs.Launch, h *templates.Head) { h.Env = []string{"AB"} },
		"unset of more than a name": func(_ *jobs.Launch, h *templates.Head) { h.Unset = []string{"A; id"} },
		"module that is an option":  func(l *jobs.Launch, _ *templates.Head) { l.Profile.Modules = []string{"--force"} },
		"relative program":          func(l *jobs.Launch, _ *templates.Head) { l.Argv[0] = "berth-node" },
		"no command":                func(l *jobs.Launch, _ *templates.Head) { l.Argv = nil },
		"nobody":                    func(l *jobs.Launch, _ *templates.Head) { l.Identity = jobs.Identity{} },
	} {
		t.Run(name, func(t *testing.T) {
			l, h := launch(), templates.Head{}
			spoil(&l, &h)
			if s, err := templates.Script(l, h); err == nil {
				t.Errorf("rendered:\n%s", s)
			}
		})
	}
}
