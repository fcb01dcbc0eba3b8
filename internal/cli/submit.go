package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"berth/engine"
	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const keyHelp = `With --idempotency-key the same submission can be repeated, by several callers at
once and after a crash at any point: there is one job, and its id is printed. The
same key with another task is refused; a new commit of the repository or a new image
behind a tag does not make it another task. berth rm frees the key, and a submission
that was refused does not take it.`

const taskHelp = `The task is a Markdown file with TOML (+++) or YAML (---) front matter
(berth help task-file), or a command after "--": one word is run by the shell, several
words are a program and its arguments. A flag overrides the task file, that the
configuration (berth config show), that the site profile.`

func (a *app) submitCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:        "submit [flags] TASK.md | submit [flags] -- COMMAND...",
		SuggestFor: []string{"sbatch"},
		Long: `Submit a task as a job and print the job's id, and nothing else, on stdout.

` + taskHelp + `

` + keyHelp + `
` + exitHelp + `0 submitted, 2 the task or an option is wrong or the scheduler refused
it, 3 a file it names does not exist, 5 the scheduler could not be reached, 75
try again, 78 its containment is not available here.`,
		Example: `  berth submit task.md
  id=$(berth submit --image py.sif --time 10m -- python3 train.py --fast)
  berth submit --after $id --image py.sif -- python3 plot.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, rec, err := a.submit(cmd, &f, args)
			if rec != nil && (err == nil || jobs.KindOf(err) == jobs.KindUnclear) {
				if perr := a.printID(rec); perr != nil {
					return perr
				}
			}
			return err
		},
	}
	f.add(c)
	f.addKey(c)
	a.jsonFlag(c)
	return c
}

func (a *app) printID(rec *jobs.Record) error {
	if a.json {
		return a.printJSON(map[string]any{"id": rec.Spec.ID, "short": jobs.Short(rec.Spec.ID), "dir": rec.Current().Dir})
	}
	_, err := fmt.Fprintln(a.stdout, jobs.Short(rec.Spec.ID))
	return err
}

// submit plans and submits, and says the notes.
func (a *app) submit(cmd *cobra.Command, f *taskFlags, args []string) (*engine.Engine, *jobs.Record, error) {
	cfg, err := a.config(cmd)
	if err != nil {
		return nil, nil, err
	}
	t, choice, notes, err := f.task(cmd, args, cfg)
	if err != nil {
		return nil, nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	plan := func(choice engine.Choice) (*jobs.Spec, error) {
		spec, err := e.Plan(cmd.Context(), t, choice, false)
		if err == nil {
			a.notes(append(notes, spec.Notes...))
		}
		return spec, err
	}
	if cmd.Flags().Changed(flagKey) {
		rec, made, err := e.SubmitOnce(cmd.Context(), f.key, t, choice, plan)
		if err == nil && !made {
			a.say("job %s was submitted with this idempotency key before", jobs.Short(rec.Spec.ID))
		}
		return e, rec, err
	}
	spec, err := plan(choice)
	if err != nil {
		return nil, nil, err
	}
	rec, err := e.Submit(cmd.Context(), spec, t)
	if rec != nil {
		if u := rec.Stuck(); u != nil {
			a.say("warning: %s", u.Reason)
			a.say("hint: %s", u.Hint)
		}
	}
	return e, rec, err
}

func (a *app) renderCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use: "render [flags] TASK.md | render [flags] -- COMMAND...",
		Long: `Print the job script that berth submit would hand to the scheduler. Nothing is
submitted or written, and neither Slurm nor the image needs to be here: versions
come from the site profile. With --login, berth's program is put on that host and
asked for its paths.

Words in braces, such as {image}, are known only on the node: the runner fills them
in and records the final command line in argv.json. Ids are zeros; a submitted job
has its own.

` + taskHelp + `
` + exitHelp + `0 ok, 2 the task or an option is wrong, 3 the task file or the profile does not
exist, 78 its containment is not available here.`,
		Example: `  berth render task.md
  berth render --profile lake --image py.sif --gpus 1 --time 2h -- python3 train.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			t, choice, notes, err := f.task(cmd, args, cfg)
			if err != nil {
				return err
			}
			h, err := config.Home()
			if err != nil {
				return err
			}
			e, err := a.planner()
			if err != nil {
				return err
			}
			spec, err := e.Plan(cmd.Context(), t, choice, true)
			if err != nil {
				return err
			}
			e.Node = func() (string, error) { return filepath.Join(h, "bin", "berth-node"), nil }
			script, err := e.Render(cmd.Context(), spec)
			if err != nil {
				return err
			}
			a.notes(append(notes, spec.Notes...))
			_, err = io.WriteString(a.stdout, script)
			return err
		},
	}
	f.add(c)
	return c
}
