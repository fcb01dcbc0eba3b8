package profile

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
)

const full = `# A site.
scheduler = "slurm"
image = "images/base.sif"
modules = ["apptainer/1.4.5", "gcc"]
module_init = "/etc/profile.d/zz-site.sh"
scratch = "/local/$USER/${SLURM_JOB_ID}"
image_cache = "/shared/images"
forbid = ["mem", "tmp"]
overlay = "ext3"
gpu = "nvidia"
gpu_type = "a100"

[proxy]
http = "http://proxy.example.org:3128"
https = "http://[fd00::1]:3128/"
no = "localhost,.example.org,10.0.0.0/8"

[slurm]
partition = "batch"
account = "phys-1"
qos = "normal"
constraint = "ib"
extra = ["--mail-type=END"]

[caps]
max_usd = 5
max_wall = "4h"

[versions]
slurm = "24.11"
apptainer = "1.4.5"
`

func TestParse(t *testing.T) {
	want := jobs.Profile{
		Name: "site", Scheduler: "slurm", Image: "/p/images/base.sif", Modules: []string{"apptainer/1.4.5", "gcc"}, ModuleInit: "/etc/profile.d/zz-site.sh",
		Scratch: "/local/$USER/${SLURM_JOB_ID}", ImageCache: "/shared/images", Forbid: []string{"mem", "tmp"}, Overlay: "ext3", GPU: "nvidia", GPUType: "a100",
		Proxy: jobs.Proxy{HTTP: "http://proxy.example.org:3128", HTTPS: "http://[fd00::1]:3128/", No: "localhost,.example.org,10.0.0.0/8"},
		Slurm: jobs.SlurmOptions{Partition: "batch", Account: "phys-1", QOS: "normal", Constraint: "ib",
			Extra: []string{"--mail-type=END"}},
		Versions: jobs.Versions{Slurm: "24.11", Apptainer: "1.4.5"},
		Caps:     jobs.Caps{USD: 5, Wall: 4 * time.Hour},
	}
	for _, text := range []string{full, "\ufeff" + strings.ReplaceAll(full, "\n", "\r\n")} {
		got, err := Parse("/p/site.toml", []byte(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	got, err := Parse("/p/empty.toml", nil)
	if diff := cmp.Diff(jobs.Profile{Name: "empty"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

var refused = []struct{ text, want string }{
	{`schedular = "slurm"`, `p.toml:1: unknown key "schedular": did you mean "scheduler"?`},
	{`scheduler = "pbs"`, `p.toml:1: scheduler must be "slurm" or "local", found "pbs"`},
	{`partition = "x"`, `p.toml:1: unknown key "partition": did you mean "partition" in [slurm]?`},
	{`image_cache = "x"`, `p.toml:1: image_cache must begin with / or a variable, found "x"`},
	{`image_cache = "/a:b"`, `p.toml:1: image_cache may hold only letters, digits, . _ / + @ = - and variables, found "/a:b"`},
	{`image = "ftp://x"`, "p.toml:1: image is no source of images that berth knows: docker://, oras://, library://, docker-archive:, or the path of a SIF"},
	{`overlay = "fuze"`, `p.toml:1: overlay must be "kernel", "fuse", "ext3" or "auto", found "fuze": did you mean "fuse"?`},
	{`gpu_type = "a100:2"`, `p.toml:1: gpu_type must be a type of GPU such as "a100", found "a100:2": the number is the task's`},
	{`gres_type = "a100"`, `p.toml:1: unknown key "gres_type": did you mean "gpu_type"?`},
	{`target = "lake"`, `p.toml:1: key "target" stands in your configuration, as target and [targets.NAME]; the flag --target names one`},
	{`host = "lake"`, `p.toml:1: key "host" stands in [targets.NAME] of your configuration; the flags are --login for a cluster and --host for the backend ssh`},
	{`template = "x"`, `p.toml:1: key "template" stands in [terminal] of your configuration or of a task, as template; the flag --template names one`},
	{`level = "fs"`, `p.toml:1: key "level" is not supported by this version of berth: containment levels in a profile are not built yet`},
	{`state = "/scratch"`, `p.toml:1: key "state" cannot stand in a profile: what berth has recorded is to be found without one; set BERTH_HOME`},
	{"[proxy]\nhttp = \"http://ada:hush@proxy:1\"", `p.toml:2: proxy.http must not hold a user or a password: it would stand in the job script, where others may read it`},
	{"[proxy]\nhttps = \"proxy:3128\"", `p.toml:2: proxy.https must be a URL such as "http://proxy.example.org:3128", found "proxy:3128"`},
	{"[proxy]\nhttp_proxy = \"http://p:1\"", `p.toml:2: unknown key "http_proxy" in [proxy]: did you mean "http"?`},
	{"[proxy]\nno = \"a b\"", `p.toml:2: proxy.no must be names, addresses and networks separated by commas, found "a b"`},
	{`gpu = "intel"`, `p.toml:1: gpu must be "nvidia" or "amd", found "intel"`},
	{`gpu = true`, `p.toml:1: gpu must be a string, found true: put it in quotes: "true"`},
	{"modules = [\n\"a\", \"b; rm\"]", `p.toml:2: modules[1] is not the name of a module: "b; rm" may hold only letters, digits and . _ + / -`},
	{`modules = ["-x"]`, `p.toml:1: modules[0] is not the name of a module: "-x" may hold only letters, digits and . _ + / -`},
	{`modules = "gcc"`, `p.toml:1: modules must be a list of module names, found the string "gcc": write ["gcc"]`},
	{`module_init = "$HOME/x.sh"`, `p.toml:1: module_init must be the path of a file on the nodes, of letters, digits and . _ / + @ = -, such as "/etc/profile.d/zz-site.sh", found "$HOME/x.sh"`},
	{`scratch = "tmp"`, `p.toml:1: scratch must begin with / or a variable, found "tmp"`},
	{`scratch = "/"`, `p.toml:1: scratch is "/": name a directory that jobs may fill`},
	{`scratch = "/a/../b"`, `p.toml:1: scratch must not hold .., found "/a/../b"`},
	{`scratch = "/a/$(id)"`, `p.toml:1: scratch may hold only $NAME and ${NAME} with an upper-case name, found "/a/$(id)"`},
	{`scratch = "/a/${X:-b}"`, `p.toml:1: scratch may hold only $NAME and ${NAME} with an upper-case name, found "/a/${X:-b}"`},
	{`scratch = "/a/$user"`, `p.toml:1: scratch may hold only $NAME and ${NAME} with an upper-case name, found "/a/$user"`},
	{"scratch = \"/a/`id`\"", "p.toml:1: scratch may hold only letters, digits, . _ / + @ = - and variables, found \"/a/`id`\""},
	{`scratch = "/a b"`, `p.toml:1: scratch may hold only letters, digits, . _ / + @ = - and variables, found "/a b"`},
	{`scratch = "/a'b"`, `p.toml:1: scratch may hold only letters, digits, . _ / + @ = - and variables, found "/a'b"`},
	{`scratch = "/a\nb"`, "p.toml:1: scratch holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{`forbid = ["--mem"]`, `p.toml:1: forbid[0] is written without dashes: "mem"`},
	{`forbid = ["cpus-per-tasks"]`, `p.toml:1: forbid[0] is not an option of sbatch: "cpus-per-tasks": did you mean "cpus-per-task"?`},
	{`forbid = ["mem", "mem"]`, `p.toml:1: forbid[1] names "mem" a second time`},
	{"[versions]\nslurm = 24.10", `p.toml:2: versions.slurm must be a string, found the number 24.10: put it in quotes: "24.10"`},
	{"[versions]\nslurm = \"v24\"", `p.toml:2: versions.slurm must be a version such as "24.11", found "v24"`},
	{"[versions]\nsingularity = \"4.1\"", `p.toml:2: unknown key "singularity" in [versions]: did you mean "apptainer"?`},
	{"[slurm]\nextra = [\"--export=ALL\"]", `p.toml:2: slurm.extra[0] must not set --export: berth sets the environment; use env in [terminal]`},
	{"gpu = \"amd\"\ngpu = \"amd\"", `p.toml:2: duplicate key "gpu"`},
	{"a = \x00", "p.toml:1: the file is binary: it holds a NUL byte"},
	{strings.Repeat("#\n", 1<<16), "p.toml: the file has more than 64KiB"},
}

func TestRefused(t *testing.T) {
	for _, c := range refused {
		_, err := Parse("p.toml", []byte(c.text))
		var e *jobs.Error
		if !errors.As(err, &e) || e.Kind != jobs.KindUsage {
			t.Errorf("%s: not a usage error: %v", c.text, err)
			continue
		}
		got := e.Error()
		if e.Hint != "" {
			got += "\nhint: " + e.Hint
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	both := write(first, "both.toml", `gpu = "amd"`)
	write(second, "both.toml", `gpu = "nvidia"`)
	lake := write(second, "lake.toml", full)
	write(second, "notes.txt", "")

	for _, c := range []struct{ name, file, profile string }{
		{"both", both, "both"}, {"lake", lake, "lake"}, {"lake.toml", lake, "lake"}, {lake, lake, "lake"},
	} {
		p, file, err := Load(c.name, first, filepath.Join(first, "none"), second)
		if err != nil || file != c.file || p.Name != c.profile {
			t.Errorf("Load(%q) = %q, %q, %v", c.name, p.Name, file, err)
		}
	}
	if p, _, _ := Load("both", first, second); p.GPU != "amd" {
		t.Errorf("the first directory does not win: %q", p.GPU)
	}

	for _, c := range []struct {
		name, want, hint string
		kind             jobs.Kind
	}{
		{"laek", `profile "laek" does not exist: did you mean "lake"?`, "the profiles are both, lake", jobs.KindNotFound},
		{"./none.toml", "profile none.toml does not exist", "", jobs.KindNotFound},
		{"a b", `profile name "a b" is not made of letters, digits, dots, dashes and underscores`, "", jobs.KindUsage},
		{"", `profile name "" is not made of letters, digits, dots, dashes and underscores`, "", jobs.KindUsage},
		{"..", `profile name ".." is not made of letters, digits, dots, dashes and underscores`, "", jobs.KindUsage},
	} {
		_, _, err := Load(c.name, first, second)
		if err == nil || err.Error() != c.want || jobs.HintOf(err) != c.hint || jobs.KindOf(err) != c.kind {
			t.Errorf("Load(%q): %v (%s)", c.name, err, jobs.HintOf(err))
		}
	}
	_, _, err := Load("x", "/none")
	if jobs.HintOf(err) != "write /none/x.toml" {
		t.Errorf("hint %q", jobs.HintOf(err))
	}
}

var plainScratch = regexp.MustCompile(`^(/|\$[A-Z_{])[A-Za-z0-9._/+@=${}-]*$`)

// TestTrusted: what anybody could have written is not used.
func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "site.toml")
	if err := os.WriteFile(file, []byte(`gpu = "amd"`), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.toml")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	stranger := func() error { return nil }
	if os.Geteuid() == 0 {
		stranger = func() error { return os.Chown(file, 1, 1) }
	}
	for _, c := range []struct {
		file, dir os.FileMode
		owner     func() error
		want      string
	}{
		{0o600, 0o700, nil, ""},
		{0o664, 0o775 | os.ModeSetgid, nil, ""}, // a group's
		{0o644, 0o777 | os.ModeSticky, nil, ""},
		{0o606, 0o700, nil, "everybody may write it"},
		{0o600, 0o777, nil, "everybody may write its directory, and so replace it"},
		{0o644, 0o755, stranger, ""},
		{0o644, 0o777 | os.ModeSticky, stranger, "it belongs to user 1 and stands where everybody may put files"},
	} {
		if c.owner != nil {
			if os.Geteuid() != 0 {
				continue // only root can give files away
			}
			if err := c.owner(); err != nil {
				t.Fatal(err)
			}
		}
		for path, mode := range map[string]os.FileMode{file: c.file, dir: c.dir} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{file, link} {
			_, _, err := Load(name)
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v in %v: %v, want %q", c.file, c.dir, err, c.want)
			case err != nil && (jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == ""):
				t.Errorf("%v (%s)", err, jobs.HintOf(err))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	for _, c := range refused {
		if len(c.text) < 1000 {
			f.Add(c.text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("/p/x.toml", []byte(text))
		if err != nil {
			if jobs.KindOf(err) != jobs.KindUsage {
				t.Errorf("not a usage error: %v", err)
			}
			return
		}
		if p.Scratch != "" && (!plainScratch.MatchString(p.Scratch) || strings.Contains(p.Scratch, "$(")) {
			t.Errorf("scratch %q", p.Scratch)
		}
		for _, m := range p.Modules {
			if !moduleForm().MatchString(m) {
				t.Errorf("module %q", m)
			}
		}
		all := append(append([]string{p.Image, p.Slurm.Partition, p.Slurm.Account, p.Slurm.QOS, p.Slurm.Constraint,
			p.Versions.Slurm, p.Versions.Apptainer, p.GPUType, p.Proxy.HTTP, p.Proxy.HTTPS, p.Proxy.No}, p.Slurm.Extra...), p.Forbid...)
		for _, s := range all {
			if err := jobs.CheckText("value", s); err != nil {
				t.Error(err)
			}
		}
	})
}
