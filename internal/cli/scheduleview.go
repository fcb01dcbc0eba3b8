package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/queue/schedule"
	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"
)

const scheduleExit = exitHelp + `0 ok, 2 usage, 3 no such schedule, 5 a record could not be read.`

// scheduleWhen says when a schedule is due.
func scheduleWhen(s *jobs.Schedule) string {
	switch {
	case s.Cron != "":
		return s.Cron + " " + s.Zone
	case s.Every != 0:
		return "every " + shortDuration(s.Every)
	}
	return "at " + s.At.UTC().Format(time.RFC3339)
}

// shortDuration leaves out units that are zero: 2h, not 2h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func scheduleState(s *schedule.Entry, now time.Time) string {
	_, _, due := s.Due(now)
	switch {
	case s.Bad != nil:
		return "damaged"
	case s.Paused:
		return "paused"
	case s.Open() != nil:
		return "not submitted yet"
	case s.Over():
		return "over"
	case due:
		return "due"
	}
	return "waiting"
}

// until writes a time to come: relative on a terminal, absolute in a pipe.
func (a *app) until(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !a.tty:
		return t.UTC().Format(time.RFC3339)
	}
	return "in " + ago(t.Sub(a.now()))
}

// scheduleJSON is a schedule in every --json output. Fields are only ever added.
func scheduleJSON(s *schedule.Entry, now time.Time) map[string]any {
	out := map[string]any{"name": s.Name, "id": s.ID, "state": scheduleState(s, now), "when": scheduleWhen(&s.Schedule),
		"schedule": s.Schedule, "runs": len(s.Runs)}
	if next := s.Next(now); !next.IsZero() {
		out["next"] = next
	}
	if last := s.Last(); last != nil {
		out["last"] = last
	}
	if s.Bad != nil {
		out["trouble"] = s.Bad.Error()
	}
	return out
}

// schedules are those of the state directory.
func (a *app) schedules() (*engine.Engine, schedule.Dir, error) {
	e, err := a.engine()
	if err != nil {
		return nil, schedule.Dir{}, err
	}
	return e, schedule.At(e.Store.Home()), nil
}

func (a *app) schedule(name string) (*engine.Engine, schedule.Dir, *schedule.Entry, error) {
	e, d, err := a.schedules()
	if err != nil {
		return nil, d, nil, err
	}
	s, err := d.Find(name)
	return e, d, s, err
}

func (a *app) scheduleLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the schedules: when each is due, its last run", Args: noArgs,
		Long:    "List the schedules, by name, and say what is wrong with how they are started.\n" + scheduleExit,
		Example: "  berth schedule ls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, d, err := a.schedules()
			if err != nil {
				return err
			}
			all, err := d.List()
			if err != nil {
				return err
			}
			list, rows, now := []any{}, [][]string{}, a.now()
			for _, s := range all {
				list = append(list, scheduleJSON(s, now))
				last := "-"
				if r := s.Last(); r != nil {
					last = jobs.Short(r.Outcome.Job)
				}
				if s.Bad != nil {
					rows = append(rows, []string{s.Name, "-", "-", last, "damaged"})
					a.say("warning: schedule %s: %v", s.Name, s.Bad)
					continue
				}
				rows = append(rows, []string{s.Name, scheduleWhen(&s.Schedule), a.until(s.Next(now)), last, scheduleState(s, now)})
			}
			by := a.starts(cmd.Context(), e, len(all))
			if a.json {
				return a.printJSON(map[string]any{"schedules": list, "started_by": by})
			}
			return a.table([]string{"NAME", "WHEN", "NEXT", "LAST JOB", "STATE"}, rows)
		},
	}
	a.jsonFlag(c)
	return c
}

// starts says who looks at what is due, and warns where nothing does.
func (a *app) starts(ctx context.Context, e *engine.Engine, schedules int) (by string) {
	i := installed(e.Store.Home())
	_, err := e.Ticks(ctx)
	switch {
	case err != nil:
		a.say("warning: %v", err)
		if h := jobs.HintOf(err); h != "" {
			a.say("hint: %s", h)
		}
	case i == nil && schedules > 0:
		a.say("note: nothing looks at what is due: berth schedule install")
	}
	if i == nil {
		return ""
	}
	return i.By
}

func (a *app) scheduleShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "show a schedule and its next times",
		Long:    "Show a schedule: what it submits, its next times, its last runs.\n" + scheduleExit,
		Example: "  berth schedule show nightly",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, _, s, err := a.schedule(args[0])
			if err == nil {
				err = s.Bad
			}
			if err != nil {
				return err
			}
			now := a.now()
			if a.json {
				return a.printJSON(map[string]any{"schedule": scheduleJSON(s, now)})
			}
			rows := [][2]string{{"schedule", s.Name}, {"when", scheduleWhen(&s.Schedule)}, {"state", scheduleState(s, now)},
				{"submits", "berth submit " + shellescape.QuoteCommand(s.Words)}, {"in", s.Dir}, {"overlap", s.Overlap}}
			if s.Repeat > 0 {
				rows = append(rows, [2]string{"runs", fmt.Sprintf("%d of %d", s.Submitted(), s.Repeat)})
			}
			zone, err := schedule.Zone(s.Zone)
			if err != nil {
				return err
			}
			for t, n := s.Next(now), 0; !t.IsZero() && n < 3; n++ {
				rows = append(rows, [2]string{"next", t.In(zone).Format("Mon 2006-01-02 15:04:05 MST")})
				if t.Before(now) { // it is due, and what follows it counts from now
					t = now
				}
				t = s.After(t)
			}
			for i := max(len(s.Runs)-3, 0); i < len(s.Runs); i++ {
				rows = append(rows, [2]string{"run", strings.Join(runRow(&s.Runs[i]), ", ")})
			}
			return a.rows(rows)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) scheduleRunsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "runs NAME", Short: "list the runs of a schedule: due times, jobs, what was left out",
		Long: `List the runs of a schedule, the last ones at the end: when each was due, its job and
that one's last known state, and why one was left out or failed. The last 100 are kept.
` + scheduleExit,
		Example: "  berth schedule runs nightly",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, _, s, err := a.schedule(args[0])
			if err == nil {
				err = s.Bad
			}
			if err != nil {
				return err
			}
			list, rows := []any{}, [][]string{}
			for i := range s.Runs {
				r, state := &s.Runs[i], ""
				if r.Outcome != nil && r.Outcome.Job != "" {
					state = "removed"
					if rec, err := e.Store.Load(r.Outcome.Job); err == nil {
						state = string(jobs.StateOf(rec))
					}
				}
				list = append(list, map[string]any{"run": r, "state": state})
				row := runRow(r)
				rows = append(rows, []string{row[0], row[1], dash(state), row[2]})
			}
			if a.json {
				return a.printJSON(map[string]any{"name": s.Name, "runs": list})
			}
			if len(rows) == 0 && a.tty {
				a.say("schedule %s has not run yet", s.Name)
			}
			return a.table([]string{"DUE", "RESULT", "JOB", "REMARK"}, rows)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) schedulePauseCmd(paused bool) *cobra.Command {
	verb, short, long := "resume", "go on with schedules that were paused",
		"Go on with schedules. Times that passed while they were paused are not made up for."
	if paused {
		verb, short = "pause", "submit nothing of these schedules until they are resumed"
		long = "Submit nothing of these schedules until berth schedule resume. Jobs that run go on."
	}
	return &cobra.Command{
		Use: verb + " NAME...", Short: short, Long: long + "\n" + scheduleExit,
		Example: "  berth schedule " + verb + " nightly", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return eachOf(cmd.Context(), names, func(name string) error {
				e, _, s, err := a.schedule(name)
				if err == nil {
					err = s.Bad
				}
				if err != nil {
					return err
				}
				changed, err := s.SetPaused(paused, a.now())
				switch {
				case err != nil:
					return err
				case !changed:
					a.say("schedule %s was %sd before", s.Name, verb)
				default:
					a.say("schedule %s is %sd", s.Name, verb)
				}
				if paused {
					return nil
				}
				return a.hasten(cmd.Context(), e)
			})
		},
	}
}

func (a *app) scheduleRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "remove schedules; the jobs of their runs stay",
		Long:    "Remove schedules and the lists of their runs. Jobs that they have submitted stay, and go on.\n" + scheduleExit,
		Example: "  berth schedule rm nightly",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return eachOf(cmd.Context(), names, func(name string) error {
				_, d, s, err := a.schedule(name)
				if err != nil {
					return err
				}
				return d.Remove(s)
			})
		},
	}
}
