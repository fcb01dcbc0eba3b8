package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/backends/ssh"
	"berth/engine"
	"berth/internal/strict"
	"berth/internal/task"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// envFlags say which environment is meant, and what it is to be like where it
// is made.
type envFlags struct {
	name, session                               string
	backend, image, overlay, gpu, network, user string
	memory, disk, cpus, lifetime, limits, dir   string
	bind, set, volumes, sshOptions              []string
	host, sshKey                                string
	pids                                        int
	discard, fakeroot                           bool
}

const envHelp = `
The environment is made on first use, stays warm for --lifetime after its last
command, and keeps its files until berth env rm. Without --env it is called
"default", or, when --backend names one, after the backend. The flags that say
what it is like count when it is made; later, others are refused.
`

// pick adds the flags that only choose.
func (f *envFlags) pick(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "env", os.Getenv("BERTH_ENV"), "name of the environment ($BERTH_ENV)")
}

// add adds all of them.
func (f *envFlags) add(c *cobra.Command) {
	f.pick(c)
	fs := c.Flags()
	fs.StringVar(&f.session, "session", os.Getenv("BERTH_SESSION"), "session with its own directory and variables (default \"default\"; $BERTH_SESSION)")
	fs.StringVar(&f.backend, "backend", "", "auto, singularity, docker, ssh or local (default auto; the last two only when named)")
	fs.StringVar(&f.image, "image", "", "SIF file, unpacked image or reference such as docker://debian:12")
	fs.StringArrayVar(&f.bind, "bind", nil, "bind SRC[:DST[:rw]], read-only unless rw")
	fs.StringArrayVar(&f.set, "set", nil, "NAME=VALUE for every command in it; not for secrets")
	fs.StringVar(&f.cpus, "cpus", "", "CPUs (default 1)")
	fs.StringVar(&f.memory, "memory", "", "memory, such as 512MiB; a bare number is MiB (default 5120)")
	fs.StringVar(&f.disk, "disk", "", "size of the writable layer, such as 50GiB")
	fs.StringVar(&f.limits, "limits", "", "strict: a limit that cannot be held is an error")
	fs.StringVar(&f.gpu, "gpu", "", "nvidia or amd: the node's GPUs inside")
	fs.StringVar(&f.network, "network", "", "host or none (default host)")
	fs.StringVar(&f.overlay, "overlay", "", "singularity: driver of the writable layer: auto, kernel, fuse or ext3 (default auto)")
	fs.BoolVar(&f.fakeroot, "fakeroot", false, "singularity: be root inside, as far as the site allows")
	fs.BoolVar(&f.discard, "discard", false, "throw its files away when it stops")
	fs.StringVar(&f.user, "user", "", "docker: UID:GID inside (default: the image's user)")
	fs.IntVar(&f.pids, "pids", 0, "docker: most processes (default 256)")
	fs.StringArrayVar(&f.volumes, "volume", nil, "docker: volume, as for docker run")
	fs.StringVar(&f.host, "host", "", "ssh: [USER@]HOST[:PORT] ($TERMINAL_SSH_HOST, _USER, _PORT)")
	fs.StringVar(&f.sshKey, "ssh-key", "", "ssh: identity file ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "ssh: any option, Name=value")
	fs.StringVar(&f.lifetime, "lifetime", "", "stay warm for so long without use (default 300s; 0 for ever)")
}

// options reads the flags.
func (f *envFlags) options(cmd *cobra.Command) (engine.EnvOptions, error) {
	o := engine.EnvOptions{
		Name: f.name, Backend: f.backend, Image: f.image, Overlay: f.overlay, Discard: f.discard, Env: f.set, GPU: f.gpu, Network: f.network,
		Fakeroot: f.fakeroot, Dir: f.dir, Docker: jobs.DockerSpec{User: f.user, Pids: f.pids, Volumes: f.volumes},
	}
	if f.backend == "apptainer" {
		return o, &jobs.Error{Kind: jobs.KindUsage, Msg: `--backend must not be "apptainer"`, Hint: "--backend singularity"}
	}
	var t jobs.Task
	var set []strict.Flag
	for _, k := range []strict.Flag{
		{Name: "cpus", Table: "resources", Key: "cpus", Kind: strict.Int, Values: []string{f.cpus}},
		{Name: "memory", Table: "resources", Key: "memory", Kind: strict.String, Values: []string{f.memory}},
		{Name: "disk", Table: "resources", Key: "disk", Kind: strict.String, Values: []string{f.disk}},
		{Name: "bind", Table: "terminal", Key: "bind", Kind: strict.List, Values: f.bind},
	} {
		if cmd.Flags().Changed(k.Name) {
			set = append(set, k)
		}
	}
	if err := task.Override(&t, set); err != nil {
		return o, err
	}
	o.CPUs, o.Memory, o.Disk, o.Mounts = t.Resources.CPUs, t.Resources.Memory, t.Resources.Disk, t.Terminal.Bind
	switch f.limits {
	case "":
	case "strict":
		o.Strict = true
	default:
		return o, usage("--limits must be strict, found %q", f.limits)
	}
	if f.lifetime != "" {
		var err error
		if o.Lifetime, err = orNever("--lifetime", f.lifetime); err != nil {
			return o, err
		}
	}
	return o, f.ssh(&o)
}

// ssh reads which host is meant: --host over the variables that agents set.
func (f *envFlags) ssh(o *engine.EnvOptions) error {
	if f.backend == jobs.BackendSSH {
		from, err := ssh.FromEnv(os.Getenv)
		if err != nil {
			return err
		}
		if from != nil {
			o.SSH = *from
		}
	}
	if f.host != "" {
		user, host, ok := strings.Cut(f.host, "@")
		if !ok {
			user, host = "", f.host
		}
		o.SSH.User, o.SSH.Host, o.SSH.Port = user, host, 0
		// An address of IPv6 has colons of its own and stands in brackets when
		// a port follows.
		if h, port, err := net.SplitHostPort(host); err == nil {
			n, err := strconv.Atoi(port)
			if err != nil || n < 1 || n > 65535 {
				return usage("--host %s: %q is no port", f.host, port)
			}
			o.SSH.Host, o.SSH.Port = h, n
		}
	}
	if f.sshKey != "" {
		abs, err := filepath.Abs(f.sshKey)
		if err != nil {
			return err
		}
		o.SSH.Key = abs
	}
	o.SSH.Options = append(o.SSH.Options, f.sshOptions...)
	if o.SSH.Host == "" {
		return nil // the engine says that one is needed, unless the environment is recorded
	}
	return ssh.CheckSpec(o.SSH)
}

// environment returns the environment that the flags mean.
func (a *app) environment(cmd *cobra.Command, f *envFlags) (*engine.Environment, error) {
	o, err := f.options(cmd)
	if err != nil {
		return nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	v, err := e.Environment(cmd.Context(), o)
	if err != nil {
		return nil, err
	}
	v.Progress = a.progress
	return v, nil
}

// existing returns an environment that is recorded.
func (a *app) existing(name string) (*engine.Environment, error) {
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = jobs.DefaultEnvironment
	}
	v, err := e.FindEnvironment(name)
	if err != nil {
		return nil, err
	}
	v.Progress = a.progress
	return v, nil
}

// progress tells a person what takes long.
func (a *app) progress(text string) { a.say("%s", text) }

// variables reads NAME (taken from here) and NAME=VALUE.
func variables(list []string) ([]string, error) {
	var out []string
	for _, kv := range list {
		name, _, given := strings.Cut(kv, "=")
		if name == "" {
			return nil, usage("--var %q names no variable", kv)
		}
		if !given {
			v, ok := os.LookupEnv(name)
			if !ok {
				return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--var takes " + name + " from your environment, where it is not set", Hint: "export " + name + "=..."}
			}
			kv = name + "=" + v
		}
		out = append(out, kv)
	}
	return out, nil
}

// orNever reads a duration of which 0 means never, which is negative then; ""
// is 0, the default.
func orNever(flag, s string) (time.Duration, error) {
	switch strings.TrimSpace(s) {
	case "":
		return 0, nil
	case "0", "0s":
		return -1, nil
	}
	d, err := jobs.ParseDuration(s)
	if err != nil {
		return 0, usage("%s: %v", flag, err)
	}
	return d, nil
}

// command reads the words after "--".
func command(cmd *cobra.Command, args []string) (jobs.Command, error) {
	if len(args) == 0 || (len(args) == 1 && strings.TrimSpace(args[0]) == "") {
		return jobs.Command{}, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a command after --", Hint: cmd.CommandPath() + " -- 'make && make test'"}
	}
	if dash := cmd.ArgsLenAtDash(); dash != 0 {
		return jobs.Command{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unexpected argument %q", args[0]), Hint: "the command comes after --: " + cmd.CommandPath() + " -- " + strings.Join(args, " ")}
	}
	return jobs.Words(args), nil
}
