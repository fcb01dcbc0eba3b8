package cli

import (
	"os"
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/profile"
	"berth/internal/strict"
	"berth/internal/task"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// taskFlags are what submit, run and render take over a task file's words, and
// what makes a task of a command line.
type taskFlags struct {
	name, image, overlay, workspace, base string
	backend, scheduler, profile           string
	memory, disk, time, gpus              string
	cpus, nodes                           string
	bind, env, scope                      []string
	host, sshKey                          string
	sshOptions                            []string
	slurm                                 jobs.SlurmOptions
}

func (f *taskFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "name", "", "name of the task")
	fs.StringVar(&f.image, "image", "", "container image: a SIF file; with docker a name such as debian:12")
	fs.StringVar(&f.overlay, "overlay", "", "name of a persistent overlay; without it the writable layer is thrown away")
	fs.StringArrayVar(&f.bind, "bind", nil, "bind SRC[:DST[:rw]], read-only unless rw")
	fs.StringArrayVar(&f.env, "env", nil, "NAME (taken from here) or NAME=VALUE")
	fs.StringVar(&f.workspace, "workspace", "", "git repository to work on")
	fs.StringVar(&f.base, "base", "", "commit to start from (default HEAD)")
	fs.StringArrayVar(&f.scope, "scope", nil, "path that may change")
	fs.StringVar(&f.cpus, "cpus", "", "CPUs")
	fs.StringVar(&f.memory, "memory", "", "memory, such as 512MiB; a bare number is MiB")
	fs.StringVar(&f.disk, "disk", "", "size of the writable layer, such as 5GiB")
	fs.StringVar(&f.time, "time", "", "time limit, such as 30m; a bare number is seconds")
	fs.StringVar(&f.gpus, "gpus", "", "GPUs: N or TYPE:N")
	fs.StringVar(&f.nodes, "nodes", "", "nodes")
	fs.StringVar(&f.slurm.Partition, "partition", "", "Slurm partition")
	fs.StringVar(&f.slurm.Account, "account", "", "Slurm account")
	fs.StringVar(&f.slurm.QOS, "qos", "", "Slurm quality of service")
	fs.StringVar(&f.slurm.Constraint, "constraint", "", "Slurm node features")
	fs.StringArrayVar(&f.slurm.Extra, "slurm", nil, "further sbatch option, --option=value")
	fs.StringVar(&f.backend, "backend", "", "auto, singularity, docker, ssh or local (default auto)")
	fs.StringVar(&f.host, "host", "", "ssh: [USER@]HOST[:PORT] ($TERMINAL_SSH_HOST, _USER, _PORT)")
	fs.StringVar(&f.sshKey, "ssh-key", "", "ssh: identity file ($TERMINAL_SSH_KEY)")
	fs.StringArrayVar(&f.sshOptions, "ssh-option", nil, "ssh: any option, Name=value")
	fs.StringVar(&f.scheduler, "scheduler", "", "auto, slurm or local (default auto)")
	fs.StringVar(&f.profile, "profile", os.Getenv("BERTH_PROFILE"), "site profile: a name or a path ($BERTH_PROFILE)")
}

// task reads the task: a file, or the words after "--".
func (f *taskFlags) task(cmd *cobra.Command, args []string) (jobs.Task, engine.Choice, error) {
	var c engine.Choice
	t, err := f.read(cmd, args)
	if err != nil {
		return t, c, err
	}
	if err := f.override(cmd, &t); err != nil {
		return t, c, err
	}
	if t.Terminal.Backend == jobs.BackendSSH || t.Terminal.SSH.Host != "" {
		if t.Terminal.SSH, err = sshSpec(t.Terminal.SSH, f.sshKey, f.sshOptions); err != nil {
			return t, c, err
		}
	}
	for _, v := range [][2]string{{"--scheduler", f.scheduler}, {"--profile", f.profile}} {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return t, c, err
		}
	}
	c.Scheduler = f.scheduler
	if c.Scheduler == "auto" {
		c.Scheduler = ""
	}
	if f.profile != "" {
		if c.Profile, _, err = profile.Load(f.profile, profileDirs()...); err != nil {
			return t, c, err
		}
	}
	return t, c, nil
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
		return jobs.Task{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "more than one task file", Hint: cmd.CommandPath() + " -- " + strings.Join(args, " ") + "   runs a command"}
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
		{Name: "backend", Table: "terminal", Key: "backend", Kind: strict.String, Values: text(f.backend)},
		{Name: "image", Table: "terminal", Key: "image", Kind: strict.String, Values: text(f.image)},
		{Name: "overlay", Table: "terminal", Key: "overlay", Kind: strict.String, Values: text(f.overlay)},
		{Name: "host", Table: "terminal", Key: "host", Kind: strict.String, Values: text(f.host)},
		{Name: "bind", Table: "terminal", Key: "bind", Kind: strict.List, Values: f.bind},
		{Name: "env", Table: "terminal", Key: "env", Kind: strict.List, Values: f.env},
		{Name: "partition", Table: "slurm", Key: "partition", Kind: strict.String, Values: text(f.slurm.Partition)},
		{Name: "account", Table: "slurm", Key: "account", Kind: strict.String, Values: text(f.slurm.Account)},
		{Name: "qos", Table: "slurm", Key: "qos", Kind: strict.String, Values: text(f.slurm.QOS)},
		{Name: "constraint", Table: "slurm", Key: "constraint", Kind: strict.String, Values: text(f.slurm.Constraint)},
		{Name: "slurm", Table: "slurm", Key: "extra", Kind: strict.List, Values: f.slurm.Extra},
	} {
		if cmd.Flags().Changed(k.Name) {
			set = append(set, k)
		}
	}
	return task.Override(t, set)
}
