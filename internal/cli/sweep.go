package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/sweep"
	sweepcommand "berth/internal/sweep/command"
	"berth/internal/sweep/define"
	"berth/internal/sweep/journal"
	"berth/internal/sys/ids"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const sweepExit = exitHelp + `0 ok, 2 usage, 3 no such sweep or task, 5 a record could not be read.`

func (a *app) sweepCmd() *cobra.Command {
	all := []*cobra.Command{a.sweepStatusCmd(), a.sweepLsCmd()}
	for _, c := range []*cobra.Command{a.sweepLogsCmd(), a.sweepTailCmd(), a.sweepFailuresCmd(), a.sweepCollectCmd(),
		a.sweepReportCmd(), a.sweepCompareCmd(),
		a.sweepReplayCmd(), a.sweepResumeCmd(), a.sweepRetryCmd(), a.sweepAddCmd(), a.sweepTellCmd(), a.sweepAskCmd(), a.sweepPauseCmd(),
		a.sweepThrottleCmd(), a.sweepCancelCmd()} {
		a.reach(c)
		all = append(all, c)
	}
	all = append(all, a.sweepForgetCmd(), a.sweepThereCmd(), a.sweepSideCmd(), a.sweepRunCmd(), a.sweepSubmitCmd())
	return group("sweep",
		`A sweep is one command with parameters, and the rows that give them values
(berth help sweeps). Its tasks run inside few jobs, several at once, on this machine or in
one array of a cluster's scheduler. Finished ones are never run again, whatever is
killed when.`,
		`  berth sweep run --backend local sweep.toml
  berth sweep run --backend local --scheduler slurm --workers 8 --cpus 16 --time 2h sweep.toml
  berth sweep run --backend local --rows rows.csv -- python3 train.py --lr {lr} --seed {seed}
  ls *.pdb | berth sweep run --backend local --rows - -- ./dock {line}
  berth sweep status`, all...)
}

// sweepOptions are those of run and submit.
type sweepOptions struct {
	rows, name, limit string
	collect, own      string
	atOnce, most      int
	workers           int
	stopRate          float64
	plan, canary      bool
	pilot             int
	each              string
	where             taskFlags
}

func (o *sweepOptions) add(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.rows, "rows", "", "rows from `FILE`: .csv with a head, .jsonl, or - for the lines of the standard input")
	f.StringVar(&o.name, "name", "", "call the sweep `NAME` (default: of the file)")
	f.IntVar(&o.atOnce, "at-once", 0, "run `N` tasks at once, of all workers together (default: as many as there are CPUs for)")
	f.IntVar(&o.workers, "workers", 0,
		"on a cluster: submit `N` workers, each a job of its own that begins when there is room (default: 16, if there are tasks for them)")
	f.StringVar(&o.limit, "task-time", "", "end a task after `TIME`, such as 10m (default: no limit)")
	f.StringVar(&o.collect, "collect", "", "`PATTERN` of the files in which tasks leave results, such as 'results/{lr}.json': sweep collect")
	f.StringVar(&o.own, "own", "", "give each task its own `WHAT`: room (below the worker's container), container, nothing, or auto "+
		"(default: a room, else a container)")
	addKeyFlags(c, keyFlags(), sweepKeys)
	for name, text := range sweepHelps {
		f.Lookup(name).Usage = text
	}
	o.where.keys = sweepKeys
	o.where.addWhere(c)
	o.where.addLogin(c)
	f.IntVar(&o.most, "max-tasks", define.MostTasks, "refuse a sweep of more than `N` tasks")
	f.BoolVar(&o.canary, "canary", false, "begin with the first task alone; if it does not succeed, pause the sweep")
	f.IntVar(&o.pilot, "pilot", 0, "run `N` tasks first, spread over the table, and plan the others by their times and memory")
	f.StringVar(&o.each, "each", "", "plan with `TIME` for each task, such as 90s (default: of an earlier sweep of the same command)")
	f.Float64Var(&o.stopRate, "stop-on-error-rate", 0, "pause the sweep when more than this `PART` of the tasks fail, such as 0.2")
	f.BoolVar(&o.plan, "plan", false, "print what would be run, and submit nothing")
	a.jsonFlag(c)
}

const sweepHelp = `
FILE is a sweep.toml (berth help sweeps). With --rows the command stands behind "--": one
word is evaluated by the shell, several are a program and its arguments; {name} is a
parameter of the row. With --rows and a task file, in which {{ .name }} is a parameter, each
row is a job of its own, with its branch and its record. All rows are checked before anything
begins.

The container of a worker is opened as for berth run and has no more than its image and
what --bind names. Each of its tasks has a room of its own in it, or where that does not
work a container, and what it writes elsewhere than to a bind is gone afterwards; with
--own nothing all tasks of a worker share it, and what is in it.
--backend local runs them with your own rights, where you are; --backend modal or daytona
gives each a sandbox of that service, of the size that the task asks for.
With --login the sweep is one of that cluster's login node, with its records there, and goes on
when this machine is off; every verb of sweeps finds it from here (berth help sweeps).
Workers run on this machine, or in jobs of a cluster (--scheduler slurm, which is usual
where there is one): --cpus, --memory and --time are of each worker, which runs as many
tasks at once as it has room for.`

func (a *app) sweepRunCmd() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use: "run [flags] FILE | run --rows FILE [flags] TASK.md | run --rows FILE [flags] -- COMMAND...", Short: "run a sweep and watch it to its end",
		Long: `Submit a sweep, and watch it until every task has a result. Ctrl-C leaves it running.
` + sweepHelp + `
` + exitHelp + `0 all tasks succeeded, 1 some did not, 2 the definition or an option is
wrong or the scheduler refused its jobs, 3 a file does not exist, 5 its workers ended
before every task had a result, or the scheduler could not be reached, 75 you may have
no more jobs now, 78 its containment is not available, 130 ctrl-C left it running, or
it was cancelled.`,
		Example: "  berth sweep run --backend local sweep.toml\n  seq 100 | berth sweep " +
			"run --backend local --rows - --at-once 4 -- ./simulate --seed {line}",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, s, err := a.beginSweep(cmd, &o, args)
			if err != nil || s == nil {
				return err
			}
			if s.Spec.TaskFile != "" {
				return a.watchRows(cmd.Context(), e, s)
			}
			a.say("sweep %s (%s): %s, %d at once", s.Spec.Name, jobs.Short(s.Spec.ID), jobs.Plural(s.Spec.Tasks, "task"),
				atOnce(&s.Spec, s.Spec.Tasks))
			if err := a.watchPilot(cmd.Context(), e, s); err != nil {
				return err
			}
			return a.watchSweep(cmd.Context(), e, s)
		},
	}
	o.add(a, c)
	return c
}

func (a *app) sweepSubmitCmd() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "submit [flags] FILE | submit --rows FILE [flags] TASK.md | submit --rows FILE [flags] -- COMMAND...",
		Short: "submit a sweep and return; prints its id",
		Long: `Submit a sweep and print its id, and nothing else, on stdout. With --pilot it then waits
until the pilot has ended, and submits the other workers.
` + sweepHelp + `
` + exitHelp + `0 submitted, 2 the definition or an option is wrong or the scheduler refused its jobs,
3 a file does not exist, 5 the scheduler could not be reached, 75 you may have no more
jobs now, 78 its containment is not available.`,
		Example: "  berth sweep submit --backend local sweep.toml\n  berth sweep status",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, s, err := a.beginSweep(cmd, &o, args)
			if err != nil || s == nil {
				return err
			}
			if a.json {
				err = a.printJSON(map[string]any{"id": s.Spec.ID, "short": jobs.Short(s.Spec.ID),
					"name": s.Spec.Name, "tasks": s.Spec.Tasks, "dir": s.Dir})
			} else {
				_, err = fmt.Fprintln(a.stdout, jobs.Short(s.Spec.ID))
			}
			if err != nil {
				return err
			}
			return a.watchPilot(cmd.Context(), e, s)
		},
	}
	o.add(a, c)
	return c
}

// sweepRoot is where the sweeps are.
func sweepRoot() (string, error) {
	h, err := config.Home()
	return filepath.Join(h, "sweeps"), err
}

// definition reads what the command line names.
func (o *sweepOptions) definition(a *app, cmd *cobra.Command, args []string) (*define.Sweep, []byte, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case o.rows != "" && dash < 0 && len(args) == 1:
		s, err := define.OfTaskFile(args[0], o.rows)
		if err != nil {
			return nil, nil, err
		}
		s.Rows(a.stdin)
		return s, nil, nil
	case o.rows != "" && dash != 0:
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: `--rows needs a command behind "--"`,
			Hint: "berth sweep run --rows rows.csv -- ./train --lr {lr}"}
	case o.rows != "":
		s, err := define.Of("rows", args, o.rows)
		if err != nil {
			return nil, nil, err
		}
		s.Rows(a.stdin)
		return s, fmt.Appendf(nil, "rows = %q\ncommand = %q\n", o.rows, args), nil
	case dash >= 0 || len(args) != 1:
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a sweep is one file, or --rows and a command", Hint: cmd.CommandPath() + " --help"}
	}
	text, err := os.ReadFile(args[0])
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("sweep %s does not exist", args[0])}
	case err != nil:
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the sweep", Err: err}
	}
	s, err := define.Read(args[0], text)
	if err != nil {
		return nil, nil, err
	}
	s.Rows(a.stdin)
	return s, text, nil
}

// beginSweep makes a sweep and submits its worker; nil is that only the plan was
// asked for.
func (a *app) beginSweep(cmd *cobra.Command, o *sweepOptions, args []string) (*engine.Engine, *sweep.Sweep, error) {
	if a.given != nil {
		defer a.given.begun()
	}
	d, text, err := o.definition(a, cmd, args)
	if err != nil {
		return nil, nil, err
	}
	if d.TaskFile != "" {
		return a.beginTaskSweep(cmd, o, d)
	}
	spec := sweep.Spec{Name: d.Name, Created: a.now().UTC(), Request: d.Request, Retry: d.Retry}
	if o.name != "" {
		spec.Name = o.name
	}
	if o.stopRate < 0 || o.stopRate >= 1 {
		return nil, nil, usage("--stop-on-error-rate is a part from 0 to 1, such as 0.2")
	}
	if o.pilot < 0 || o.pilot > sweep.MostPilot {
		return nil, nil, usage("--pilot is a number of tasks from 1 to %d", sweep.MostPilot)
	}
	if o.pilot > 0 && o.canary {
		return nil, nil, usage("--pilot and --canary both say which tasks run before the others: leave one out")
	}
	spec.Canary, spec.StopRate, spec.Pilot = o.canary, o.stopRate, o.pilot
	if spec.Collect = d.Collect; o.collect != "" {
		spec.Collect = o.collect
	}
	spec.Own = cmp.Or(o.own, d.Own, sweepcommand.OwnAuto)
	if !slices.Contains(sweepcommand.Owns, spec.Own) {
		return nil, nil, usage("--own %s: it is one of %s", jobs.Printable(spec.Own), strings.Join(sweepcommand.Owns, ", "))
	}
	if err := jobs.CheckText("the name of the sweep", spec.Name); err != nil {
		return nil, nil, err
	}
	if o.atOnce < 0 || o.most < 1 || o.workers < 0 {
		return nil, nil, usage("--at-once, --workers and --max-tasks are numbers above 0")
	}
	t, err := a.sweepTask(cmd, o, spec.Name)
	if err != nil {
		return nil, nil, err
	}
	if t.Login != nil {
		return nil, nil, a.sendSweep(cmd, o, d, t, spec.Name, args)
	}
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	if err := a.placeSweep(cmd, e, o, t, &spec); err != nil {
		return nil, nil, err
	}
	if spec.Worker.Level == jobs.LevelNone && spec.Worker.External == nil && (spec.Own == sweepcommand.OwnRoom || spec.Own == sweepcommand.OwnContainer) {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "--own " + spec.Own + ": tasks of the backend " + spec.Worker.Backend + " run without containment",
			Hint: "--backend singularity, docker or bwrap; or --own auto, which gives each task what there is"}
	}
	d.Worker, d.GPUs = spec.Bounds(), sweep.GPUs(spec.Worker)
	d.Steps = spec.Steps()
	if o.limit != "" {
		if spec.Limit, err = jobs.ParseDuration(o.limit); err != nil {
			return nil, nil, usage("--task-time: %v", err)
		}
	}
	spec.Words, spec.Script = d.Command.Words()
	if spec.Workdir, err = os.Getwd(); err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the working directory is not known", Err: err}
	}
	d.Most = o.most
	if o.plan {
		return nil, nil, a.planSweep(cmd.Context(), e, d, spec, o.each)
	}
	var passed []string
	if spec.Passes() {
		if passed, err = e.SweepValues(cmd.Context(), spec.EnvNames, spec.Worker.Credentials); err != nil {
			return nil, nil, err
		}
	}
	root, err := sweepRoot()
	if err != nil {
		return nil, nil, err
	}
	if spec.ID, err = ids.New(); err != nil {
		return nil, nil, err
	}
	if a.given != nil {
		spec.ID = a.given.ID
	}
	s, err := sweep.Create(root, spec, spec.Workers, text, func(add func(define.Task) error) error { return d.Tasks(nil, add) })
	if err != nil {
		return nil, nil, err
	}
	if spec.Passes() {
		err = s.SetPassed(passed)
	}
	if err == nil {
		err = a.beginWorkers(cmd.Context(), e, s, 0)
	}
	if err != nil {
		a.say("the sweep %s is recorded, and runs with: berth sweep resume %s", s.Spec.Name, jobs.Short(s.Spec.ID))
		return nil, nil, err
	}
	return e, s, nil
}

// sweepPace is how often a sweep that is watched is looked at.
const sweepPace = 300 * time.Millisecond

// absence is for how long no worker of a sweep has been seen. The last words of workers
// may be newer than a look at them, and a scheduler's answer some seconds old.
type absence struct{ since time.Time }

// goneAfter is longer than an answer of a scheduler is kept for who waits.
const goneAfter = 3 * time.Second

// gone tells, after a look that saw n workers or failed, whether there are none any more.
func (b *absence) gone(n int, err error, now time.Time) bool {
	switch {
	case err != nil:
	case n > 0:
		b.since = time.Time{}
	case b.since.IsZero():
		b.since = now
	default:
		return now.Sub(b.since) >= goneAfter
	}
	return false
}

// watchSweep shows a sweep to its end.
func (a *app) watchSweep(ctx context.Context, e *engine.Engine, s *sweep.Sweep) error {
	ctx = jobs.WithPatience(ctx)
	var unseen absence
	gone := false
	for {
		f, err := s.Fold()
		if err != nil {
			return err
		}
		if a.errTTY {
			a.overwrite(sweepLine(f, a.now()))
		}
		if f.Left() > 0 {
			n, _, err := e.SweepWorkers(ctx, s.Dir)
			gone = unseen.gone(n, err, a.now())
		}
		if f.Left() == 0 || gone {
			if a.errTTY {
				a.overwrite("")
			}
			return a.concludeSweep(s, f)
		}
		select {
		case <-ctx.Done():
			if a.errTTY {
				a.overwrite("")
			}
			return a.leftSweep(s)
		case <-time.After(sweepPace):
		}
	}
}

// leftSweep says that a sweep goes on unwatched.
func (a *app) leftSweep(s *sweep.Sweep) error {
	short := jobs.Short(s.Spec.ID)
	a.say("left sweep %s running", s.Spec.Name)
	a.say("to look at it: berth sweep status %s    to end it: berth sweep cancel %s", short, short)
	return exitCode(jobs.CodeInterrupted)
}

// concludeSweep says how a sweep has ended.
func (a *app) concludeSweep(s *sweep.Sweep, f *journal.Fold) error {
	short := jobs.Short(s.Spec.ID)
	left := f.Left()
	if a.json {
		if err := a.printJSON(map[string]any{"sweep": sweepJSON(s, f, a.now())}); err != nil {
			return err
		}
	}
	for _, d := range f.Damaged() {
		a.say("warning: %s; tasks behind that without another result are missing", d)
	}
	a.say("sweep %s: %s", s.Spec.Name, sweepCounts(f))
	switch {
	case left > 0 && s.Cancelled():
		a.say("it was cancelled; the rest runs with: berth sweep resume %s", short)
		return exitCode(jobs.CodeInterrupted)
	case left > 0 && s.Paused() != nil:
		p := s.Paused()
		a.say("it is paused: %s; the rest runs with: berth sweep resume %s", p.Why, short)
		if p.Trouble {
			return exitCode(jobs.CodeTaskFailed)
		}
		return exitCode(jobs.CodeInterrupted)
	case left > 0:
		if why := s.LastTrouble(); why != "" {
			a.say("its last worker: %s", jobs.Printable(why))
		}
		a.say("its workers have ended, and %s no result; these run with: berth sweep resume %s", have(left), short)
		return exitCode(jobs.CodeInfra)
	case f.Count(journal.OK) < f.Wanted():
		for n, shown := uint32(1), 0; int(n) <= f.Tasks() && shown < 3; n++ {
			if st := f.State(n); st.Result() && st != journal.OK {
				a.say("task %d: %s; berth sweep logs %s %d", n, f.State(n), short, n)
				shown++
			}
		}
		return exitCode(jobs.CodeTaskFailed)
	}
	return nil
}

func have(n int) string {
	if n == 1 {
		return "1 task has"
	}
	return fmt.Sprintf("%d tasks have", n)
}
