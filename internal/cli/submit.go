package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const taskHelp = `
The task is a Markdown file with TOML (+++) or YAML (---) front matter, or a
command line after "--": one word is evaluated by the shell, several words are
an argv. Flags win over the file, the file over the profile.
`

func (a *app) submitCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use: "submit [flags] TASK.md | submit [flags] -- COMMAND...", Short: "submit a task; prints the job's id",
		Long: `Submit a task and print the job's id, and nothing else, on stdout.
` + taskHelp + `
  berth submit fix.md
  id=$(berth submit --image py.sif --time 10m -- python3 train.py --fast)
` + exitHelp + `0 submitted, 2 the task or an option is wrong or the scheduler refused
it, 3 a file it names does not exist, 5 the scheduler could not be reached, 75
try again, 78 the containment it asks for cannot be had.`,
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
	t, choice, err := f.task(cmd, args)
	if err != nil {
		return nil, nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	spec, err := e.Plan(cmd.Context(), t, choice, false)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range spec.Notes {
		a.say("note: %s", n)
	}
	rec, err := e.Submit(cmd.Context(), spec, t)
	return e, rec, err
}

func (a *app) renderCmd() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use: "render [flags] TASK.md | render [flags] -- COMMAND...", Short: "print the job script, submit nothing",
		Long: `Print the job script that a submission would hand to the scheduler. Nothing is
submitted or written, and neither Slurm nor the image need be here: versions
come from the profile. Ids in it are zeros; a submitted job has its own.

{image}, {overlay} and {scratch} are known only on the node, and are filled in
by the runner, which records the final command line in argv.json.
` + taskHelp + exitHelp + `0 ok, 2 the task or an option is wrong, 3 the task file or the profile does not
exist, 78 the containment it asks for cannot be had.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, choice, err := f.task(cmd, args)
			if err != nil {
				return err
			}
			h, err := home()
			if err != nil {
				return err
			}
			e, err := a.planner(h)
			if err != nil {
				return err
			}
			spec, err := e.Plan(cmd.Context(), t, choice, true)
			if err != nil {
				return err
			}
			script, err := e.Render(spec, filepath.Join(h, "bin", "berth-node"))
			if err != nil {
				return err
			}
			for _, n := range spec.Notes {
				a.say("note: %s", n)
			}
			_, err = io.WriteString(a.stdout, script)
			return err
		},
	}
	f.add(c)
	return c
}

func (a *app) versionCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "print the version of berth",
		Long: "Print the version of berth." + "\n" + exitHelp + "0.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if a.json {
				return a.printJSON(map[string]any{"version": v.version, "commit": v.commit, "go": v.goVersion, "os": v.os, "arch": v.arch, "embedded_node": v.embedded})
			}
			_, err := fmt.Fprintf(a.stdout, "berth %s %s/%s %s\n", v.version, v.os, v.arch, v.goVersion)
			return err
		},
	}
	a.jsonFlag(c)
	return c
}
