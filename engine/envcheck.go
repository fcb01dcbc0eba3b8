package engine

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/config/keys"
	"berth/jobs"
)

func checkEnvOptions(o jobs.EnvOptions) error {
	docker, host := valueOf(o.Docker), valueOf(o.SSH)
	values := [][2]string{
		{"the image", o.Image},
		{"the directory", o.Dir},
		{"the host", host.Host},
		{"the ssh user", host.User},
		{"the ssh key", host.Key},
		{"the docker user", docker.User},
		{"the backend", o.Backend},
	}
	for _, m := range o.Mounts {
		values = append(values, [2]string{"a bind source", m.Source}, [2]string{"a bind destination", m.Destination})
	}
	for _, l := range [][]string{host.Options, docker.Volumes, docker.ExtraArgs} {
		for _, v := range l {
			values = append(values, [2]string{"an option", v})
		}
	}
	for _, v := range values {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return err
		}
	}
	if err := checkVariables(o.Env); err != nil {
		return err
	}
	for _, name := range o.Forward {
		if strings.Contains(name, "=") {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "a forwarded variable is a name without a value",
				Hint: "its value is taken from whoever runs a command; a fixed one: --set NAME=VALUE"}
		}
		if err := checkVariables([]string{name + "="}); err != nil {
			return err
		}
	}
	if o.Network.Mode != "" && !slices.Contains(jobs.NetworkModes, o.Network.Mode) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown network mode %q", o.Network.Mode),
			Hint: "give " + strings.Join(jobs.NetworkModes, ", ")}
	}
	if !slices.Contains([]string{"", "nvidia", "amd"}, o.GPU) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown kind of GPU %q", o.GPU), Hint: `give "nvidia" or "amd"`}
	}
	if !slices.Contains([]string{"", "auto", jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3}, o.Overlay.Driver) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown overlay driver %q", o.Overlay.Driver),
			Hint: "give auto, kernel, fuse or ext3; an environment has files of its own, and no named overlay"}
	}
	return nil
}

// checkVariables refuses what is not NAME=VALUE.
func checkVariables(list []string) error {
	for _, kv := range list {
		n, _, ok := strings.Cut(kv, "=")
		if !envName().MatchString(n) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an environment variable", n),
				Hint: "use letters, digits and underscores, a digit not first"}
		}
		if !ok {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the environment variable " + n + " has no value", Hint: "write " + n + "=VALUE"}
		}
	}
	return nil
}

// same refuses options that differ from those of an environment that exists.
func (e *Engine) same(s *jobs.EnvSpec, o jobs.EnvOptions) error {
	if err := samePlace(s, o.Place, false); err != nil {
		return err
	}
	if err := sameCredentials(s, o.Credentials); err != nil {
		return err
	}
	forward, wanted := strings.Join(s.Forward, " "), strings.Join(o.Forward, " ")
	switch {
	case wanted != "" && forward != wanted:
		return differs(s, "other forwarded variables: "+none(forward)+", not "+wanted)
	case o.Lifetime != 0 && s.Lifetime != max(0, o.Lifetime):
		return differs(s, "another lifetime: "+lifetime(s.Lifetime)+", not "+lifetime(o.Lifetime))
	case o.Destroy && s.Persistent:
		return differs(s, "files that stay when it stops")
	case o.Keep && !s.Persistent:
		return differs(s, "files that end when it stops")
	case o.Fakeroot && !s.Fakeroot:
		return differs(s, "an ordinary user inside, not root")
	case o.Strict && !s.Strict:
		return differs(s, "limits that are not strict")
	}
	return e.sameScheduler(s, o)
}

// samePlace compares what is said of a place: all of it that is of any
// environment, or what is of an allocation.
func samePlace(s *jobs.EnvSpec, wants jobs.Place, held bool) error {
	for i := range keys.Fields {
		f := &keys.Fields[i]
		if f.Differs == "" || f.Held != held {
			continue
		}
		has, wanted := cmp.Or(f.Shown(s.Place), f.Usual), f.Shown(wants)
		if f.Adds && strings.Contains(" "+has+" ", " "+wanted+" ") {
			continue // the configuration had said the rest
		}
		if wanted != "" && wanted != f.Any && has != wanted {
			return differs(s, f.Differs+": "+none(has)+", not "+wanted)
		}
	}
	return nil
}

func differs(s *jobs.EnvSpec, how string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "the environment " + s.Name + " was made with " + how,
		Hint: "leave that out; or make another one with --env NAME; or remove this one with its files: berth env rm " + s.Name}
}

func unlessAuto(s string) string {
	if s == "auto" {
		return ""
	}
	return s
}

func lifetime(d time.Duration) string {
	if d <= 0 {
		return "for ever"
	}
	return d.String()
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// checkMounts refuses a bind whose source lies below another one that can be
// written inside: a command there could put a symbolic link in its place, and
// the next opening would follow that on the host.
func checkMounts(mounts []jobs.Mount) error {
	real := func(path string) string {
		if p, err := filepath.EvalSymlinks(path); err == nil {
			return p
		}
		return filepath.Clean(path)
	}
	below := func(path, dir string) bool {
		rel, err := filepath.Rel(dir, path)
		return err == nil && rel != "." && filepath.IsLocal(rel)
	}
	for _, w := range mounts {
		if !w.Writable {
			continue
		}
		for _, m := range mounts {
			if dir := real(w.Source); below(real(m.Source), dir) || below(filepath.Clean(m.Source), dir) {
				return &jobs.Error{Kind: jobs.KindConfig,
					Msg: "the bind source " + m.Source + " lies below " + w.Source +
						", which commands can write: they could put a link in its place",
					Hint: "leave that bind out (it is seen below the other), or make " + w.Source + " read-only"}
			}
		}
	}
	return nil
}
