package cli

import (
	"fmt"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// joinHelp is what exec and shell say of jobs.
const joinHelp = `With a job's id, commands run beside the task of that job: they see its files,
processes and HOME and have its variables, except those that were passed on by name.
Everything they start ends with them, or with the job, and does not affect its result.`

// besideJob are the flags that go with a job; all others say what an
// environment is to be like.
var besideJob = map[string]bool{"job": true, "wait": true, "workdir": true, "var": true, "timeout": true, "stdin": true, "json": true, "help": true,
	"show-bytes": true, "batch": true, "merge": true, "command-file": true}

// joinFlags say which job is meant instead of an environment.
type joinFlags struct {
	job, wait string
}

func (f *joinFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.wait, "wait", "",
		"with a job: wait at most `TIME` until its task runs (default: 1m while it is being prepared, not in the queue)")
}

// join comes into the place of the job that the flags mean. The caller closes
// it.
func (a *app) join(cmd *cobra.Command, f *joinFlags) (*engine.Joined, error) {
	var wrong error
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if !besideJob[fl.Name] && wrong == nil {
			wrong = &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--%s is for environments, and %s is a job", fl.Name, f.job),
				Hint: "leave it out: a job's place is as its task has it"}
		}
	})
	if wrong != nil {
		return nil, wrong
	}
	o := engine.JoinOptions{}
	if a.errTTY {
		o.Progress = a.progress
	}
	if f.wait != "" {
		d, err := jobs.ParseDuration(f.wait)
		if err != nil {
			return nil, usage("--wait: %v", err)
		}
		o.Wait = max(d, time.Millisecond)
	}
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	recs, err := find(e, []string{f.job})
	if err != nil {
		return nil, err
	}
	return e.Join(cmd.Context(), recs[0], o)
}
