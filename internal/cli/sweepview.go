package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/journal"
	"berth/internal/sweep/look"
	"berth/internal/sys/lease"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// sweepStates are the states that are told, in their order.
var sweepStates = []journal.State{journal.OK, journal.Failed, journal.Killed, journal.TimedOut, journal.NoStart,
	journal.OverMemory, journal.SetAside, journal.Running, journal.Waiting, journal.Withdrawn}

// sweepCounts says how many tasks are in which state.
func sweepCounts(f *journal.Fold) string {
	var parts []string
	for _, s := range sweepStates {
		if n := f.Count(s); n > 0 || s == journal.OK {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

// firstTasks names the first tasks in a state.
func firstTasks(f *journal.Fold, state journal.State, most int) string {
	var words []string
	for t := uint32(1); int(t) <= f.Tasks(); t++ {
		if f.State(t) != state {
			continue
		}
		if len(words) == most {
			words = append(words, "...")
			break
		}
		words = append(words, fmt.Sprint(t))
	}
	return "task " + strings.Join(words, ", ")
}

// sweepTimes are how fast a sweep goes and what is left; zero is not known.
func sweepTimes(f *journal.Fold, now time.Time) (rate float64, left time.Duration) {
	began, ended := f.Times()
	if f.Done() == 0 || began.IsZero() {
		return 0, 0
	}
	if f.Left() > 0 {
		ended = now
	}
	if took := ended.Sub(began).Seconds(); took > 0 {
		rate = float64(f.Done()) / took
		left = time.Duration(float64(f.Left()) / rate * float64(time.Second)).Round(time.Second)
	}
	return rate, left
}

// sweepLine is how it stands, for one line.
func sweepLine(f *journal.Fold, now time.Time) string {
	line := fmt.Sprintf("%d of %d: %s", f.Done(), f.Wanted(), sweepCounts(f))
	if rate, left := sweepTimes(f, now); rate > 0 {
		line += fmt.Sprintf("; %.1f/s, %s left", rate, left)
	}
	return line
}

// aliveWorkers are the workers that seem to live.
func aliveWorkers(s *sweep.Sweep, now time.Time) []uint32 {
	all, err := s.Workers()
	if err != nil {
		return nil
	}
	me := lease.Self()
	return slices.DeleteFunc(all, func(w uint32) bool { return !claims.SeemsAlive(s.WorkerDir(w), me, 0, now) })
}

// sweepAlive counts them.
func sweepAlive(s *sweep.Sweep, now time.Time) int { return len(aliveWorkers(s, now)) }

func sweepState(s *sweep.Sweep, f *journal.Fold, alive int) string {
	switch {
	case f.Left() == 0:
		return "finished"
	case s.Cancelled():
		return "cancelled"
	case s.Paused() != nil && alive == 0:
		return "paused"
	case s.Paused() != nil:
		return "pausing"
	case alive > 0:
		return "running"
	}
	if began, _ := f.Times(); began.IsZero() {
		return "waiting"
	}
	return "stopped"
}

// sweepJSON is a sweep in every --json output. Fields are only ever added.
func sweepJSON(s *sweep.Sweep, f *journal.Fold, now time.Time) map[string]any {
	alive := sweepAlive(s, now)
	counts := map[string]int{}
	for _, x := range sweepStates {
		counts[strings.ReplaceAll(x.String(), " ", "_")] = f.Count(x)
	}
	classes := map[jobs.Class]int{}
	for _, c := range look.Classes(f) {
		classes[c.Class] = c.Count
	}
	rate, left := sweepTimes(f, now)
	why := ""
	if p := s.Paused(); p != nil {
		why = p.Why
	}
	plan, _ := s.Plan()
	workers, _ := s.CoreHours(now)
	models, _ := s.Models()
	return map[string]any{"pilot": plan, "paused_why": why, "throttle": s.Throttled(), "id": s.Spec.ID, "short": jobs.Short(s.Spec.ID),
		"name": s.Spec.Name, "state": sweepState(s, f, alive),
		"tasks": f.Tasks(), "rounds": s.Rounds(), "done": f.Done(), "overlay": s.Spec.Overlay,
		"counts": counts, "classes": classes, "tried_again": f.Tried(), "core_hours": f.CoreHours(), "worker_core_hours": workers, "models": models,
		"workers": alive, "per_second": rate, "left_ns": left, "dir": s.Dir, "damaged": f.Damaged(), "created": s.Spec.Created}
}

// oneSweep finds the sweep that a verb is about, whose tasks run in workers; without a word
// it is the newest.
func oneSweep(args []string) (*sweep.Sweep, error) {
	s, err := anySweep(args)
	if err == nil && s.Spec.TaskFile != "" {
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the tasks of sweep %s are jobs, each with a record of its own", s.Spec.Name),
			Hint: "berth sweep status " + jobs.Short(s.Spec.ID) + " counts them, and berth ps --all --label " +
				s.Label() + " lists them for berth logs, cancel and retry"}
	}
	return s, err
}

// anySweep finds a sweep, of a task file too.
func anySweep(args []string) (*sweep.Sweep, error) {
	root, err := sweepRoot()
	if err != nil {
		return nil, err
	}
	word := ""
	if len(args) > 0 {
		if word = strings.TrimSpace(args[0]); word == "" {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the name of a sweep is empty", Hint: "berth sweep ls lists them"}
		}
	}
	return sweep.Find(root, word)
}

// foldSweep finds it, with what its tasks did until now.
func foldSweep(args []string) (*sweep.Sweep, *journal.Fold, error) {
	s, err := oneSweep(args)
	if err != nil {
		return nil, nil, err
	}
	f, err := s.Fold()
	return s, f, err
}

// lookAt looks at the sweep that args name.
func lookAt(args []string) (*look.Look, error) {
	s, f, err := foldSweep(args)
	if err != nil {
		return nil, err
	}
	return look.New(s, f), nil
}

func (a *app) sweepStatusCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "status [SWEEP]", Short: "show how far a sweep is",
		Long: `Show how far a sweep is: the newest one, or the one with this name or id. It reads the
sweep's own records, and asks no scheduler.
` + sweepExit,
		Example: "  berth sweep status\n  berth sweep status lr --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := anySweep(args)
			if err != nil {
				return err
			}
			if which.Spec.TaskFile != "" {
				return a.rowsStatus(cmd.Context(), which)
			}
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			now := a.now()
			live, err := sweepRunning(s, f)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"sweep": sweepJSON(s, f, now), "running": emptyNot(live)})
			}
			return a.rows(sweepRows(s, f, live, now))
		},
	}
	a.jsonFlag(c)
	a.reach(c)
	a.watchFlag(c)
	return c
}

func (a *app) sweepLsCmd() *cobra.Command {
	var where string
	var most int
	c := &cobra.Command{
		Use: "ls [SWEEP]", Short: "list the sweeps, or the tasks of one", Args: cobra.MaximumNArgs(1),
		Long: `List the sweeps, the newest first. With SWEEP list its tasks, with --where those for which
EXPR is true. A sweep whose records cannot be read is named behind the others, and the exit
code is 5.

` + whereHelp + "\n" + sweepExit,
		Example: "  berth sweep ls\n  berth sweep ls lr --where 'state != \"ok\" and lr > 0.01'",
		RunE: func(_ *cobra.Command, args []string) error {
			if most < 1 {
				return usage("--most is a number above 0")
			}
			if len(args) > 0 || where != "" {
				return a.lsTasks(args, where, most)
			}
			root, err := sweepRoot()
			if err != nil {
				return err
			}
			return a.lsSweeps(root)
		},
	}
	c.Flags().StringVar(&where, "where", "", "list the tasks for which `EXPR` is true; without SWEEP those of the newest one")
	c.Flags().IntVar(&most, "most", 10_000, "list `N` tasks at most")
	a.jsonFlag(c)
	a.reach(c)
	a.watchFlag(c)
	return c
}

// lsSweeps lists the sweeps below root. One that cannot be read keeps no other from being listed.
func (a *app) lsSweeps(root string) error {
	all, unread, err := sweep.Scan(root)
	if err != nil {
		return err
	}
	far, more, err := sweep.ListFar(root)
	if err != nil {
		return err
	}
	unread = append(unread, more...)
	slices.SortFunc(far, func(a, b *sweep.Far) int { return b.Created.Compare(a.Created) })
	list, rows := []any{}, [][]string{}
	elsewhere := func(after time.Time) { // those that are newer
		for ; len(far) > 0 && far[0].Created.After(after); far = far[1:] {
			f := far[0]
			short := jobs.Short(f.ID)
			list = append(list, map[string]any{"id": f.ID, "short": short, "name": f.Name, "state": "there", "login": f.Login.Host,
				"tasks": f.Tasks, "created": f.Created})
			rows = append(rows, []string{short, f.Name, "there", fmt.Sprintf("-/%d", f.Tasks),
				"on " + f.Login.Host + ": berth sweep status " + short, a.when(f.Created)})
		}
	}
	for _, s := range all {
		elsewhere(s.Spec.Created)
		var one any
		var row []string
		var err error
		switch {
		case !a.json:
			row, err = a.sweepRow(s)
		case s.Spec.TaskFile != "":
			one = map[string]any{"id": s.Spec.ID, "short": jobs.Short(s.Spec.ID), "name": s.Spec.Name, "task_file": s.Spec.TaskFile,
				"state": "jobs", "tasks": s.Spec.Tasks, "dir": s.Dir, "created": s.Spec.Created}
		default:
			var f *journal.Fold
			if f, err = s.Fold(); err == nil {
				one = sweepJSON(s, f, a.now())
			}
		}
		if err != nil {
			unread = append(unread, sweep.Unread{Dir: s.Dir, Err: err})
			continue
		}
		list, rows = append(list, one), append(rows, row)
	}
	elsewhere(time.Time{})
	if a.json {
		bad := []any{}
		for _, u := range unread {
			bad = append(bad, map[string]any{"id": filepath.Base(u.Dir), "dir": u.Dir, "error": u.Err.Error()})
		}
		err = a.printJSON(map[string]any{"sweeps": list, "unreadable": bad})
	} else if err = a.table(sweepHead, rows); len(rows) == 0 && a.tty {
		a.say("no sweeps: berth sweep submit begins one")
	}
	if err != nil || len(unread) == 0 {
		return err
	}
	for _, u := range unread {
		a.say("warning: sweep %s cannot be read: %s", jobs.Short(filepath.Base(u.Dir)), jobs.Printable(u.Err.Error()))
	}
	return exitCode(jobs.CodeInfra)
}

// sweepRows say how far a sweep is, as label and value; live are tasks that run.
func sweepRows(s *sweep.Sweep, f *journal.Fold, live []runningTask, now time.Time) [][2]string {
	alive := sweepAlive(s, now)
	rows := [][2]string{{"sweep", s.Spec.Name + " (" + jobs.Short(s.Spec.ID) + ")"}, {"state", sweepState(s, f, alive)},
		{"done", fmt.Sprintf("%d of %d", f.Done(), f.Wanted())}}
	if s.Rounds() > 1 {
		rows = append(rows, [2]string{"rounds", fmt.Sprint(s.Rounds())})
	}
	for _, x := range sweepStates {
		n := f.Count(x)
		if text := fmt.Sprint(n); n > 0 {
			if x == journal.SetAside {
				text += ": " + firstTasks(f, x, 5) + "; workers ended while each ran"
			}
			rows = append(rows, [2]string{x.String(), text})
		}
	}
	if all := look.Classes(f); len(all) > 0 {
		var parts []string
		for _, c := range all {
			parts = append(parts, fmt.Sprintf("%s %d", c.Class, c.Count))
		}
		rows = append(rows, [2]string{"by class", strings.Join(parts, ", ")})
	}
	if n := f.Tried(); n > 0 {
		rows = append(rows, [2]string{"tried again", fmt.Sprint(n)})
	}
	if rate, left := sweepTimes(f, now); rate > 0 {
		rows = append(rows, [2]string{"rate", fmt.Sprintf("%.1f/s", rate)})
		if f.Left() > 0 && alive > 0 {
			rows = append(rows, [2]string{"left", left.String()})
		}
	}
	if all, err := s.CoreHours(now); err == nil && all > 0 {
		rows = append(rows, [2]string{"core-hours", fmt.Sprintf("%.2f of workers, %.2f of tasks", all, f.CoreHours())})
	}
	switch u, err := s.Models(); {
	case err != nil:
		rows = append(rows, [2]string{"models", "not known: " + err.Error()})
	case u != nil:
		rows = append(rows, [2]string{"models", u.String()})
	}
	if plan, err := s.Plan(); err == nil && plan != nil {
		rows = append(rows, [2]string{"pilot", strings.TrimPrefix(pilotText(plan.Measured), "pilot: ")})
	}
	if p := s.Paused(); p != nil {
		rows = append(rows, [2]string{"paused", p.Why})
	}
	if n := s.Throttled(); n > 0 {
		rows = append(rows, [2]string{"throttled", fmt.Sprintf("%d at once", n)})
	}
	for _, t := range live {
		rows = append(rows, [2]string{fmt.Sprintf("task %d", t.Task), t.text()})
	}
	rows = append(rows, placeRows(s)...)
	rows = append(rows, [2]string{"workers", fmt.Sprint(alive)}, [2]string{"directory", s.Dir})
	for _, d := range f.Damaged() {
		rows = append(rows, [2]string{"damaged", d})
	}
	return rows
}

var sweepHead = []string{"ID", "NAME", "STATE", "DONE", "TASKS", "CREATED"}

// sweepRow is a sweep below sweepHead.
func (a *app) sweepRow(s *sweep.Sweep) ([]string, error) {
	short := jobs.Short(s.Spec.ID)
	if s.Spec.TaskFile != "" {
		ids, err := s.Jobs()
		if err != nil {
			return nil, err
		}
		return []string{short, s.Spec.Name, "jobs", fmt.Sprintf("-/%d", s.Spec.Tasks),
			jobs.Plural(len(ids), "job") + " submitted: berth sweep status " + short, a.when(s.Spec.Created)}, nil
	}
	f, err := s.Fold()
	if err != nil {
		return nil, err
	}
	return []string{short, s.Spec.Name, sweepState(s, f, sweepAlive(s, a.now())),
		fmt.Sprintf("%d/%d", f.Done(), f.Wanted()), sweepCounts(f), a.when(s.Spec.Created)}, nil
}

func (a *app) sweepLogsCmd() *cobra.Command {
	var raw bool
	var try int
	c := &cobra.Command{
		Use: "logs SWEEP TASK", Short: "show what a task of a sweep has written",
		Long: `Show what a task has written: its stdout on stdout, its stderr on stderr. TASK is its
number, or the beginning of its id. The parameters and how it ended are said on stderr.

Of a task that ran more than once it is the try whose result counts, or the one that runs.
--try shows another: each run of the task is counted, of all rounds, from 1 on, those too
that were preempted or whose worker ended under them.

` + rawHelp + "\n" + sweepExit,
		Example: "  berth sweep logs lr 17\n  berth sweep logs lr 17 --try 1",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("try") && try < 1 {
				return usage("--try is a number from 1 on")
			}
			s, err := oneSweep(args)
			if err != nil {
				return err
			}
			t, err := s.Task(args[1])
			if err != nil {
				return err
			}
			f, err := s.Fold()
			if err != nil {
				return err
			}
			l := look.New(s, f)
			defer l.Close()
			row, err := l.Row(t)
			if err != nil {
				return err
			}
			stdout, stderr := a.shown(raw)
			r := row.Record
			if try > 0 {
				r, err = a.tryOf(l, row, try)
			} else {
				a.sayLast(s, row)
			}
			if err != nil || r == nil {
				return err
			}
			return l.In.Output(r, func(f journal.Frame) error {
				to := map[journal.Stream]io.Writer{journal.Stdout: stdout, journal.Stderr: stderr}[f.Stream]
				if to == nil {
					return nil
				}
				_, err := to.Write(f.Data)
				return err
			})
		},
	}
	c.Flags().IntVar(&try, "try", 0, "show the `N`th run of the task")
	rawFlag(c.Flags(), &raw)
	return c
}

// taskText names a task and its parameters.
func taskText(r look.Row) string {
	return fmt.Sprintf("task %d (%s): %s", r.Number, r.ID.String()[:12], paramText(r.Params))
}

// endText says how a run of a task ended.
func endText(r *journal.Record) string {
	text := r.State.String()
	if r.Code != 0 {
		text += fmt.Sprintf(", exit code %d", r.Code)
	}
	return fmt.Sprintf("%s, %s, %d MiB", text, r.Took.Round(time.Millisecond), jobs.Bytes(r.Memory).MiB())
}

// sayLast says how it stands with a task, and whether it has run before.
func (a *app) sayLast(s *sweep.Sweep, row look.Row) {
	r, text := row.Record, row.State.String()
	switch {
	case r == nil:
	case !row.State.Result():
		text += "; what it has written until now"
	default:
		text = endText(r)
	}
	a.say("%s: %s", taskText(row), text)
	before := ""
	switch {
	case r != nil && (r.Tries.Sum() > 0 || r.Deaths > 0):
		before = "it ran before"
	case r != nil && r.Round > 1 || row.State == journal.Waiting && s.Rounds() > 1: // all results would have to be read
		before = "it may have run before"
	default:
		return
	}
	a.say("%s: berth sweep logs %s %d --try 1 shows the first", before, jobs.Short(s.Spec.ID), row.Number)
}

// tryOf is a run of a task, from 1 on, after it was said which one.
func (a *app) tryOf(l *look.Look, row look.Row, n int) (*journal.Record, error) {
	tries, err := l.Tries(row.Number)
	if err != nil {
		return nil, err
	}
	if n > len(tries) {
		e := &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("task %d of sweep %s has ", row.Number, l.Sweep.Spec.Name)}
		if len(tries) == 0 {
			e.Msg, e.Hint = e.Msg+"not run", "berth sweep status "+jobs.Short(l.Sweep.Spec.ID)
		} else {
			e.Msg, e.Hint = e.Msg+"run "+jobs.Plural(len(tries), "time"), fmt.Sprintf("--try is a number from 1 to %d", len(tries))
		}
		return nil, e
	}
	t := tries[n-1]
	text, last := "its worker ended under it; what was kept until then", row.Record
	switch {
	case t.Void():
		text = "stopped, and not counted"
	case t.Ended():
		text = endText(&t.Record)
	case row.State == journal.Running && last != nil && last.Worker == t.Worker && last.Began.Equal(t.Began):
		text = "running; what it has written until now"
	}
	if l.Sweep.Rounds() > 1 {
		text = fmt.Sprintf("round %d: %s", t.Round, text)
	}
	a.say("%s: try %d of %d: %s", taskText(row), n, len(tries), text)
	return &t.Record, nil
}

func (a *app) sweepCancelCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "cancel [SWEEP]", Short: "end a sweep; finished tasks keep their results",
		Long: `End what runs of a sweep, and begin no more of it: what waits in the queue of a cluster
is taken out of it. Finished tasks keep their results, and berth sweep resume runs the
others.
` + sweepExit,
		Example: "  berth sweep cancel lr",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := oneSweep(args)
			if err != nil {
				return err
			}
			if err := a.cancelSweep(cmd.Context(), s); err != nil {
				return err
			}
			a.say("sweep %s is being cancelled", s.Spec.Name)
			return nil
		},
	}
	return c
}

func (a *app) cancelSweep(ctx context.Context, s *sweep.Sweep) error {
	if err := s.Cancel(); err != nil {
		return err
	}
	if err := s.DropPassed(); err != nil {
		return err
	}
	return a.cancelWorkers(ctx, s)
}
