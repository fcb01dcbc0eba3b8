package cli

import (
	"os"
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/profile"
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
	cpus, nodes                           int
	bind, env, scope                      []string
	slurm                                 jobs.SlurmOptions
}

func (f *taskFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "name", "", "name of the task")
	fs.StringVar(&f.image, "image", "", "container image, a SIF file")
	fs.StringVar(&f.overlay, "overlay", "", "name of a persistent overlay; without it the writable layer is thrown away")
	fs.StringArrayVar(&f.bind, "bind", nil, "bind SRC[:DST[:rw]], read-only unless rw")
	fs.StringArrayVar(&f.env, "env", nil, "NAME (taken from here) or NAME=VALUE")
	fs.StringVar(&f.workspace, "workspace", "", "git repository to work on")
	fs.StringVar(&f.base, "base", "", "commit to start from (default HEAD)")
	fs.StringArrayVar(&f.scope, "scope", nil, "path that may change")
	fs.IntVar(&f.cpus, "cpus", 0, "CPUs")
	fs.StringVar(&f.memory, "memory", "", "memory, such as 512MiB; a bare number is MiB")
	fs.StringVar(&f.disk, "disk", "", "size of the writable layer, such as 5GiB")
	fs.StringVar(&f.time, "time", "", "time limit, such as 30m; a bare number is seconds")
	fs.StringVar(&f.gpus, "gpus", "", "GPUs: N or TYPE:N")
	fs.IntVar(&f.nodes, "nodes", 0, "nodes")
	fs.StringVar(&f.slurm.Partition, "partition", "", "Slurm partition")
	fs.StringVar(&f.slurm.Account, "account", "", "Slurm account")
	fs.StringVar(&f.slurm.QOS, "qos", "", "Slurm quality of service")
	fs.StringVar(&f.slurm.Constraint, "constraint", "", "Slurm node features")
	fs.StringArrayVar(&f.slurm.Extra, "slurm", nil, "further sbatch option, --option=value")
	fs.StringVar(&f.backend, "backend", "", "auto, singularity or local (default auto)")
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
	c.Scheduler, c.Backend = f.scheduler, f.backend
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
	return filepath.Base(first[0])
}

// override puts the flags over the task. The values pass the same checks as in
// a task file.
func (f *taskFlags) override(cmd *cobra.Command, t *jobs.Task) error {
	set := cmd.Flags().Changed
	var err error
	for flag, put := range map[string]func() error{
		"name":       func() error { t.Name = f.name; return task.CheckName(f.name) },
		"image":      func() error { t.Terminal.Image, err = task.Image(f.image); return err },
		"overlay":    func() error { t.Terminal.Overlay = f.overlay; return task.CheckOverlay(f.overlay) },
		"bind":       func() error { t.Terminal.Bind, err = task.Binds(f.bind); return err },
		"env":        func() error { t.Terminal.Env, err = task.Env(append(t.Terminal.Env, f.env...)); return err },
		"cpus":       func() error { t.Resources.CPUs = f.cpus; return positive(f.cpus) },
		"nodes":      func() error { t.Resources.Nodes = f.nodes; return positive(f.nodes) },
		"memory":     func() error { t.Resources.Memory, err = jobs.ParseBytes(f.memory); return err },
		"disk":       func() error { t.Resources.Disk, err = jobs.ParseBytes(f.disk); return err },
		"time":       func() error { t.Resources.Time, err = jobs.ParseDuration(f.time); return err },
		"gpus":       func() error { t.Resources.GPUs, err = task.GPUs(f.gpus); return err },
		"partition":  func() error { t.Slurm.Partition = f.slurm.Partition; return task.CheckWord(f.slurm.Partition) },
		"account":    func() error { t.Slurm.Account = f.slurm.Account; return task.CheckWord(f.slurm.Account) },
		"qos":        func() error { t.Slurm.QOS = f.slurm.QOS; return task.CheckWord(f.slurm.QOS) },
		"constraint": func() error { t.Slurm.Constraint = f.slurm.Constraint; return task.CheckWord(f.slurm.Constraint) },
		"slurm": func() error {
			t.Slurm.Extra = append(t.Slurm.Extra, f.slurm.Extra...)
			return task.CheckExtra(f.slurm.Extra)
		},
		"workspace": func() error { return f.setWorkspace(t) },
	} {
		if !set(flag) {
			continue
		}
		if err := put(); err != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "--" + flag, Err: err}
		}
	}
	if (set("base") || set("scope")) && t.Workspace == nil {
		return usage("--base and --scope need a workspace: give --workspace DIR")
	}
	if set("base") {
		t.Workspace.Base = f.base
	}
	if set("scope") {
		t.Workspace.Scope = f.scope
	}
	return nil
}

func (f *taskFlags) setWorkspace(t *jobs.Task) error {
	abs, err := filepath.Abs(f.workspace)
	if err != nil {
		return err
	}
	if t.Workspace == nil {
		t.Workspace = &jobs.Workspace{}
	}
	t.Workspace.Repo = abs
	return nil
}

func positive(n int) error {
	if n < 1 {
		return usage("must be 1 or more")
	}
	return nil
}
