package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/backends/ssh"
	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/task"
	"berth/internal/sys/pattern"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// envFlags say which environment is meant, and what it is to be like where it
// is made.
type envFlags struct {
	name, session              string
	template                   string
	lifetime, limits, dir      string
	set, sshOptions            []string
	credentials                []string
	host, sshKey               string
	target, profile, scheduler string
	forward                    []string
	keep, mountCwd             bool
	// own is that a verb can have an environment of its own, which it leaves.
	own  bool
	held heldFlags
}

const envHelp = `The first command makes the environment. It stays warm for --lifetime after its last
command, and keeps its files until berth env rm. Without --env its name is that of
the backend or target that a flag or the configuration names, else "default". Flags
that describe it (image, limits, ...) count when it is made; later, other values are
refused.`

// pick adds the flags that only choose.
func (f *envFlags) pick(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "env", os.Getenv("BERTH_ENV"), "use the environment `NAME` ($BERTH_ENV)")
	c.Flags().StringVar(&f.target, "target", "", "use the target `NAME` of the configuration ($BERTH_TARGET)")
}

// named refuses an empty name of an environment or a session: a variable of a
// script that is not set must not choose, or make, the default one.
func named(cmd *cobra.Command) error {
	for name, what := range map[string]string{"env": "an environment's name", "session": "a session's name"} {
		f := cmd.Flags().Lookup(name)
		if f != nil && f.Changed && f.Value.Type() == "string" && strings.TrimSpace(f.Value.String()) == "" {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: what + " is empty", Hint: "berth env ls; without --" + name + " the default one is used"}
		}
	}
	return nil
}

// add adds all of them.
func (f *envFlags) add(c *cobra.Command) {
	f.pick(c)
	fs := c.Flags()
	fs.StringVar(&f.session, "session", os.Getenv("BERTH_SESSION"),
		"use the session `NAME`, with its own directory and variables (default \"default\"; $BERTH_SESSION)")
	fs.StringVar(&f.template, "template", "", "singularity: use the template `NAME` instead of an image (berth template ls)")
	fs.StringArrayVar(&f.set, "set", nil, "set `NAME=VALUE` for every command in it; not for secrets; repeatable")
	fs.StringArrayVar(&f.forward, "forward", nil, "pass the variable `NAME` of the caller to every command; its value is not recorded; repeatable")
	fs.StringArrayVar(&f.credentials, "credential", nil,
		"use the key `NAME` of the configuration, which commands never see: anthropic, openai, github and others; repeatable")
	fs.BoolVar(&f.mountCwd, "mount-cwd", false, "mount the current directory at /workspace, writable, and start there")
	fs.StringVar(&f.limits, "limits", "", "`strict`: refuse limits that can only be watched and not enforced; set no default limits")
	fs.BoolVar(&f.keep, "keep", false, "keep its files when it stops, though the configuration has auto_destroy")
	fs.Bool("offline", false, offlineHelp)
	fs.StringVar(&f.scheduler, "scheduler", "", "where it runs, `NAME`: slurm (in an allocation), local or auto")
	fs.StringVar(&f.profile, "profile", "", "site profile of an allocation: a `NAME` or the path of a file ($BERTH_PROFILE)")
	fs.StringVar(&f.host, "host", "", "backend ssh: the host, `[USER@]HOST[:PORT]` ($TERMINAL_SSH_HOST, _USER, _PORT)")
	fs.StringVar(&f.sshKey, "ssh-key", "", "backend ssh: private key `FILE` ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "backend ssh: option of ssh_config, `Name=value`; repeatable")
	addKeyFlags(c, envKeyFlags(), nil)
	f.held.add(c)
	fs.StringVar(&f.lifetime, "lifetime", "", "`TIME` to stay warm without use, such as 30m (default 300s; 0: for ever)")
}

// options reads the flags.
func (f *envFlags) options(cmd *cobra.Command) (jobs.EnvOptions, error) {
	o := jobs.EnvOptions{
		Name: f.name, Template: f.template, Keep: f.keep, Forward: f.forward,
		Place: jobs.Place{Env: f.set, Dir: f.dir},
	}
	if err := task.Place(&o.Place, keysGiven(cmd, envKeyFlags(), nil)); err != nil {
		return o, err
	}
	if meant := jobs.MeantBackend(o.Backend); meant != "" {
		return o, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--backend must not be %q", o.Backend), Hint: "--backend " + meant}
	}
	if o.External != nil {
		if err := jobs.CheckSnapshotName(o.External.From); err != nil {
			return o, err
		}
	}
	if o.Keep && o.Destroy {
		return o, usage("give --keep or --discard, not both")
	}
	if o.Image != "" && f.template != "" {
		return o, usage("give --image or --template, not both")
	}
	if f.mountCwd {
		cwd, err := os.Getwd()
		if err != nil {
			return o, err
		}
		o.Mounts = append(o.Mounts, jobs.Mount{Source: cwd, Destination: config.Workspace, Writable: true})
		o.Dir = config.Workspace
	}
	switch f.limits {
	case "":
	case "strict":
		o.Strict = true
	default:
		return o, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--limits must be strict, found %q", f.limits),
			Hint: "--limits strict, or leave it out: then a limit may be watched instead of held"}
	}
	for _, name := range f.credentials {
		if slices.ContainsFunc(o.Credentials, func(c jobs.Credential) bool { return c.Name == name }) {
			return o, usage("--credential %s is given twice", name)
		}
		o.Credentials = append(o.Credentials, jobs.Credential{Name: name})
	}
	if f.lifetime != "" {
		var err error
		if o.Lifetime, err = orNever("--lifetime", f.lifetime); err != nil {
			return o, err
		}
	}
	return o, f.ssh(&o)
}

// ssh reads which host is meant; where none is named, the configuration's.
func (f *envFlags) ssh(o *jobs.EnvOptions) (err error) {
	var host jobs.SSHSpec
	if f.host != "" {
		if host, err = jobs.ParseHost(f.host); err != nil {
			return err
		}
	}
	host, err = sshSpec(host, f.sshKey, f.sshOptions)
	o.SSH = &host
	return err
}

// sshSpec completes a host by what the caller alone may say.
func sshSpec(s jobs.SSHSpec, key string, options []string) (jobs.SSHSpec, error) {
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
func (a *app) environment(ctx context.Context, cmd *cobra.Command, f *envFlags) (*engine.Environment, error) {
	o, err := f.options(cmd)
	if err != nil {
		return nil, err
	}
	cfg, err := a.config(cmd)
	if err != nil {
		return nil, err
	}
	if err := cfg.Environment(&o); err != nil {
		return nil, err
	}
	if !f.own && engine.PerTask(o) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "no environment is named, and each task has one of its own (per_task_workspace)",
			Hint: "name the task's with --env NAME; berth env ls lists them"}
	}
	if err := f.held.reach(&o, f.sshKey, f.sshOptions); err != nil {
		return nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	v, err := e.Environment(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := sameWorkspace(cfg, o, v.Spec); err != nil {
		return nil, err
	}
	v.Progress = a.progress
	if v.Immediate, err = f.held.wait(); err != nil {
		return nil, err
	}
	return v, nil
}

// leave ends the use of an environment, and says what was found of one that was made for
// this use.
func (a *app) leave(ctx context.Context, v *engine.Environment) {
	d, err := v.Leave(ctx)
	switch {
	case err != nil:
		a.say("warning: %v", err)
	case d != nil:
		a.say("destroyed the environment %s; not there any more: %s", v.Spec.Name, strings.Join(d.Gone, ", "))
	}
}

// sameWorkspace refuses an environment that shows another directory than the
// current one where the configuration says that this one is to be seen:
// commands would change the wrong files.
func sameWorkspace(cfg *config.Config, o jobs.EnvOptions, s jobs.EnvSpec) error {
	if !s.Can().Daemon || !cfg.MountCwd() || len(o.Mounts) > 0 {
		return nil
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, m := range s.Mounts {
		if rel, err := filepath.Rel(m.Source, cwd); m.Destination == config.Workspace && (err != nil || !filepath.IsLocal(rel)) {
			return &jobs.Error{Kind: jobs.KindUsage,
				Msg: fmt.Sprintf("the environment %s shows %s in %s, and not the current directory (docker_mount_cwd_to_workspace)",
					s.Name, m.Source, config.Workspace),
				Hint: "give this directory an environment of its own with --env NAME"}
		}
	}
	return nil
}

// enter returns the environment that the flags mean and the session in it. The
// caller closes the environment.
func (a *app) enter(cmd *cobra.Command, f *envFlags) (*engine.Environment, *engine.Session, error) {
	v, err := a.environment(cmd.Context(), cmd, f)
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

// meant returns the recorded environment that a command means which cannot make
// one: the one of this name, or the one that such a command would use.
func (a *app) meant(cmd *cobra.Command, o jobs.EnvOptions) (*engine.Environment, error) {
	if o.Name != "" { // whatever is wrong with the files here, it can be looked at and ended
		return a.existing(o.Name)
	}
	cfg, err := a.config(cmd)
	if err != nil {
		return nil, err
	}
	if err := cfg.Environment(&o); err != nil {
		return nil, err
	}
	return a.existing(o.EnvName())
}

// existing returns an environment that is recorded.
func (a *app) existing(name string) (*engine.Environment, error) {
	e, err := a.engine()
	if err != nil {
		return nil, err
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

var variableName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables reads NAME (taken from here) and NAME=VALUE.
func variables(list []string) ([]string, error) {
	var out []string
	for _, kv := range list {
		name, _, given := strings.Cut(kv, "=")
		if !variableName().MatchString(name) {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--var %q names no variable", kv),
				Hint: "--var NAME or --var NAME=VALUE, with letters, digits and underscores in the name"}
		}
		if !given {
			v, ok := os.LookupEnv(name)
			if !ok {
				return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--var takes " + name + " from your environment, where it is not set",
					Hint: "export " + name + "=..."}
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
	if dash := cmd.ArgsLenAtDash(); len(args) > 0 && strings.TrimSpace(args[0]) != "" && dash != 0 {
		return jobs.Command{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unexpected argument %q", args[0]),
			Hint: "the command comes after --: " + cmd.CommandPath() + " -- " + strings.Join(args, " ")}
	}
	return commandOf(cmd, args)
}

// commandOf makes a command of such words.
func commandOf(cmd *cobra.Command, words []string) (jobs.Command, error) {
	if len(words) == 0 || (len(words) == 1 && strings.TrimSpace(words[0]) == "") {
		return jobs.Command{}, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a command after --",
			Hint: cmd.CommandPath() + " -- 'make && make test'"}
	}
	return jobs.Words(words), nil
}
