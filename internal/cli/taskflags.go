package cli

import (
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// taskFlags are what submit, run and render take over a task file's words, and
// what makes a task of a command line.
type taskFlags struct {
	name, image, template, overlay, workspace, base string
	overlayWait                                     string
	snapshot                                        string
	keep, keepFailed                                bool
	backend, scheduler, profile, target             string
	stage, retry, resume                            string
	memory, disk, time, gpus                        string
	cpus, nodes, ntasks                             string
	bind, env, scope, after                         []string
	host, login, sshKey                             string
	sshOptions                                      []string
	slurm                                           jobs.SlurmOptions
	key                                             string // of the caller's, under which a task is submitted once
}

// offlineHelp is of a flag that the configuration reads.
const offlineHelp = "use only images that are in the cache; contact no registry ($BERTH_OFFLINE)"

func (f *taskFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "name", "", "`NAME` of the task, in lists and of the branch")
	fs.StringVar(&f.image, "image", "", "container `IMAGE`: a SIF file, or a reference such as docker://debian:12")
	fs.Bool("offline", false, offlineHelp)
	fs.StringVar(&f.template, "template", "", "use the template `NAME` instead of an image (berth template ls)")
	fs.StringVar(&f.overlay, "overlay", "", "keep changed files in the overlay `NAME` (default: they are removed at the end)")
	fs.StringVar(&f.overlayWait, "overlay-wait", "", "wait while the overlay is in use, at most `TIME`, such as 30m (default: fail with 75)")
	fs.StringVar(&f.snapshot, "overlay-snapshot", "",
		"`WHEN` to work on a snapshot of the overlay and keep it only on success: auto, always or never (default auto)")
	fs.BoolVar(&f.keep, "keep", false, "keep the writable layer as overlay kept/ID (berth overlay ls --all)")
	fs.BoolVar(&f.keepFailed, "keep-failed", false, "keep the writable layer when the job fails")
	fs.StringVar(&f.stage, "stage", "", "`WHEN` to copy the image to the node's own disk: auto (when it is faster), always or never (default auto)")
	fs.StringVar(&f.retry, "retry", "",
		"retry after a failure of the site, or with more memory: `on|off` (default on, with --login off); [retry] in a task file says how often")
	fs.StringVar(&f.resume, "resume", "",
		"stop the task before its time limit and continue in another attempt: `on|off` (default off); [resume] in a task file says how")
	fs.StringArrayVar(&f.after, "after", nil,
		"start after other jobs: `JOB` (when it has succeeded), any:JOB (has ended) or notok:JOB (has failed); several separated by commas")
	fs.StringArrayVar(&f.bind, "bind", nil, "mount a path of the machine that the job runs on: `SRC[:DST[:rw]]`, read-only unless rw; repeatable")
	fs.StringArrayVar(&f.env, "env", nil, "set an environment variable: `NAME` (with its value here) or NAME=VALUE; repeatable")
	fs.StringVar(&f.workspace, "workspace", "", "work on a clone of the git repository `DIR`; changes come back as a branch")
	fs.StringVar(&f.base, "base", "", "start from this `COMMIT` of the repository (default HEAD)")
	fs.StringArrayVar(&f.scope, "scope", nil, "only paths like `PATTERN` may change, such as src/**; repeatable (default: all)")
	f.addPlace(c)
	fs.StringVar(&f.disk, "disk", "", "`SIZE` of the writable layer, such as 5GiB")
	fs.StringVar(&f.gpus, "gpus", "", "GPUs on each node, `N` or TYPE:N, such as 1 or a100:2")
	fs.StringVar(&f.nodes, "nodes", "", "`NUMBER` of nodes (default 1)")
	fs.StringVar(&f.ntasks, "ntasks", "", "run the command this `NUMBER` of times in parallel, each in its own container (default 1)")
	fs.StringVar(&f.backend, "backend", "",
		"what makes the container, `NAME`: singularity, docker, ssh, local, modal, daytona, or a program berth-backend-NAME (default auto: singularity, else docker)")
	fs.StringVar(&f.host, "host", "", "backend ssh: the host, `[USER@]HOST[:PORT]` ($TERMINAL_SSH_HOST, _USER, _PORT)")
	fs.StringVar(&f.login, "login", "", "submit on a cluster over ssh: its login node, `[USER@]HOST[:PORT]`")
	fs.StringVar(&f.sshKey, "ssh-key", "", "private key `FILE` for backend ssh and --login ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "option of ssh_config, `Name=value`, for backend ssh and --login; repeatable")
}

const flagKey = "idempotency-key"

// addKey adds what makes a submission one that may be repeated.
func (f *taskFlags) addKey(c *cobra.Command) {
	c.Flags().StringVar(&f.key, flagKey, "", "submit only once under this `KEY`, which you choose: repeating the command gives the same job")
}

// addPlace adds those that say where, and how long, anything may run.
func (f *taskFlags) addPlace(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.cpus, "cpus", "", "`NUMBER` of CPUs (default: the site's)")
	fs.StringVar(&f.memory, "memory", "", "memory, a `SIZE` such as 8GiB; a bare number is MiB (default: the site's)")
	fs.StringVar(&f.time, "time", "", "time limit, a `TIME` such as 30m or 2h; a bare number is seconds (default: the site's)")
	fs.StringVar(&f.slurm.Partition, "partition", "", "partition, a `NAME` such as gpu (default: the site's)")
	fs.StringVar(&f.slurm.Account, "account", "", "account `NAME` to charge (default: yours)")
	fs.StringVar(&f.slurm.QOS, "qos", "", "quality of service, a `NAME` (default: the site's)")
	fs.StringVar(&f.slurm.Constraint, "constraint", "", "required node `FEATURES`, as for sbatch --constraint")
	fs.StringArrayVar(&f.slurm.Extra, "slurm", nil, "another option of sbatch, `--option=value`; repeatable")
	fs.StringVar(&f.scheduler, "scheduler", "", "what starts the job, `NAME`: slurm or local (default auto: slurm where there is one)")
	fs.StringVar(&f.target, "target", "", "use the target `NAME` of the configuration ($BERTH_TARGET)")
	fs.StringVar(&f.profile, "profile", "", "site profile: a `NAME` or the path of a file ($BERTH_PROFILE)")
}

// task reads the task: a file, or the words after "--". What neither it nor a
// flag says, the configuration does.
func (f *taskFlags) task(cmd *cobra.Command, args []string, cfg *config.Config) (t jobs.Task, c engine.Choice, notes []string, err error) {
	if t, err = f.read(cmd, args); err != nil {
		return t, c, nil, err
	}
	if err = f.override(cmd, &t); err != nil {
		return t, c, nil, err
	}
	// A template that is named here wins over the configuration; one that the
	// configuration names stands below it.
	named := t.Terminal.Template != ""
	if named {
		err = engine.TaskTemplate(templatesDir(), &t)
	}
	if err == nil {
		notes, err = cfg.Task(&t, &c)
	}
	if err == nil && !named {
		err = engine.TaskTemplate(templatesDir(), &t)
	}
	if err != nil {
		return t, c, nil, err
	}
	if t.Terminal.Backend == jobs.BackendSSH || t.Terminal.SSH.Host != "" {
		t.Terminal.SSH, err = sshSpec(t.Terminal.SSH, f.sshKey, f.sshOptions)
	}
	if err == nil {
		err = f.loginHost(t, &c)
	}
	return t, c, notes, err
}

// place is a task of which the flags of [taskFlags.addPlace] and the
// configuration say where it runs, and what it may use.
func (f *taskFlags) place(cmd *cobra.Command, cfg *config.Config, name string) (t jobs.Task, c engine.Choice, notes []string, err error) {
	t = jobs.Task{Name: name, Terminal: jobs.Terminal{Backend: jobs.BackendLocal}}
	set := *f
	set.name = name // where a verb has a flag of that name, it is another one
	if err = set.override(cmd, &t); err == nil {
		notes, err = cfg.Task(&t, &c)
	}
	return t, c, notes, err
}

// loginHost puts --login, and what the caller alone may say of it, over what the
// target has.
func (f *taskFlags) loginHost(t jobs.Task, c *engine.Choice) error {
	if f.login != "" {
		if t.Terminal.Backend == jobs.BackendSSH {
			return usage("--login names a cluster's login node, and the backend ssh runs the task on a host itself: give one of them")
		}
		login, err := jobs.ParseHost(f.login)
		if err != nil {
			return err
		}
		c.Login = &login
		if f.scheduler == "" {
			c.Scheduler = jobs.SchedulerSlurm // whatever the configuration says of here
		}
	}
	if c.Login == nil {
		return nil
	}
	login, err := sshSpec(*c.Login, f.sshKey, f.sshOptions)
	c.Login = &login
	return err
}

func (f *taskFlags) read(cmd *cobra.Command, args []string) (jobs.Task, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash >= 0:
		if dash > 0 {
			return jobs.Task{}, usage("give either a task file or a command after --, not both")
		}
		if len(args) == 0 || (len(args) == 1 && strings.TrimSpace(args[0]) == "") {
			return jobs.Task{}, usage("there is no command after --")
		}
		return jobs.Task{Name: nameOf(args), Command: jobs.Words(args)}, nil
	case len(args) == 1:
		if err := jobs.CheckText("the task file's name", args[0]); err != nil {
			return jobs.Task{}, err
		}
		return task.Load(args[0])
	case len(args) > 1:
		return jobs.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "more than one task file",
			Hint: cmd.CommandPath() + " -- " + strings.Join(args, " ") + "   runs a command"}
	}
	return jobs.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a task file or a command after --", Hint: cmd.CommandPath() + " --help"}
}

// nameOf names a command line after its program.
func nameOf(words []string) string {
	first := strings.Fields(words[0])
	if len(first) == 0 {
		return "command"
	}
	return filepath.Base(strings.TrimLeft(first[0], "({[!\"'"))
}

// override puts the flags over the task. They pass the same checks as the keys
// of a task file.
func (f *taskFlags) override(cmd *cobra.Command, t *jobs.Task) error {
	text := func(v string) []string { return []string{v} }
	var set []strict.Flag
	for _, k := range []strict.Flag{
		{Name: "name", Key: "name", Kind: strict.String, Values: text(f.name)},
		{Name: "workspace", Table: "workspace", Key: "repo", Kind: strict.String, Values: text(f.workspace)},
		{Name: "base", Table: "workspace", Key: "base", Kind: strict.String, Values: text(f.base)},
		{Name: "scope", Table: "workspace", Key: "scope", Kind: strict.List, Values: f.scope},
		{Name: "cpus", Table: "resources", Key: "cpus", Kind: strict.Int, Values: text(f.cpus)},
		{Name: "memory", Table: "resources", Key: "memory", Kind: strict.String, Values: text(f.memory)},
		{Name: "disk", Table: "resources", Key: "disk", Kind: strict.String, Values: text(f.disk)},
		{Name: "time", Table: "resources", Key: "time", Kind: strict.String, Values: text(f.time)},
		{Name: "gpus", Table: "resources", Key: "gpus", Kind: strict.String, Values: text(f.gpus)},
		{Name: "nodes", Table: "resources", Key: "nodes", Kind: strict.Int, Values: text(f.nodes)},
		{Name: "ntasks", Table: "resources", Key: "ntasks", Kind: strict.Int, Values: text(f.ntasks)},
		{Name: "backend", Table: "terminal", Key: "backend", Kind: strict.String, Values: text(f.backend)},
		{Name: "image", Table: "terminal", Key: "image", Kind: strict.String, Values: text(f.image)},
		{Name: "template", Table: "terminal", Key: "template", Kind: strict.String, Values: text(f.template)},
		{Name: "overlay", Table: "terminal", Key: "overlay", Kind: strict.String, Values: text(f.overlay)},
		{Name: "overlay-wait", Table: "terminal", Key: "overlay_wait", Kind: strict.String, Values: text(f.overlayWait)},
		{Name: "overlay-snapshot", Table: "terminal", Key: "overlay_snapshot", Kind: strict.String, Values: text(f.snapshot)},
		{Name: "keep", Table: "terminal", Key: "keep", Kind: strict.String, Values: text(jobs.KeepAlways)},
		{Name: "keep-failed", Table: "terminal", Key: "keep", Kind: strict.String, Values: text(jobs.KeepFailed)},
		{Name: "stage", Table: "terminal", Key: "stage", Kind: strict.String, Values: text(f.stage)},
		{Name: "retry", Key: "retry", Kind: strict.String, Values: text(f.retry)},
		{Name: "resume", Key: "resume", Kind: strict.String, Values: text(f.resume)},
		{Name: "after", Key: "after", Kind: strict.List, Values: f.after},
		{Name: "host", Table: "terminal", Key: "host", Kind: strict.String, Values: text(f.host)},
		{Name: "bind", Table: "terminal", Key: "bind", Kind: strict.List, Values: f.bind},
		{Name: "env", Table: "terminal", Key: "env", Kind: strict.List, Values: f.env},
		{Name: "partition", Table: "slurm", Key: "partition", Kind: strict.String, Values: text(f.slurm.Partition)},
		{Name: "account", Table: "slurm", Key: "account", Kind: strict.String, Values: text(f.slurm.Account)},
		{Name: "qos", Table: "slurm", Key: "qos", Kind: strict.String, Values: text(f.slurm.QOS)},
		{Name: "constraint", Table: "slurm", Key: "constraint", Kind: strict.String, Values: text(f.slurm.Constraint)},
		{Name: "slurm", Table: "slurm", Key: "extra", Kind: strict.List, Values: f.slurm.Extra},
	} {
		switch {
		case k.Name == "keep" && !f.keep, k.Name == "keep-failed" && (f.keep || !f.keepFailed):
		case cmd.Flags().Changed(k.Name):
			set = append(set, k)
		}
	}
	return task.Override(t, set)
}
