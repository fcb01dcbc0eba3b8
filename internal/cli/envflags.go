package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	forward                                     []string
	discard, fakeroot, mountCwd                 bool
}

// workspaceDir is where --mount-cwd shows the current directory.
const workspaceDir = "/workspace"

const envHelp = `
The environment is made on first use, stays warm for --lifetime after its last
command, and keeps its files until berth env rm. Without --env it is called
"default", or, when --backend names one, after the backend. The flags that say
what it is like count when it is made; later, other values are refused.
`

// pick adds the flags that only choose.
func (f *envFlags) pick(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "env", os.Getenv("BERTH_ENV"), "`NAME` of the environment ($BERTH_ENV)")
}

// add adds all of them.
func (f *envFlags) add(c *cobra.Command) {
	f.pick(c)
	fs := c.Flags()
	fs.StringVar(&f.session, "session", os.Getenv("BERTH_SESSION"), "`NAME` of the session, which has its own directory and variables (default \"default\"; $BERTH_SESSION)")
	fs.StringVar(&f.backend, "backend", "", "`NAME` is auto, singularity, docker, ssh or local (default auto; the last two only when named)")
	fs.StringVar(&f.image, "image", "", "`IMAGE`: a SIF file, an unpacked one, or a reference such as docker://debian:12")
	fs.StringArrayVar(&f.bind, "bind", nil, "show `SRC[:DST[:rw]]` of this machine inside, read-only unless rw")
	fs.StringArrayVar(&f.set, "set", nil, "`NAME=VALUE` for every command in it; not for secrets")
	fs.StringArrayVar(&f.forward, "forward", nil, "`NAME` of a variable that every command gets from whoever runs it; its values are not recorded")
	fs.BoolVar(&f.mountCwd, "mount-cwd", false, "bind the current directory to /workspace, writable, and begin there")
	fs.StringVar(&f.cpus, "cpus", "", "`NUMBER` of CPUs (default 1)")
	fs.StringVar(&f.memory, "memory", "", "memory `SIZE`, such as 512MiB; a bare number is MiB (default 5120)")
	fs.StringVar(&f.disk, "disk", "", "`SIZE` of the writable layer, such as 50GiB")
	fs.StringVar(&f.limits, "limits", "", "`strict`: a limit that is only watched, not held, is an error; no default limits")
	fs.StringVar(&f.gpu, "gpu", "", "`KIND` is nvidia or amd: the node's GPUs inside")
	fs.StringVar(&f.network, "network", "", "`KIND` is host or none (default host)")
	fs.StringVar(&f.overlay, "overlay", "", "singularity: `DRIVER` of the writable layer is auto, kernel, fuse or ext3 (default auto)")
	fs.BoolVar(&f.fakeroot, "fakeroot", false, "singularity: be root inside, as far as the site allows")
	fs.BoolVar(&f.discard, "discard", false, "throw its files away when it stops")
	fs.StringVar(&f.user, "user", "", "docker: `UID:GID` inside (default: the image's user)")
	fs.IntVar(&f.pids, "pids", 0, "docker: highest `NUMBER` of processes (default 256)")
	fs.StringArrayVar(&f.volumes, "volume", nil, "docker: `VOLUME`, as for docker run")
	fs.StringVar(&f.host, "host", "", "ssh: `[USER@]HOST[:PORT]`, else $TERMINAL_SSH_HOST, _USER and _PORT")
	fs.StringVar(&f.sshKey, "ssh-key", "", "ssh: identity `FILE` ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "ssh: any option, `Name=value`")
	fs.StringVar(&f.lifetime, "lifetime", "", "`TIME` to stay warm without use (default 300s; 0 for ever)")
}

// options reads the flags.
func (f *envFlags) options(cmd *cobra.Command) (engine.EnvOptions, error) {
	o := engine.EnvOptions{
		Name: f.name, Backend: f.backend, Image: f.image, Overlay: f.overlay, Discard: f.discard, Env: f.set, Forward: f.forward, GPU: f.gpu, Network: f.network,
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
	if f.mountCwd {
		cwd, err := os.Getwd()
		if err != nil {
			return o, err
		}
		o.Mounts = append(o.Mounts, jobs.Mount{Source: cwd, Destination: workspaceDir, Writable: true})
		o.Dir = workspaceDir
	}
	switch f.limits {
	case "":
	case "strict":
		o.Strict = true
	default:
		return o, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--limits must be strict, found %q", f.limits), Hint: "--limits strict, or leave it out: then a limit may be watched instead of held"}
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
func (f *envFlags) ssh(o *engine.EnvOptions) (err error) {
	if f.host != "" {
		if o.SSH, err = jobs.ParseHost(f.host); err != nil {
			return err
		}
	}
	if f.backend == jobs.BackendSSH || f.host != "" || f.sshKey != "" || len(f.sshOptions) > 0 {
		o.SSH, err = sshSpec(o.SSH, f.sshKey, f.sshOptions)
	}
	return err
}

// sshSpec completes a host by the caller's variables, when none is named, and
// by what the caller alone may say.
func sshSpec(s jobs.SSHSpec, key string, options []string) (jobs.SSHSpec, error) {
	if s.Host == "" {
		from, err := ssh.FromEnv(os.Getenv)
		if err != nil {
			return s, err
		}
		if from != nil {
			s = *from
		}
	}
	if key != "" {
		abs, err := filepath.Abs(key)
		if err != nil {
			return s, err
		}
		s.Key = abs
	}
	s.Options = append(s.Options, options...)
	if s.Host == "" {
		return s, nil // the engine says that one is needed, unless the environment is recorded
	}
	return s, ssh.CheckSpec(s)
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

// enter returns the environment that the flags mean and the session in it. The
// caller closes the environment.
func (a *app) enter(cmd *cobra.Command, f *envFlags) (*engine.Environment, *engine.Session, error) {
	v, err := a.environment(cmd, f)
	if err != nil {
		return nil, nil, err
	}
	s, err := v.Session(f.session)
	if err != nil {
		return nil, nil, err
	}
	return v, s, nil
}

// enterOpen is enter, and makes sure that the environment runs before anything
// else is done: that may take long, and speak.
func (a *app) enterOpen(cmd *cobra.Command, f *envFlags) (*engine.Environment, *engine.Session, error) {
	v, s, err := a.enter(cmd, f)
	if err != nil {
		return nil, nil, err
	}
	notes, err := v.Open(cmd.Context())
	if err != nil {
		return nil, nil, err
	}
	a.notes(notes)
	return v, s, nil
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

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables reads NAME (taken from here) and NAME=VALUE.
func variables(list []string) ([]string, error) {
	var out []string
	for _, kv := range list {
		name, _, given := strings.Cut(kv, "=")
		if !variableName.MatchString(name) {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--var %q names no variable", kv), Hint: "--var NAME or --var NAME=VALUE, with letters, digits and underscores in the name"}
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
