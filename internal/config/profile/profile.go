package profile

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/slurm/options"
)

var nameForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Parse reads the content of a profile. The file's name stands in errors and,
// without its directory and ".toml", is the profile's name; a relative image
// is relative to the file's directory.
func Parse(file string, data []byte) (jobs.Profile, error) {
	name := strings.TrimSuffix(filepath.Base(file), strict.Ext)
	if len(name) > 64 || !nameForm().MatchString(name) {
		return jobs.Profile{}, badName(name)
	}
	doc, err := strict.DecodeTOML(file, data)
	if err != nil {
		return jobs.Profile{}, err
	}
	root := doc.Root()
	root.Later("containment levels in a profile are not built yet", "level")
	root.Refuse("stands in [network], as allow", "egress")
	root.Refuse("cannot stand in a profile: what berth has recorded is to be found without one; set BERTH_HOME", "state", "home", "berth_home")
	root.Refuse("stands in your configuration, as target and [targets.NAME]; the flag --target names one", "target")
	root.Refuse("stands in [targets.NAME] of your configuration; the flags are --login for a cluster and --host for the backend ssh", "host")
	root.Refuse("stands in [terminal] of your configuration or of a task, as template; the flag --template names one", "template")
	root.Synonyms("modules", "module")
	root.Synonyms("scratch", "tmp", "tmpdir")
	root.Synonyms("gpu_type", "gres", "gres_type")
	p := jobs.Profile{
		Name:       name,
		Scheduler:  root.Take("scheduler").OneOf(jobs.Schedulers()...),
		Image:      keys.Image(root.Take("image")),
		ImageCache: scratch(root.Take("image_cache")),
		Modules:    modules(root.Take("modules")),
		ModuleInit: moduleInit(root.Take("module_init")),
		Scratch:    scratch(root.Take("scratch")),
		Stage:      keys.Stage(root.Take("stage")),
		Forbid:     forbid(root.Take("forbid")),
		Overlay:    driver(root.Take("overlay")),
		GPU:        root.Take("gpu").OneOf("nvidia", "amd"),
		GPUType:    gpuType(root.Take("gpu_type")),
		Proxy:      proxy(root.Table("proxy")),
		Slurm:      keys.Slurm(root.Table("slurm")),
		Beat:       beat(root.Take("beat")),
		NodesMute:  mute(root.Take("nodes_submit")),
		Purge:      purge(root.Take("purge")),
		Versions:   versions(root.Table("versions")),
	}
	p.Network, p.Via = network(root.Table("network"), name)
	p.Caps = caps(root.Table("caps"))
	if err := doc.Err(); err != nil {
		return jobs.Profile{}, err
	}
	return p, nil
}

func badName(name string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "profile name " + strconv.Quote(name) + " is not made of letters, digits, dots, dashes and underscores"}
}

var moduleForm = pattern.Lazy(`^[A-Za-z0-9_][A-Za-z0-9._+/-]*$`)

// modules reads the words for "module load"; they stand in the job script.
func modules(v strict.Value) []string {
	var out []string
	for _, item := range v.Items("module names") {
		s := item.Text()
		switch {
		case s == "":
		case !moduleForm().MatchString(s):
			item.Failf("", "is not the name of a module: %q may hold only letters, digits and . _ + / -", s)
		default:
			out = append(out, s)
		}
	}
	return out
}

// moduleInit reads the file that the job script reads "module" from.
func moduleInit(v strict.Value) string {
	s := v.Text()
	if s != "" && (!path.IsAbs(s) || path.Clean(s) != s || !scratchForm().MatchString(s)) {
		v.Failf("", "must be the path of a file on the nodes, of letters, digits and . _ / + @ = -, such as %q, found %q",
			"/etc/profile.d/zz-site.sh", s)
		return ""
	}
	return s
}

// forbid reads names of options that the site's Slurm refuses.
func forbid(v strict.Value) []string {
	known := options.Names()
	var out []string
	seen := map[string]bool{}
	for _, item := range v.Items(options.What + " without dashes") {
		s := item.Text()
		switch {
		case s == "":
		case strings.HasPrefix(s, "-"):
			item.Failf("", "is written without dashes: %q", strings.TrimLeft(s, "-"))
		case !slices.Contains(known, s):
			item.Failf("", "is not an option of %s: %q%s", options.Program, s, strict.DidYouMean(s, known))
		case seen[s]:
			item.Failf("", "names %q a second time", s)
		default:
			out = append(out, s)
		}
		seen[s] = true
	}
	return out
}

// Bounded repetitions are large: compiled when needed, and not at every start.
var versionForm = pattern.Lazy(`^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$`)

func versions(t *strict.Reader) jobs.Versions {
	t.Synonyms("apptainer", "singularity")
	return jobs.Versions{Slurm: version(t.Take("slurm"), "24.11"), Apptainer: version(t.Take("apptainer"), "1.4.5")}
}

func version(v strict.Value, such string) string {
	s := v.Text()
	if s != "" && !versionForm().MatchString(s) {
		v.Failf("", "must be a version such as %q, found %q", such, s)
		return ""
	}
	return s
}
