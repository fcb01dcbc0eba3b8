package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/define"
	"berth/internal/sweep/journal"
	"berth/internal/sweep/look"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// paramText are the parameters of a task, in one line.
func paramText(params []define.Param) string {
	var parts []string
	for _, p := range params {
		parts = append(parts, p.Name+"="+p.Text)
	}
	return strings.Join(parts, " ")
}

func (a *app) sweepFailuresCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "failures [SWEEP]", Short: "group what failed by how it ended and its last line",
		Long: `Group the tasks of a sweep that did not succeed: those of one class (task, memory, time,
policy, node: as of jobs), one state (failed, killed, timeout, not_started, out_of_memory,
set_aside), one exit code and one last line on stderr (on stdout, where stderr has none)
stand together. Lines that differ in their numbers alone are one.
Of more than 100,000 failed tasks a part is looked at, spread over all, and that is said.
` + sweepExit,
		Example: "  berth sweep failures lr\n  berth sweep failures --json | jq '.groups[0].tasks'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := lookAt(args)
			if err != nil {
				return err
			}
			defer l.Close()
			all, err := l.Failures()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"sweep": l.Sweep.Spec.Name, "failed": all.Failed,
					"looked_at": all.Looked, "groups": emptyNot(all.Groups)})
			}
			short := jobs.Short(l.Sweep.Spec.ID)
			if all.Failed == 0 {
				a.say("no task of sweep %s has failed", l.Sweep.Spec.Name)
				return nil
			}
			if all.Looked < all.Failed {
				a.say("%d tasks failed; these are %d of them, spread over all", all.Failed, all.Looked)
			}
			var rows [][]string
			for _, g := range all.Groups {
				rows = append(rows, []string{fmt.Sprint(g.Count), dash(string(g.Class)), g.State,
					fmt.Sprint(g.Exit), strings.Trim(fmt.Sprint(g.Examples), "[]"), g.LastLine})
			}
			if err := a.table([]string{"COUNT", "CLASS", "STATE", "EXIT", "TASKS", "LAST LINE"}, rows); err != nil {
				return err
			}
			a.say("what one has written: berth sweep logs %s %d    to run all again: berth sweep retry %s --failed",
				short, all.Groups[0].Examples[0], short)
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

// emptyNot is a list that JSON shows as [] when it is empty.
func emptyNot[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *app) sweepTailCmd() *cobra.Command {
	var most int
	var once bool
	c := &cobra.Command{
		Use: "tail [SWEEP]", Short: "show tasks as they end, with the last line of each",
		Long: `Show the tasks of a sweep as they end: number, state, time, parameters and the last line of
what each has written. It begins with the last ten, and ends when the sweep has.
` + sweepExit,
		Example: "  berth sweep tail lr\n  berth sweep tail lr --once -n 100",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 || most > 100_000 {
				return usage("-n is a number from 0 to 100,000")
			}
			s, err := oneSweep(args)
			if err != nil {
				return err
			}
			t, ends, err := look.NewTail(s, most)
			for err == nil {
				var f *journal.Fold
				if f, err = s.Fold(); err != nil {
					break
				}
				if err = a.showEnds(s, f, ends); err != nil || once {
					break
				}
				if st := sweepState(s, f, sweepAlive(s, a.now())); st != "running" && st != "waiting" && st != "pausing" {
					if ends, err = t.Next(); err == nil && len(ends) == 0 {
						a.say("sweep %s is %s: %s", s.Spec.Name, st, sweepCounts(f))
						break
					}
					continue
				}
				select {
				case <-cmd.Context().Done():
					return exitCode(jobs.CodeInterrupted)
				case <-time.After(sweepPace):
				}
				ends, err = t.Next()
			}
			return err
		},
	}
	c.Flags().IntVarP(&most, "lines", "n", 10, "begin with the last `N` that have ended")
	c.Flags().BoolVar(&once, "once", false, "do not wait for more")
	return c
}

// showEnds shows a line for each end.
func (a *app) showEnds(s *sweep.Sweep, f *journal.Fold, ends []journal.Record) error {
	l := look.New(s, f)
	defer l.Close()
	for _, r := range ends {
		var t define.Task
		if err := s.Tasks(int(r.Task), int(r.Task), func(x define.Task) error { t = x; return nil }); err != nil {
			return err
		}
		line, err := l.LastLine(&r)
		if err != nil {
			line = err.Error()
		}
		if _, err := fmt.Fprintln(a.stdout, strings.Join(clean([]string{fmt.Sprint(r.Task), look.Word(r.State),
			r.Took.Round(time.Millisecond).String(), paramText(t.Params), line}), "\t")); err != nil {
			return err
		}
	}
	return nil
}

// rowJSON is a task in every --json output. Fields are only ever added.
func rowJSON(r look.Row) map[string]any {
	m := map[string]any{"task": r.Number, "id": r.ID.String(), "state": look.Word(r.State), "repeat": r.Repeat, "params": paramMap(r.Params)}
	if r.Record != nil && r.State.Result() {
		m["exit"], m["signal"], m["round"], m["worker"], m["deaths"] = look.Exit(*r.Record),
			r.Record.Signal, r.Record.Round, r.Record.Worker, r.Record.Deaths
		m["class"], m["tries"] = sweep.ClassOf(r.State), r.Record.Tries
		m["seconds"], m["cpu_seconds"], m["memory_bytes"], m["began"] = r.Record.Took.Seconds(), r.Record.CPU.Seconds(), r.Record.Memory, r.Record.Began
	}
	return m
}

func paramMap(params []define.Param) map[string]string {
	m := make(map[string]string, len(params))
	for _, p := range params {
		m[p.Name] = p.Text
	}
	return m
}

var errEnoughRows = errors.New("enough rows")

// lsTasks lists the tasks of a sweep, as they are read: there may be a million.
func (a *app) lsTasks(args []string, where string, most int) error {
	s, f, err := foldSweep(args)
	if err != nil {
		return err
	}
	holds := func(look.Row) (bool, error) { return true, nil }
	if where != "" {
		if holds, err = look.Where(where); err != nil {
			return err
		}
	}
	l := look.New(s, f)
	defer l.Close()
	list, rows, found := []any{}, [][]string{}, 0
	err = l.Rows(l.All(), func(r look.Row) error {
		ok, err := holds(r)
		if err != nil || !ok {
			return err
		}
		if found++; found > most {
			return errEnoughRows
		}
		if a.json {
			list = append(list, rowJSON(r))
			return nil
		}
		row := []string{fmt.Sprint(r.Number), r.ID.String()[:12], look.Word(r.State), "-", "-", "-", paramText(r.Params)}
		if r.Record != nil && r.State.Result() {
			row[3], row[4], row[5] = fmt.Sprint(look.Exit(*r.Record)), r.Record.Took.Round(time.Millisecond).String(),
				fmt.Sprintf("%d MiB", jobs.Bytes(r.Record.Memory).MiB())
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil && !errors.Is(err, errEnoughRows) {
		return err
	}
	if found > most {
		a.say("there are more than %d; --most shows more", most)
	}
	if a.json {
		return a.printJSON(map[string]any{"sweep": s.Spec.Name, "tasks": list, "more": found > most})
	}
	return a.table([]string{"TASK", "ID", "STATE", "EXIT", "TIME", "MEMORY", "PARAMETERS"}, rows)
}

// runningTask is a task that runs, and its metrics until now.
type runningTask struct {
	Task    int                        `json:"task"`
	Metrics map[string]json.RawMessage `json:"metrics"`
	values  []look.Value
}

func (t runningTask) text() string {
	var parts []string
	for _, v := range t.values {
		parts = append(parts, v.Name+"="+v.Text())
	}
	return strings.Join(parts, " ")
}

// mostRunning is how many tasks that run status shows the metrics of.
const mostRunning = 8

// sweepRunning are tasks that run and have metrics.
func sweepRunning(s *sweep.Sweep, f *journal.Fold) (all []runningTask, err error) {
	if f.Count(journal.Running) == 0 {
		return nil, nil
	}
	l := look.New(s, f)
	defer l.Close()
	looked := 0
	for n := 1; n <= f.Tasks() && len(all) < mostRunning && looked < 1000; n++ {
		if f.State(uint32(n)) != journal.Running {
			continue
		}
		looked++
		_, rec, err := l.In.Record(f, uint32(n))
		if err != nil || rec == nil || rec.Output == (journal.Place{}) {
			continue
		}
		t := runningTask{Task: n, Metrics: map[string]json.RawMessage{}}
		if t.values, err = l.Metrics(rec); err != nil {
			return nil, err
		}
		for _, v := range t.values {
			t.Metrics[v.Name] = v.JSON
		}
		if len(t.values) > 0 {
			all = append(all, t)
		}
	}
	return all, nil
}
