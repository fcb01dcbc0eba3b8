package task

import (
	"slices"
	"strings"

	"berth/apptainer/names"
	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

var overlayForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]*$`)

func terminal(task *jobs.Task, t *strict.Reader) {
	t.Later("containment levels are not built yet", "level")
	t.Refuse(inNetwork, "network", "egress", "allow")
	t.Refuse("stands in [workspace]", "ports")
	t.Later("a job in a named environment is not built yet; commands in one: berth exec --env NAME", "session", "lifetime_seconds", "lifetime")
	t.Later("a job that begins with an environment's snapshot is not built yet; commands after one: berth exec --from NAME", "snapshot")
	t.Later("secrets are not built yet", "secrets")
	t.Refuse("is chosen where the task is submitted: use the flag --target", "target")
	t.Synonyms("bind", "mounts", "mount", "volumes", "binds")
	t.Synonyms("env", "environment")
	t.Synonyms("image", "container", "sif")
	image := t.Take("image")
	t.Synonyms("overlay_wait", "wait")
	task.Backend = backend(t.Take("backend"))
	task.Image = keys.Image(image)
	task.Overlay.Name = overlay(t.Take("overlay"))
	task.Mounts = binds(t.Take("bind"))
	task.Env = env(t.Take("env"))
	task.SSH = host(t.Take("host"))
	keys.Take(t, "terminal", &task.Place, "backend", "image", "overlay", "bind", "env", "host")
	if task.Image != "" {
		task.Reference, _ = image.Raw()
	}
	name := t.Take("template")
	if task.Template = template(name); name.Given() && image.Given() {
		name.Failf("leave one of them out", "is given beside an image")
	}
}

func backend(v strict.Value) string {
	if v.Is(strict.String) {
		switch s, _ := v.Raw(); {
		case jobs.MeantBackend(s) != "":
			v.Failf("", "must not be %q: did you mean %q?", s, jobs.MeantBackend(s))
			return ""
		case IsProgram(s):
			return s
		}
	}
	return v.OneOf(Backends()...)
}

// Backends returns the words that every berth knows for backends. Any other may
// be that of a program, see [IsProgram].
func Backends() []string {
	return slices.Concat([]string{jobs.BackendAuto}, jobs.Backends(), jobs.KnownPrograms())
}

// IsProgram tells whether a word names a backend that is a program of its own,
// and is no slip of the finger for another one.
func IsProgram(word string) bool {
	return jobs.IsProgram(word) && strict.Slip(word, Backends(), 2) == ""
}

// host reads where the backend ssh goes. Options of ssh are no key: one of them
// names a program that runs on this machine, and a task file may be anybody's.
func host(v strict.Value) *jobs.SSHSpec {
	s := v.Text()
	if s == "" {
		return nil
	}
	h, err := jobs.ParseHost(s)
	if err != nil {
		v.Fail(err)
	}
	return &h
}

func overlay(v strict.Value) string {
	s := v.Text()
	if s != "" && (len(s) > 64 || !overlayForm().MatchString(s)) {
		v.Failf("", "must be a name of lower-case letters, digits, dots, dashes and underscores, at most 64, found %q", s)
		return ""
	}
	return s
}

var templateForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// template reads the name of a workspace template.
func template(v strict.Value) string {
	s := v.Text()
	if s != "" && !templateForm().MatchString(s) {
		v.Failf("", "must be the name of a template: lower-case letters, digits, dots, dashes and underscores, at most 64, found %q", s)
		return ""
	}
	return s
}

var envName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// env reads NAME and NAME=VALUE.
func env(v strict.Value) []string {
	var out []string
	seen := map[string]bool{}
	for _, item := range v.Items(`"NAME" or "NAME=VALUE"`) {
		s, ok := item.Raw()
		if !ok {
			continue
		}
		if err := jobs.CheckText("an environment variable", s); err != nil {
			item.Fail(err)
			continue
		}
		name := nameOf(s)
		switch owner := envOwner(name); {
		case !envName().MatchString(name):
			item.Failf("", "is not NAME or NAME=VALUE: the name is %q", name)
		case owner != "":
			item.Failf("", "sets %s, and names with %s belong to berth and its container program", name, owner)
		case seen[name]:
			item.Failf("", "names %s a second time", name)
		default:
			out = append(out, s)
		}
		seen[name] = true
	}
	return out
}

func envOwner(name string) string {
	for _, p := range append(names.Reserved, "BERTH_") {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// nameOf is the name in NAME or NAME=VALUE.
func nameOf(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}
