package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/jobs"
)

func checkEnvOptions(o EnvOptions) error {
	values := [][2]string{{"the image", o.Image}, {"the directory", o.Dir}, {"the host", o.SSH.Host}, {"the ssh user", o.SSH.User}, {"the ssh key", o.SSH.Key}, {"the docker user", o.Docker.User}, {"the backend", o.Backend}}
	for _, m := range o.Mounts {
		values = append(values, [2]string{"a bind source", m.Source}, [2]string{"a bind destination", m.Destination})
	}
	for _, l := range [][]string{o.SSH.Options, o.Docker.Volumes, o.Docker.ExtraArgs} {
		for _, v := range l {
			values = append(values, [2]string{"an option", v})
		}
	}
	for _, v := range values {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return err
		}
	}
	for _, kv := range o.Env {
		if n, _, ok := strings.Cut(kv, "="); !ok || !envName.MatchString(n) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an environment variable", n), Hint: "letters, digits and underscores"}
		}
	}
	if !slices.Contains([]string{"", "host", "none"}, o.Network) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown network %q", o.Network), Hint: `"host" or "none"`}
	}
	if !slices.Contains([]string{"", "nvidia", "amd"}, o.GPU) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown kind of GPU %q", o.GPU), Hint: `"nvidia" or "amd"`}
	}
	if !slices.Contains([]string{"", "auto", jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3}, o.Overlay) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown overlay driver %q", o.Overlay), Hint: "auto, kernel, fuse or ext3"}
	}
	return nil
}

// sameEnv refuses options that differ from those of an environment that exists.
func sameEnv(s *jobs.EnvSpec, o EnvOptions) error {
	d := jobs.DockerSpec{}
	if s.Docker != nil {
		d = *s.Docker
	}
	host := jobs.SSHSpec{}
	if s.SSH != nil {
		host = *s.SSH
	}
	image := func(s string) string {
		if s != "" && !strings.Contains(s, "://") {
			if abs, err := filepath.Abs(s); err == nil {
				if _, err := os.Stat(abs); err == nil {
					return abs
				}
			}
		}
		return strings.TrimPrefix(s, "docker://")
	}
	differs := func(what, has, wants string) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("environment %s exists with the %s %s, not %s", s.Name, what, has, wants),
			Hint: "name another one with --env; or berth env rm " + s.Name + " removes it, with its files"}
	}
	for _, v := range [][3]string{
		{"backend", s.Backend, o.Backend}, {"image", image(s.Image), image(o.Image)}, {"gpu", s.GPU, o.GPU},
		{"overlay driver", s.Overlay.Driver, o.Overlay}, {"docker user", d.User, o.Docker.User}, {"host", host.Host, o.SSH.Host}, {"ssh user", host.User, o.SSH.User},
	} {
		if v[2] != "" && v[2] != "auto" && v[1] != v[2] {
			return differs(v[0], dash(v[1]), v[2])
		}
	}
	for _, v := range []struct {
		what       string
		has, wants jobs.Bytes
	}{{"memory", s.Resources.Memory, o.Memory}, {"disk", s.Resources.Disk, o.Disk}} {
		if v.wants != 0 && v.has != v.wants {
			return differs(v.what, v.has.String(), v.wants.String())
		}
	}
	switch {
	case o.CPUs != 0 && s.Resources.CPUs != o.CPUs:
		return differs("number of CPUs", fmt.Sprint(s.Resources.CPUs), fmt.Sprint(o.CPUs))
	case o.Docker.Pids != 0 && d.Pids != o.Docker.Pids:
		return differs("limit of processes", fmt.Sprint(d.Pids), fmt.Sprint(o.Docker.Pids))
	case o.SSH.Port != 0 && host.Port != o.SSH.Port:
		return differs("ssh port", fmt.Sprint(host.Port), fmt.Sprint(o.SSH.Port))
	case o.Network == "none" && s.Network != "none":
		return differs("network", "host", "none")
	case o.Fakeroot && !s.Fakeroot, o.Strict && !s.Strict:
		return differs("values", "of its own", "fakeroot or strict limits")
	case len(o.Mounts) > 0 && !slices.Equal(o.Mounts, s.Mounts):
		return differs("binds", mountList(s.Mounts), mountList(o.Mounts))
	case len(o.Docker.Volumes) > 0 && !slices.Equal(o.Docker.Volumes, d.Volumes):
		return differs("volumes", dash(strings.Join(d.Volumes, " ")), strings.Join(o.Docker.Volumes, " "))
	}
	return nil
}

func mountList(list []jobs.Mount) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Source+":"+m.Destination)
	}
	return dash(strings.Join(out, " "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
