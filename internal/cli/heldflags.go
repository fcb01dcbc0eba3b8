package cli

import (
	"time"

	"berth/engine"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// heldFlags say what allocation an environment is held in.
type heldFlags struct {
	time, gpus, nodes, immediate, login string
	slurm                               jobs.SlurmOptions
}

// add adds them; those of the scheduler have the names that they have for jobs.
func (f *heldFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.time, "time", "", "slurm: time limit of an allocation, a `TIME` such as 4h; another allocation follows it")
	fs.StringVar(&f.gpus, "gpus", "", "slurm: GPUs on each node, `N` or TYPE:N, such as 1 or a100:2")
	fs.StringVar(&f.nodes, "nodes", "", "slurm: `NUMBER` of nodes; commands run on the first (default 1)")
	fs.StringVar(&f.slurm.Partition, "partition", "", "partition, a `NAME` such as gpu (default: the site's)")
	fs.StringVar(&f.slurm.Account, "account", "", "account `NAME` to charge (default: yours)")
	fs.StringVar(&f.slurm.QOS, "qos", "", "quality of service, a `NAME` (default: the site's)")
	fs.StringVar(&f.slurm.Constraint, "constraint", "", "required node `FEATURES`, as for sbatch --constraint")
	fs.StringArrayVar(&f.slurm.Extra, "slurm", nil, "another option of sbatch, `--option=value`; repeatable")
	fs.StringVar(&f.login, "login", "", "slurm: use a cluster over ssh: its login node, `[USER@]HOST[:PORT]`")
	fs.StringVar(&f.immediate, "immediate", "", "give up after `TIME` in the queue (without a value 10s)")
	fs.Lookup("immediate").NoOptDefVal = "10s"
}

// options reads them, with the checks of a task file.
func (f *heldFlags) options(cmd *cobra.Command, o *engine.EnvOptions) error {
	var t jobs.Task
	var set []strict.Flag
	text := func(v string) []string { return []string{v} }
	for _, k := range []strict.Flag{
		{Name: "time", Table: "resources", Key: "time", Kind: strict.String, Values: text(f.time)},
		{Name: "gpus", Table: "resources", Key: "gpus", Kind: strict.String, Values: text(f.gpus)},
		{Name: "nodes", Table: "resources", Key: "nodes", Kind: strict.Int, Values: text(f.nodes)},
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
	if err := task.Override(&t, set); err != nil {
		return err
	}
	o.Time, o.GPUs, o.Nodes, o.Slurm = t.Resources.Time, t.Resources.GPUs, t.Resources.Nodes, t.Slurm
	return nil
}

// wait is the time that --immediate allows in the queue; 0 is no limit.
func (f *heldFlags) wait() (time.Duration, error) {
	if f.immediate == "" {
		return 0, nil
	}
	d, err := jobs.ParseDuration(f.immediate)
	if err == nil && d <= 0 {
		d = time.Second
	}
	if err != nil {
		return 0, usage("--immediate: %v", err)
	}
	return d, nil
}

// reach puts the login host, and what the caller alone may say of it, over that
// of the configuration.
func (f *heldFlags) reach(o *engine.EnvOptions, key string, options []string) error {
	if f.login != "" {
		at, err := jobs.ParseHost(f.login)
		if err != nil {
			return err
		}
		o.Login, o.Scheduler = &at, jobs.SchedulerSlurm
	}
	if o.Login == nil {
		return nil
	}
	at, err := sshSpec(*o.Login, key, options)
	o.Login, o.SSH = &at, jobs.SSHSpec{}
	return err
}
