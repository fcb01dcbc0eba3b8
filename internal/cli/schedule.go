package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/engine"
	"berth/internal/queue/schedule"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) scheduleCmd() *cobra.Command {
	return group("schedule",
		`A schedule is a submission and the times at which it is made: by cron's rules, at an
interval, or once. Nothing of berth's runs in between: berth schedule install has the
cluster, or cron, look at what is due (berth help schedules).`,
		`  berth schedule add --cron '0 3 * * *' nightly.md
  berth schedule add --every 2h --image py.sif -- python3 sync.py
  berth schedule install
  berth schedule ls`,
		a.scheduleAddCmd(), a.scheduleLsCmd(), a.scheduleShowCmd(), a.scheduleRunsCmd(), a.schedulePauseCmd(true), a.schedulePauseCmd(false),
		a.scheduleRunCmd(), a.scheduleRmCmd(), a.scheduleImportCmd(), a.scheduleTickCmd(), a.scheduleInstallCmd())
}

// scheduleFlags say when a submission is made.
type scheduleFlags struct {
	cron, every, in, at string
	zone, overlap       string
	repeat              int
}

func (o *scheduleFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.cron, "cron", "", "submit at these times: `'MIN HOUR DAY MONTH WEEKDAY'`, or @daily and its like")
	f.StringVar(&o.every, "every", "", "submit at this interval, `TIME` such as 2h, or on days: 'monday 9am', 'weekdays 18:00'")
	f.StringVar(&o.in, "in", "", "submit once, after `TIME`, such as 30m")
	f.StringVar(&o.at, "at", "", "submit once, at `TIME`, such as 2026-12-01T03:00")
	o.addHow(f)
}

// addHow adds what any schedule may have.
func (o *scheduleFlags) addHow(f *pflag.FlagSet) {
	f.StringVar(&o.zone, "zone", "", "read times in the time zone `NAME`, such as Europe/Zurich (default: this machine's)")
	f.StringVar(&o.overlap, "overlap", jobs.OverlapForbid,
		"when the last run goes on: `WHAT` is allow, forbid (leave this run out) or replace (cancel that one)")
	f.IntVar(&o.repeat, "repeat", 0, "end after `N` runs (default: never)")
}

// schedule is one that begins now, without its times.
func (o *scheduleFlags) schedule(a *app) (s jobs.Schedule, err error) {
	s = jobs.Schedule{Created: a.now().UTC(), Zone: o.zone, Overlap: o.overlap, Repeat: o.repeat}
	switch {
	case !slices.Contains([]string{jobs.OverlapAllow, jobs.OverlapForbid, jobs.OverlapReplace}, o.overlap):
		return s, usage("--overlap %q: there are allow, forbid and replace", o.overlap)
	case o.repeat < 0:
		return s, usage("--repeat is a number above 0")
	}
	if s.Zone == "" {
		s.Zone, err = schedule.Here()
	} else {
		_, err = schedule.Zone(s.Zone)
	}
	if err != nil {
		return s, err
	}
	if s.Dir, err = os.Getwd(); err != nil {
		return s, &jobs.Error{Kind: jobs.KindUsage, Msg: "the working directory is not known", Err: err}
	}
	s.ID, err = ids.New()
	return s, err
}

// when sets the times of a schedule.
func (o *scheduleFlags) when(s *jobs.Schedule, given func(string) bool) error {
	var names []string
	for _, name := range []string{"cron", "every", "in", "at"} {
		if given(name) {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "one of --cron, --every, --in and --at says when",
			Hint: "berth schedule add --cron '0 3 * * *' TASK.md"}
	}
	switch names[0] {
	case "cron":
		s.Cron = o.cron
		_, err := schedule.TimesOf(s)
		return err
	case "every":
		return schedule.SetEvery(s, o.every)
	case "in":
		return schedule.SetIn(s, o.in)
	}
	return schedule.SetAt(s, o.at)
}

func (a *app) scheduleAddCmd() *cobra.Command {
	var o scheduleFlags
	var f taskFlags
	c := &cobra.Command{
		Use: "add WHEN [flags] TASK.md | add WHEN [flags] -- COMMAND...", Short: "submit a task or command at these times",
		Long: `Add a schedule, and print its name. Each time that is due the task is submitted as
berth submit does it, with the same flags, in this directory: as a job of its own, whose
task file and configuration are read then. It is checked now.

What is due is submitted once, however many look at it. Times that pass while nothing
looks are made up for by one run. When clocks are put forward over a time of day, the
run comes right after; when they are set back, it comes once.

` + taskHelp + `
` + exitHelp + `0 added, 2 the times, the task or an option are wrong, or the name is
taken, 3 a file does not exist, 78 its containment is not available here.`,
		Example: `  berth schedule add --cron '0 3 * * *' nightly.md
  berth schedule add --every 'weekdays 18:00' --zone Europe/Zurich --overlap replace report.md
  berth schedule add --in 30m --image py.sif -- python3 once.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := o.schedule(a)
			if err == nil {
				err = o.when(&s, cmd.Flags().Changed)
			}
			if err != nil {
				return err
			}
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			t, choice, notes, err := f.task(cmd, args, cfg)
			if err != nil {
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			spec, err := e.Plan(cmd.Context(), t, choice, true)
			if err != nil {
				return err
			}
			a.notes(append(notes, spec.Notes...))
			s.Name = jobs.Slug(t.Name)
			if s.Words, err = submitWords(new(app).scheduleAddCmd(), a.args); err != nil {
				return err
			}
			if err := schedule.At(e.Store.Home()).Create(s, nil); err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(map[string]any{"name": s.Name, "id": s.ID})
			} else {
				_, err = fmt.Fprintln(a.stdout, s.Name)
			}
			return errors.Join(err, a.hasten(cmd.Context(), e))
		},
	}
	o.add(c.Flags())
	f.add(c)
	a.jsonFlag(c)
	return c
}

// submitWords are the words of a command line that are berth submit's, too: flags as they
// were written, and what is submitted.
func submitWords(c *cobra.Command, line []string) (words []string, err error) {
	var own scheduleFlags
	ours := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.add(ours)
	at := slices.Index(line, c.Name()) + 1
	if err := c.Flags().ParseAll(line[at:], func(f *pflag.Flag, value string) error {
		if ours.Lookup(f.Name) == nil && f.Name != "json" {
			words = append(words, "--"+f.Name+"="+value)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if c.Flags().ArgsLenAtDash() >= 0 {
		words = append(words, "--")
	}
	return append(words, c.Flags().Args()...), nil
}

// hasten sees to it that a job that is to start what is due comes in time for a schedule
// that is new. That it does not is said, and fails nothing: the schedule is there.
func (a *app) hasten(ctx context.Context, e *engine.Engine) error {
	if err := e.HastenTicks(ctx); err != nil {
		a.say("warning: what is due may be submitted late: %v", err)
	}
	if installed(e.Store.Home()) == nil {
		a.say("note: nothing looks at what is due yet: berth schedule install")
	}
	return nil
}

// submitScheduled submits what a schedule names, by the command that a person would use.
func (a *app) submitScheduled(ctx context.Context, s *jobs.Schedule, key string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return "", &jobs.Error{Kind: jobs.KindNotFound, Msg: "the directory " + s.Dir + " does not exist",
			Hint: "make it, or berth schedule rm " + s.Name}
	}
	argv := append([]string{self, "submit", "--json", "--" + flagKey + "=" + key}, s.Words...)
	out, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: argv, Dir: s.Dir})
	var said struct {
		ID    string `json:"id"`
		Error *struct {
			Message string `json:"message"`
			Hint    string `json:"hint"`
			Code    int    `json:"exit_code"`
		} `json:"error"`
	}
	var ended *run.Error
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && !errors.As(err, &ended):
		return "", err
	case json.Unmarshal(out, &said) != nil || said.ID == "" && said.Error == nil:
		if ended != nil {
			return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "berth submit ended with " + ended.Exit.String(),
				Err: errors.New(run.LastWords(ended.Stderr))}
		}
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "berth submit said nothing"}
	case said.Error != nil:
		return "", &jobs.Error{Kind: kindOfCode(said.Error.Code), Msg: said.Error.Message, Hint: said.Error.Hint}
	}
	return said.ID, nil
}

// kindOfCode is the kind of errors that have this exit code.
func kindOfCode(code int) jobs.Kind {
	for _, k := range []jobs.Kind{jobs.KindUsage, jobs.KindNotFound, jobs.KindAuth, jobs.KindAgain, jobs.KindConfig} {
		if jobs.CodeOf(&jobs.Error{Kind: k}) == code {
			return k
		}
	}
	return jobs.KindInfra
}

func (a *app) scheduleRunCmd() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "submit what a schedule names now; prints the job's id",
		Long: `Submit what a schedule names now, also while it is paused or its last run goes on. Its
times stay as they are.
` + exitHelp + `0 submitted, 3 no such schedule, else as berth submit.`,
		Example: "  id=$(berth schedule run nightly) && berth logs -f $id",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			r, err := e.RunSchedule(cmd.Context(), args[0], a.submitScheduled)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, jobs.Short(r.Outcome.Job))
			return err
		},
	}
}

func (a *app) scheduleTickCmd() *cobra.Command {
	var chain int
	c := &cobra.Command{
		Use: "tick", Short: "submit what is due now, once; from a crontab",
		Long: `Submit what is due, and say what was: one line for each run. Then do what berth follow
does: begin the retries of jobs. Nothing due, nothing said.

berth schedule install has this called regularly. Any number of machines may call it at
the same time: each run is submitted once.
` + exitHelp + `0 done, or nothing to do, 1 a run could not be submitted and is not
tried again (berth schedule runs NAME), 5 or 75 it is tried again at the next tick.`,
		Example: "  berth schedule tick",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if chain > 0 {
				goesOn, err := e.ContinueTicks(ctx, chain)
				switch {
				case err != nil: // what is due is due all the same
					a.say("warning: the next job that starts what is due was not submitted: %v", err)
				case !goesOn:
					return nil
				}
			}
			done, err := e.Tick(ctx, a.submitScheduled)
			rows, list, failed := [][]string{}, []any{}, false
			for _, d := range done {
				failed = failed || d.Run.Outcome != nil && d.Run.Outcome.Error != ""
				rows = append(rows, append([]string{d.Schedule}, runRow(&d.Run)...))
				list = append(list, map[string]any{"schedule": d.Schedule, "run": d.Run})
			}
			if a.json {
				err = errors.Join(a.printJSON(map[string]any{"runs": list}), err)
			} else if terr := a.table([]string{"NAME", "DUE", "RESULT", "REMARK"}, rows); terr != nil {
				err = errors.Join(terr, err)
			}
			recs, lerr := e.Store.ListOpen()
			if err = errors.Join(err, lerr, e.Follow(ctx, recs, a.say)); err == nil && failed {
				return exitCode(jobs.CodeTaskFailed)
			}
			return err
		},
	}
	c.Flags().IntVar(&chain, "chain", 0, "")
	_ = c.Flags().MarkHidden("chain")
	a.jsonFlag(c)
	return c
}

// runRow is a run in a line: when it was due, its job, and a remark.
func runRow(r *jobs.ScheduleRun) []string {
	what, remark := "not submitted yet", ""
	switch o := r.Outcome; {
	case r.Skip != "":
		what, remark = "left out", r.Skip
	case o != nil && o.Error != "":
		what, remark = "failed", o.Error
		if o.Hint != "" {
			remark += " (" + o.Hint + ")"
		}
	case o != nil:
		what = "job " + jobs.Short(o.Job)
	}
	var notes []string
	if r.Manual {
		notes = append(notes, "by hand")
	}
	if r.Missed > 0 {
		notes = append(notes, fmt.Sprintf("for %s before it, too", jobs.Plural(r.Missed, "missed time")))
	}
	if r.Replace != "" {
		notes = append(notes, "replaces job "+jobs.Short(r.Replace))
	}
	if remark != "" {
		notes = append(notes, remark)
	}
	return []string{r.Due.UTC().Format("2006-01-02T15:04:05Z"), what, dash(strings.Join(notes, "; "))}
}

// installedFile notes who looks at what is due.
func installedFile(home string) string { return filepath.Join(schedule.At(home).Chain(), "installed") }
