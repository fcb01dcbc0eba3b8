package task

import (
	"regexp"
	"slices"
	"strings"

	"berth/internal/keys"
	"berth/internal/strict"
	"berth/jobs"
)

// later are the backends whose names are known and that are not built yet.
var later = []string{"modal", "daytona"}

var overlayForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

func terminal(t *strict.Reader) jobs.Terminal {
	t.Later("network and containment levels are not built yet", "network", "level", "egress", "allow", "ports")
	t.Later("named environments and sessions are not built yet", "session", "lifetime_seconds", "lifetime")
	t.Later("snapshots are not built yet", "snapshot")
	t.Later("templates are not built yet", "template")
	t.Later("secrets are not built yet", "secrets")
	t.Later("remote targets are not built yet", "target")
	t.Synonyms("bind", "mounts", "mount", "volumes", "binds")
	t.Synonyms("env", "environment")
	t.Synonyms("image", "container", "sif")
	image := t.Take("image")
	term := jobs.Terminal{
		Backend: backend(t.Take("backend")),
		Image:   keys.Image(image),
		Overlay: overlay(t.Take("overlay")),
		Bind:    binds(t.Take("bind")),
		Env:     env(t.Take("env")),
		SSH:     host(t.Take("host")),
	}
	if term.Image != "" {
		term.Reference, _ = image.Raw()
	}
	return term
}

func backend(v strict.Value) string {
	if v.Is(strict.String) {
		switch s, _ := v.Raw(); {
		case slices.Contains(later, s):
			v.Failf("", "%q is not supported by this version of berth: this backend is not built yet", s)
			return ""
		case s == "apptainer": // another program, the same backend
			v.Failf("", "must not be %q: did you mean %q?", s, jobs.BackendSingularity)
			return ""
		}
	}
	return v.OneOf(jobs.BackendAuto, jobs.BackendSingularity, jobs.BackendDocker, jobs.BackendSSH, jobs.BackendLocal)
}

// host reads where the backend ssh goes. Options of ssh are no key: one of them
// names a program that runs on this machine, and a task file may be anybody's.
func host(v strict.Value) jobs.SSHSpec {
	s := v.Text()
	if s == "" {
		return jobs.SSHSpec{}
	}
	h, err := jobs.ParseHost(s)
	if err != nil {
		v.Fail(err)
	}
	return h
}

func overlay(v strict.Value) string {
	s := v.Text()
	if s != "" && (len(s) > 64 || !overlayForm.MatchString(s)) {
		v.Failf("", "must be a name of lower-case letters, digits, dots, dashes and underscores, at most 64, found %q", s)
		return ""
	}
	return s
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

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
		case !envName.MatchString(name):
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
	for _, p := range []string{"APPTAINER", "SINGULARITY", "BERTH_"} {
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
