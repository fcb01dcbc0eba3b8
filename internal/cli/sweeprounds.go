package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"berth/engine"
	"berth/internal/sweep"
	"berth/internal/sweep/define"
	"berth/internal/sweep/journal"
	"berth/internal/sweep/look"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const whereHelp = `EXPR is a condition over a task's parameters and what it did, such as
"lr < 0.1 and class == 'memory'". Beside parameters there are: task, id, repeat, state (ok,
failed, killed, timeout, not_started, out_of_memory, set_aside, running, waiting, withdrawn),
class (task: it failed by itself; memory, time, node; policy: its program is not there), tries
(how often it was tried again), exit, signal, seconds, cpu_seconds, memory (MiB), deaths,
round, worker.`

func (a *app) sweepRetryCmd() *cobra.Command {
	var failed bool
	var where string
	c := &cobra.Command{
		Use: "retry [SWEEP] --failed | retry [SWEEP] --where EXPR | retry SWEEP TASK...", Short: "run tasks again that have a result",
		Long: `Run tasks again, in a round of their own, and return: those that did not succeed, those for
which EXPR is true, or these. The new result of a task counts, whether it is better or
worse; the earlier one stays in the record. A task that has no result is not run by this:
berth sweep resume.

` + whereHelp + "\n" + sweepExit,
		Example: "  berth sweep retry lr --failed\n  berth sweep retry lr --where 'exit == 137 and model == \"large\"'\n  berth sweep retry lr 17 0a3f",
		RunE: func(cmd *cobra.Command, args []string) error {
			said := 0
			for _, x := range []bool{failed, where != "", len(args) > 1} {
				if x {
					said++
				}
			}
			if said != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "retry needs one of --failed, --where and the numbers of tasks",
					Hint: "berth sweep retry --help"}
			}
			l, err := lookAt(args)
			if err != nil {
				return err
			}
			defer l.Close()
			s, f := l.Sweep, l.Fold
			r := sweep.Round{Kind: sweep.RoundRetry, Created: a.now().UTC()}
			switch {
			case failed:
				r.Why, r.Runs = "--failed", l.States(look.NotOK...)
			case where != "":
				r.Why = "--where " + where
				if r.Runs, err = whereNumbers(l, where); err != nil {
					return err
				}
			default:
				r.Why = strings.Join(args[1:], " ")
				if r.Runs, err = sayNumbers(s, f, args[1:]); err != nil {
					return err
				}
			}
			if len(r.Runs) == 0 {
				return &jobs.Error{Kind: jobs.KindNotFound,
					Msg:  fmt.Sprintf("there is nothing to retry in sweep %s: %s", s.Spec.Name, sweepCounts(f)),
					Hint: "berth sweep status " + jobs.Short(s.Spec.ID)}
			}
			return a.beginRound(cmd.Context(), s, r, nil)
		},
	}
	c.Flags().BoolVar(&failed, "failed", false, "all that have a result other than ok")
	c.Flags().StringVar(&where, "where", "", "those that have a result, and for which `EXPR` is true")
	a.jsonFlag(c)
	return c
}

// whereNumbers are the tasks with a result for which a condition holds.
func whereNumbers(l *look.Look, where string) (n sweep.Numbers, err error) {
	holds, err := look.Where(where)
	if err != nil {
		return nil, err
	}
	err = l.Rows(l.States(append([]journal.State{journal.OK}, look.NotOK...)...), func(r look.Row) error {
		ok, err := holds(r)
		if ok {
			n.Add(r.Number)
		}
		return err
	})
	return n, err
}

// sayNumbers are tasks that a user has named, each of which has a result.
func sayNumbers(s *sweep.Sweep, f *journal.Fold, words []string) (n sweep.Numbers, err error) {
	said := make([]bool, s.Total()+1)
	for _, w := range words {
		t, err := s.Task(w)
		if err != nil {
			return nil, err
		}
		if st := f.State(uint32(t.Number)); !st.Result() {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("task %d is %s: it has no result yet", t.Number, st),
				Hint: "berth sweep resume runs what has none"}
		}
		said[t.Number] = true
	}
	for t, ok := range said {
		if ok {
			n.Add(t)
		}
	}
	return n, nil
}

// beginRound makes a round and submits its worker.
func (a *app) beginRound(ctx context.Context, s *sweep.Sweep, r sweep.Round, tasks func(r *sweep.Round, add func(define.Task) error) error) error {
	r, err := s.AddRound(r, 1, tasks)
	short := jobs.Short(s.Spec.ID)
	switch {
	case errors.Is(err, sweep.ErrRoundTaken):
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("another command has made round %d of sweep %s meanwhile; this one did nothing", r.Number, s.Spec.Name),
			Hint: "look at it, and say this again if it is still wanted: berth sweep status " + short}
	case err != nil:
		return err
	}
	added := 0
	if r.Table != nil {
		added = r.Table.Tasks
	}
	if a.json {
		if err := a.printJSON(map[string]any{"id": s.Spec.ID, "short": short, "name": s.Spec.Name, "round": r.Number, "kind": r.Kind,
			"tasks": r.Runs.Len(), "added": added, "withdrawn": r.Withdrawn.Len()}); err != nil {
			return err
		}
	}
	told := jobs.Plural(r.Runs.Len(), "task")
	if added > 0 {
		told += fmt.Sprintf(", %d of them new", added)
	}
	if n := r.Withdrawn.Len(); n > 0 {
		told += fmt.Sprintf("; %d withdrawn", n)
	}
	if len(r.Runs) == 0 || r.Kind == sweep.RoundResume { // resume begins a worker for all that is left
		a.say("round %d of sweep %s: %s", r.Number, s.Spec.Name, told)
		return nil
	}
	if s.Cancelled() || s.Paused() != nil {
		a.say("round %d of sweep %s: %s. The sweep is cancelled or paused: they run with: berth sweep resume %s", r.Number, s.Spec.Name, told, short)
		return nil
	}
	e, err := a.engine()
	if err == nil {
		err = a.goOn(ctx, e, s)
	}
	if err != nil {
		a.say("round %d of sweep %s is recorded, and runs with: berth sweep resume %s", r.Number, s.Spec.Name, short)
		return err
	}
	a.say("round %d of sweep %s: %s", r.Number, s.Spec.Name, told)
	return nil
}

// goOn submits the workers that are missing.
func (a *app) goOn(ctx context.Context, e *engine.Engine, s *sweep.Sweep) error {
	there, err := a.stillThere(ctx, e, s)
	if err == nil {
		err = a.passValues(ctx, e, s)
	}
	if err != nil || there > 0 && s.Spec.Worker.External != nil { // the one that runs begins this round, too
		return err
	}
	return a.beginWorkers(ctx, e, s, there)
}

func (a *app) sweepAddCmd() *cobra.Command {
	var rows string
	c := &cobra.Command{
		Use: "add SWEEP --rows FILE | add SWEEP FILE", Short: "add tasks to a sweep",
		Long: `Add the tasks of more rows, or of a sweep.toml, to a sweep, in a round of their own, and
return. They come behind the others, whose numbers stay. Rows that the sweep has already
are left out, and counted. The command is the sweep's: another one is another sweep.
` + sweepExit,
		Example: "  berth sweep add lr --rows more.csv\n  berth sweep add lr sweep.toml",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (rows != "") == (len(args) == 2) {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "add takes the name of a sweep, and one of --rows FILE and a sweep.toml",
					Hint: "berth sweep add --help"}
			}
			s, f, err := foldSweep(args[:1])
			if err != nil {
				return err
			}
			var d *define.Sweep
			if rows != "" {
				t, err := s.Command()
				if err != nil {
					return err
				}
				if d, err = define.OfTemplate(s.Spec.Name, t, rows); err != nil {
					return err
				}
				d.Rows(a.stdin)
			} else if d, err = a.definitionFor(s, cmd, args[1]); err != nil {
				return err
			}
			return a.mergeRound(cmd.Context(), s, f, d, sweep.Round{Kind: sweep.RoundAdd, Why: strings.Join(append(args[1:], rows), "")}, nil)
		},
	}
	c.Flags().StringVar(&rows, "rows", "", "rows from `FILE`: .csv with a head, .jsonl, or - for the lines of the standard input")
	a.jsonFlag(c)
	return c
}

// definitionFor reads a sweep.toml whose command is that of a sweep.
func (a *app) definitionFor(s *sweep.Sweep, cmd *cobra.Command, file string) (*define.Sweep, error) {
	d, _, err := (&sweepOptions{}).definition(a, cmd, []string{file})
	if err != nil {
		return nil, err
	}
	words, script := d.Command.Words()
	if script != s.Spec.Script || strings.Join(words, "\x00") != strings.Join(s.Spec.Words, "\x00") {
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("the command of %s is not that of sweep %s: all of its tasks would be others", file, s.Spec.Name),
			Hint: "a sweep of its own: berth sweep run " + file}
	}
	has := s.Spec
	for _, k := range [][3]string{
		{"cpus", d.Request.CPUs, has.Request.CPUs}, {"mem", d.Request.Memory, has.Request.Memory}, {"gpus", d.Request.GPUs, has.Request.GPUs},
		{"ntasks", d.Request.Ranks, has.Request.Ranks}, {"mpi", d.Request.MPI, has.Request.MPI},
		{"own", cmp.Or(d.Own, has.Own), has.Own}, {"collect", cmp.Or(d.Collect, has.Collect), has.Collect}, // may be of the command line
	} {
		if k[1] != k[2] {
			a.say("warning: %s = %q in %s is not used: all tasks of sweep %s have %q", k[0], k[1], file, has.Name, k[2])
		}
	}
	if d.Retry != nil && !reflect.DeepEqual(d.Retry, has.Retry) {
		a.say("warning: [retry] in %s is not used: the tasks of sweep %s keep what it began with", file, has.Name)
	}
	return d, nil
}

// mergeRound is a round with the tasks of a definition that the sweep does not have. With
// [sweep.RoundResume] those that it has and the definition does not are withdrawn. told, if
// not nil, is called with each task of the definition and the number that it has.
func (a *app) mergeRound(ctx context.Context, s *sweep.Sweep, f *journal.Fold, d *define.Sweep, r sweep.Round,
	told func(t define.Task, number int, isNew bool) error,
) error {
	known := make(map[define.ID]int32, s.Total())
	if err := s.IDs(func(n int, id define.ID) { known[id] = int32(n) }); err != nil {
		return err
	}
	d.Request = s.Spec.Request
	d.Worker, d.GPUs = s.Spec.Bounds(), sweep.GPUs(s.Spec.Worker)
	d.Steps = s.Spec.Steps()
	r.Created = a.now().UTC()
	stands := make([]bool, s.Total()+1)
	had, next := 0, s.Total()
	if told == nil {
		told = func(define.Task, int, bool) error { return nil }
	}
	err := a.beginRound(ctx, s, r, func(r *sweep.Round, add func(define.Task) error) error {
		err := d.Tasks(nil, func(t define.Task) error {
			if n, ok := known[t.ID]; ok {
				stands[n] = true
				had++
				return told(t, int(n), false)
			}
			next++
			return errors.Join(add(t), told(t, next, true))
		})
		if err != nil {
			return err
		}
		for n := 1; n < len(stands); n++ {
			switch st := f.State(uint32(n)); {
			case stands[n] && st == journal.Withdrawn:
				r.Runs.Add(n)
			case !stands[n] && r.Kind == sweep.RoundResume && !st.Result() && st != journal.Withdrawn:
				r.Withdrawn.Add(n)
			}
		}
		if had > 0 {
			a.say("%s of them sweep %s has already", jobs.Plural(had, "row"), s.Spec.Name)
		}
		return nil
	})
	if errors.Is(err, sweep.ErrNothing) && r.Kind == sweep.RoundAdd {
		a.say("sweep %s has no new task", s.Spec.Name)
		return nil
	}
	return err
}

func (a *app) sweepResumeCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "resume [SWEEP] [FILE]", Short: "run what has no result yet, or what a changed file has",
		Long: `Run the tasks of a sweep that have no result, after a crash, a cancellation or a pause, and
return. What is finished is not run again; workers that still run or wait go on, and those
that are missing are submitted.

With FILE, a sweep.toml, the sweep gets the rows that the file has now: new ones are run,
those that are gone are withdrawn where they have no result, and finished ones stay
finished. Without SWEEP it is the newest one that has the file's name.
` + sweepExit,
		Example: "  berth sweep resume lr\n  berth sweep resume sweep.toml",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if n := len(args); n > 0 && (n == 2 || filepath.Ext(args[0]) == ".toml") {
				file, args = args[n-1], args[:n-1]
			}
			var d *define.Sweep
			if file != "" && len(args) == 0 {
				named, _, err := (&sweepOptions{}).definition(a, cmd, []string{file})
				if err != nil {
					return err
				}
				args = []string{named.Name}
			}
			if file == "" {
				s, err := anySweep(args)
				if err != nil {
					return err
				}
				if s.Spec.TaskFile != "" {
					e, err := a.engine()
					if err != nil {
						return err
					}
					return a.submitRows(cmd, e, s)
				}
			}
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			if file != "" {
				if d, err = a.definitionFor(s, cmd, file); err != nil {
					return err
				}
				if err := a.mergeRound(cmd.Context(), s, f, d, sweep.Round{Kind: sweep.RoundResume,
					Why: file}, nil); err != nil && !errors.Is(err, sweep.ErrNothing) {
					return err
				}
				if f, err = s.Fold(); err != nil {
					return err
				}
			}
			left := f.Left()
			if left == 0 {
				if err := s.Resume(); err != nil { // rounds that come begin by themselves again
					return err
				}
				a.say("every task of sweep %s has a result", s.Spec.Name)
				return s.DropPassed() // rounds may have taken the last tasks away
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			there, err := a.stillThere(cmd.Context(), e, s)
			if err == nil {
				err = a.passValues(cmd.Context(), e, s)
			}
			if err != nil {
				return err
			}
			if err := s.Resume(); err != nil {
				return err
			}
			if there == 0 || s.Spec.Worker.External == nil {
				err = a.beginWorkers(cmd.Context(), e, s, there)
			}
			if err != nil {
				return err
			}
			a.say("sweep %s goes on: %s no result yet", s.Spec.Name, have(left))
			return nil
		},
	}
	return c
}
