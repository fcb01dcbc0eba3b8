package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/journal"
	"berth/internal/sys/lease"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// sweepStates are the states that are told, in their order.
var sweepStates = []journal.State{journal.OK, journal.Failed, journal.Killed, journal.TimedOut, journal.NoStart,
	journal.SetAside, journal.Running, journal.Waiting}

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

// sweepTimes are how fast a sweep goes and what is left; zero is not known.
func sweepTimes(s *sweep.Sweep, f *journal.Fold, now time.Time) (rate float64, left time.Duration) {
	began, ended, _ := f.Times()
	if f.Done() == 0 || began.IsZero() {
		return 0, 0
	}
	if f.Done() < s.Spec.Tasks {
		ended = now
	}
	if took := ended.Sub(began).Seconds(); took > 0 {
		rate = float64(f.Done()) / took
		left = time.Duration(float64(s.Spec.Tasks-f.Done()) / rate * float64(time.Second)).Round(time.Second)
	}
	return rate, left
}

// sweepLine is how it stands, for one line.
func sweepLine(s *sweep.Sweep, f *journal.Fold, now time.Time) string {
	line := fmt.Sprintf("%d of %d: %s", f.Done(), s.Spec.Tasks, sweepCounts(f))
	if rate, left := sweepTimes(s, f, now); rate > 0 {
		line += fmt.Sprintf("; %.1f/s, %s left", rate, left)
	}
	return line
}

// sweepAlive counts the workers that seem to live.
func sweepAlive(s *sweep.Sweep, now time.Time) int {
	all, err := s.Workers()
	if err != nil {
		return 0
	}
	n, me := 0, lease.Self()
	for _, w := range all {
		if claims.SeemsAlive(s.WorkerDir(w), me, 0, now) {
			n++
		}
	}
	return n
}

func sweepState(s *sweep.Sweep, f *journal.Fold, alive int) string {
	switch {
	case f.Done() == s.Spec.Tasks:
		return "finished"
	case s.Cancelled():
		return "cancelled"
	case alive > 0:
		return "running"
	case f.Done() == 0 && f.Count(journal.Running) == 0:
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
	rate, left := sweepTimes(s, f, now)
	return map[string]any{"id": s.Spec.ID, "short": jobs.Short(s.Spec.ID), "name": s.Spec.Name, "state": sweepState(s, f, alive),
		"tasks": s.Spec.Tasks, "done": f.Done(),
		"counts": counts, "workers": alive, "per_second": rate, "left_ns": left, "dir": s.Dir, "damaged": f.Damaged(), "created": s.Spec.Created}
}

// oneSweep finds the sweep that a verb is about; without a word it is the newest.
func oneSweep(args []string) (*sweep.Sweep, error) {
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

func (a *app) sweepStatusCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "status [SWEEP]", Short: "show how far a sweep is",
		Long: `Show how far a sweep is: the newest one, or the one with this name or id. It reads the
sweep's own records, and asks no scheduler.
` + sweepExit,
		Example: "  berth sweep status\n  berth sweep status lr --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			now := a.now()
			if a.json {
				return a.printJSON(map[string]any{"sweep": sweepJSON(s, f, now)})
			}
			alive := sweepAlive(s, now)
			rows := [][2]string{{"sweep", s.Spec.Name + " (" + jobs.Short(s.Spec.ID) + ")"}, {"state", sweepState(s, f, alive)},
				{"done", fmt.Sprintf("%d of %d", f.Done(), s.Spec.Tasks)}}
			for _, x := range sweepStates {
				if n := f.Count(x); n > 0 {
					rows = append(rows, [2]string{x.String(), fmt.Sprint(n)})
				}
			}
			if rate, left := sweepTimes(s, f, now); rate > 0 {
				rows = append(rows, [2]string{"rate", fmt.Sprintf("%.1f/s", rate)})
				if f.Done() < s.Spec.Tasks && alive > 0 {
					rows = append(rows, [2]string{"left", left.String()})
				}
			}
			rows = append(rows, placeRows(s)...)
			rows = append(rows, [2]string{"workers", fmt.Sprint(alive)}, [2]string{"directory", s.Dir})
			for _, d := range f.Damaged() {
				rows = append(rows, [2]string{"damaged", d})
			}
			return a.rows(rows)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) sweepLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the sweeps, the newest first", Args: cobra.NoArgs,
		Long:    "List the sweeps, the newest first.\n" + sweepExit,
		Example: "  berth sweep ls",
		RunE: func(*cobra.Command, []string) error {
			root, err := sweepRoot()
			if err != nil {
				return err
			}
			all, err := sweep.List(root)
			if err != nil {
				return err
			}
			list, rows := []any{}, [][]string{}
			for _, s := range all {
				f, err := s.Fold()
				if err != nil {
					return err
				}
				if a.json {
					list = append(list, sweepJSON(s, f, a.now()))
					continue
				}
				rows = append(rows, []string{jobs.Short(s.Spec.ID), s.Spec.Name, sweepState(s, f, sweepAlive(s, a.now())),
					fmt.Sprintf("%d/%d", f.Done(), s.Spec.Tasks), sweepCounts(f), a.when(s.Spec.Created)})
			}
			if a.json {
				return a.printJSON(map[string]any{"sweeps": list})
			}
			return a.table([]string{"ID", "NAME", "STATE", "DONE", "TASKS", "CREATED"}, rows)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) sweepLogsCmd() *cobra.Command {
	var raw bool
	c := &cobra.Command{
		Use: "logs SWEEP TASK", Short: "show what a task of a sweep has written",
		Long: `Show what a task has written: its stdout on stdout, its stderr on stderr. TASK is its
number, or the beginning of its id. The parameters and how it ended are said on stderr.

` + rawHelp + "\n" + sweepExit,
		Example: "  berth sweep logs lr 17",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
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
			_, r, err := f.Record(uint32(t.Number), s.WorkerDir)
			if err != nil {
				return err
			}
			var params []string
			for _, p := range t.Params {
				params = append(params, p.Name+"="+p.Text)
			}
			state := f.State(uint32(t.Number))
			line := fmt.Sprintf("task %d (%s): %s: %s", t.Number, t.ID.String()[:12], strings.Join(params, " "), state)
			if r == nil || state <= journal.Running {
				a.say("%s", line)
				return nil
			}
			if r.Code != 0 {
				line += fmt.Sprintf(", exit code %d", r.Code)
			}
			a.say("%s, %s, %d MiB", line, r.Took.Round(time.Millisecond), jobs.Bytes(r.Memory).MiB())
			stdout, stderr := a.shown(raw)
			return journal.Output(s.WorkerDir(r.Worker), r.Task, r.Output, func(f journal.Frame) error {
				to := stdout
				if f.Stream == journal.Stderr {
					to = stderr
				}
				_, err := to.Write(f.Data)
				return err
			})
		},
	}
	rawFlag(c.Flags(), &raw)
	return c
}

func (a *app) sweepResumeCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "resume [SWEEP]", Short: "run what has no result yet, after a crash or a cancellation",
		Long: `Run the tasks of a sweep that have no result, and return. What is finished is not run
again; workers that still run or wait go on, and those that are missing are submitted.
` + sweepExit,
		Example: "  berth sweep resume lr",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			left := s.Spec.Tasks - f.Done()
			if left == 0 {
				a.say("every task of sweep %s has a result", s.Spec.Name)
				return nil
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			there, err := a.stillThere(cmd.Context(), e, s)
			if err != nil {
				return err
			}
			if err := s.Resume(); err != nil {
				return err
			}
			if err := a.beginWorkers(cmd.Context(), e, s, there); err != nil {
				return err
			}
			a.say("sweep %s goes on: %s no result yet", s.Spec.Name, have(left))
			return nil
		},
	}
	return c
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
			if err := s.Cancel(); err != nil {
				return err
			}
			if err := a.cancelWorkers(cmd.Context(), s); err != nil {
				return err
			}
			a.say("sweep %s is being cancelled", s.Spec.Name)
			return nil
		},
	}
	return c
}
