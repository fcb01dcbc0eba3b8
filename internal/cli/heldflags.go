package cli

import (
	"time"

	"berth/jobs"

	"github.com/spf13/cobra"
)

// heldFlags say how the allocation of an environment is reached, beside its keys.
type heldFlags struct{ immediate, login string }

// add adds them.
func (f *heldFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.login, "login", "", "slurm: use a cluster over ssh: its login node, `[USER@]HOST[:PORT]`")
	fs.StringVar(&f.immediate, "immediate", "", "give up after `TIME` in the queue (without a value 10s)")
	fs.Lookup("immediate").NoOptDefVal = "10s"
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
func (f *heldFlags) reach(o *jobs.EnvOptions, key string, options []string) error {
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
	o.Login, o.SSH = &at, nil
	return err
}
