package cli

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/network/record"
	"berth/internal/sweep"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// By what usage is summed.
const (
	byTask  = "task" // the name of jobs
	byJob   = "job"
	byLabel = "label"
	byDay   = "day" // UTC, of an attempt's end
	byAgent = "agent"
)

var usageBys = []string{byTask, byJob, byLabel, byDay, byAgent}

// usageRow is what has one name, in every --json output. Fields are only ever added.
type usageRow struct {
	Name  string `json:"name"`
	State string `json:"state,omitempty"` // of one job
	Title string `json:"title,omitempty"` // the name of one job
	Jobs  int    `json:"jobs"`
	jobs.Spent
	last string // the job that was counted last
}

// usageOf are sums, and the sum of all: a job with two labels is in two of them.
type usageOf struct {
	by   string
	rows []*usageRow
	all  usageRow

	names map[string]*usageRow
}

func (r *usageRow) add(job string, s jobs.Spent) {
	if job != r.last {
		r.Jobs++
		r.last = job
	}
	r.Spent.Add(s)
}

// row is that of a name.
func (u *usageOf) row(name string) *usageRow {
	if u.names == nil {
		u.names = map[string]*usageRow{}
	}
	if u.names[name] == nil {
		u.names[name] = &usageRow{Name: name}
		u.rows = append(u.rows, u.names[name])
	}
	return u.names[name]
}

// sort orders the rows by name, but for jobs, which are in the order of their begin.
func (u *usageOf) sort() {
	if u.by != byJob {
		slices.SortFunc(u.rows, func(a, b *usageRow) int { return strings.Compare(a.Name, b.Name) })
	}
}

// usageSums sums what attempts have used that ended at since or later, or have not.
func usageSums(views []engine.View, by string, since time.Time) usageOf {
	out := usageOf{by: by, all: usageRow{Name: "all"}}
	for _, v := range views {
		for i := range v.Attempts {
			s, end, _ := attemptSpent(v, i)
			if s.Attempts == 0 || end.Before(since) {
				continue
			}
			for _, name := range usageNames(v, by, end) {
				r := out.row(name)
				if by == byJob {
					r.State, r.Title = string(v.State), v.Spec.Name
				}
				r.add(v.Spec.ID, s)
			}
			out.all.add(v.Spec.ID, s)
		}
	}
	out.sort()
	return out
}

// addSweeps adds the workers of all sweeps whose tasks are no jobs, and that ended at since or
// later, or have not. What cannot be read is said and not counted.
func (u *usageOf) addSweeps(since, now time.Time, say func(string, ...any)) error {
	root, err := sweepRoot()
	if err != nil {
		return err
	}
	all, err := sweep.List(root)
	if err != nil {
		return err
	}
	for _, s := range slices.Backward(all) {
		if s.Spec.TaskFile != "" {
			continue
		}
		spent, ends, err := s.Spent(since, now)
		if err != nil {
			say("warning: sweep %s (%s): not all that it has used is counted: %v", s.Spec.Name, jobs.Short(s.Spec.ID), err)
		}
		for i, one := range spent {
			name := map[string]string{byTask: s.Spec.Name, byJob: jobs.Short(s.Spec.ID), byDay: ends[i].UTC().Format(time.DateOnly)}[u.by]
			r := u.row(dash(name))
			if u.by == byJob {
				r.State, r.Title = "sweep", s.Spec.Name
			}
			r.add(s.Spec.ID, one)
			u.all.add(s.Spec.ID, one)
		}
	}
	u.sort()
	return nil
}

func usageNames(v engine.View, by string, end time.Time) []string {
	switch by {
	case byJob:
		return []string{jobs.Short(v.Spec.ID)}
	case byLabel:
		if len(v.Spec.Labels) > 0 {
			return v.Spec.Labels
		}
		return []string{"-"}
	case byDay:
		return []string{end.UTC().Format(time.DateOnly)}
	case byAgent:
		if v.Spec.Agent == nil {
			return []string{"-"}
		}
		return []string{v.Spec.Agent.Name}
	}
	return []string{dash(v.Spec.Name)}
}

// spentOf is what all attempts of a job have cost.
func spentOf(v engine.View) (sum jobs.Spent) {
	for i := range v.Attempts {
		s, _, _ := attemptSpent(v, i)
		sum.Add(s)
	}
	return sum
}

// attemptSpent is what one attempt has cost, and when it ended. An error is that what it has
// asked models for is not known.
func attemptSpent(v engine.View, i int) (s jobs.Spent, end time.Time, err error) {
	a := &v.Attempts[i]
	var models *jobs.Usage
	if len(v.Spec.Credentials) > 0 && a.Exit == nil && a.Claim != nil { // it runs, or was killed
		models, err = record.Models(a.Dir)
	}
	s, end = a.Spent(&v.Spec, models, v.AgentUses[a.N], v.AsOf)
	return s, end, err
}

// counted looks for what attempts have used that left no last word, and says which of that
// is not known: it is in no sum.
func (a *app) counted(views []engine.View) {
	for i := range views {
		v := &views[i]
		warn := func(err error) {
			a.say("warning: job %s: not all that it has used is counted: %v", jobs.Short(v.Spec.ID), err)
		}
		var err error
		if v.AgentUses, err = engine.AgentUses(v.Record); err != nil {
			warn(err)
		}
		for n := range v.Attempts {
			if _, _, err := attemptSpent(*v, n); err != nil {
				warn(err)
			}
		}
	}
}

func (a *app) usageCmd() *cobra.Command {
	var by, since, format string
	var labels []string
	c := &cobra.Command{
		Use:        "usage [ID...]",
		SuggestFor: []string{"cost", "costs", "sum"},
		Long: `Sum what jobs have used, all of them or those named: by the name of the task, or by job,
label, day or agent. Every attempt counts, failed ones too, and those that run until now.
Columns: name, jobs, attempts, turns, tokens, US dollars, time of tools, core-hours. The
last line is the sum of all, in which a job with two labels counts once.

Tokens and dollars are what the broker of a credential has counted; where it has seen
none, what the agent's own events say, marked by "*" on a terminal. Turns and the time
of tools are always by events. An attempt that was killed counts as far as its counts and
its transcript go; what cannot be read is a warning. Core-hours are the time of runners
times the cores that were asked for. A day is one of UTC, that in which an attempt ended.

A sweep counts as one job, and its workers as the attempts of it; with IDs or --label it
is left out: berth sweep status has its own. Rows of a task file are jobs.
` + exitHelp + `0 ok, 2 an ambiguous id or no such sum, 3 no such job, 5 the ledger could not be read,
78 the state directory is open to others.`,
		Example: `  berth usage
  berth usage --by day --since 720h
  berth usage --by label --label lab-a --format csv >usage.csv
  berth usage --by job 0a1b2c3d 4e5f6071`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			var from time.Time
			switch {
			case !slices.Contains(usageBys, by):
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--by: there is no sum by %q", by),
					Hint: "one of " + strings.Join(usageBys, ", ")}
			case format != "table" && format != "csv" && format != "json":
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--format: there is no format %q", format),
					Hint: "table, csv or json"}
			case a.json && format == "csv":
				return usage("--json and --format csv: give one of them")
			}
			if since != "" {
				var err error
				if from, err = sinceTime(since, a.now()); err != nil {
					return err
				}
			}
			a.json = a.json || format == "json"
			views, err := a.views(cmd, ids, true)
			if err != nil {
				return err
			}
			views = labelled(views, labels)
			a.counted(views)
			sums := usageSums(views, by, from)
			if len(ids) == 0 && len(labels) == 0 { // a sweep has none
				if err := sums.addSweeps(from, a.now(), a.say); err != nil {
					return err
				}
			}
			switch {
			case a.json:
				return a.printJSON(map[string]any{"by": by, "usage": append([]*usageRow{}, sums.rows...), "all": sums.all})
			case format == "csv":
				return a.usageCSV(sums)
			}
			return a.usageTable(sums)
		},
	}
	fl := c.Flags()
	fl.StringVar(&by, "by", byTask, "what is summed: `WHAT` is task, job, label, day or agent")
	fl.StringVar(&since, "since", "", "count attempts that have not ended before `TIME`: 24h ago, or a day such as 2026-11-01")
	fl.StringArrayVar(&labels, "label", nil, "count only jobs with the label `NAME`; repeatable: with all of them")
	fl.StringVar(&format, "format", "table", "`FORMAT` of the output: table, csv or json")
	a.jsonFlag(c)
	return c
}

// sinceTime reads a day in UTC, or how long ago.
func sinceTime(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	d, err := jobs.ParseDuration(strings.TrimSuffix(s, " ago"))
	if err != nil {
		return time.Time{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--since: %.100q is no time", s),
			Hint: "write for example 24h, 720h or 2026-11-01"}
	}
	return now.Add(-d), nil
}

// usageTable prints sums for people.
func (a *app) usageTable(u usageOf) error {
	head, of := []string{strings.ToUpper(u.by), "JOBS", "ATTEMPTS"}, func(r *usageRow) []string {
		return []string{r.Name, strconv.Itoa(r.Jobs), strconv.Itoa(r.Attempts)}
	}
	if u.by == byJob {
		head, of = []string{"ID", "STATE", "NAME"}, func(r *usageRow) []string { return []string{r.Name, dash(r.State), dash(r.Title)} }
	}
	var rows [][]string
	for _, r := range append(slices.Clone(u.rows), &u.all) {
		mark := ""
		if r.ByEvents > 0 && a.tty {
			mark = "*"
		}
		rows = append(rows, append(of(r), strconv.Itoa(r.Turns), strconv.FormatInt(r.Tokens(), 10)+mark,
			strconv.FormatFloat(float64(r.USD), 'f', 2, 64)+mark, r.ToolTime().String(), strconv.FormatFloat(r.CoreHours, 'f', 2, 64)))
	}
	return a.table(append(head, "TURNS", "TOKENS", "USD", "TOOLS", "CORE-HOURS"), rows)
}

// usageCSV prints sums for programs, with a head and without the sum of all. A name that
// a spreadsheet would take for a formula begins with an apostrophe.
func (a *app) usageCSV(u usageOf) error {
	w := csv.NewWriter(a.stdout)
	_ = w.Write([]string{u.by, "state", "title", "jobs", "attempts", "running", "turns", "tool_calls", "tool_seconds", "requests", "tokens", "input_tokens",
		"cache_read_tokens",
		"cache_write_tokens", "output_tokens", "usd", "unpriced_requests", "attempts_by_events", "hours", "core_hours"})
	whole := func(n int) string { return strconv.Itoa(n) }
	long := func(n int64) string { return strconv.FormatInt(n, 10) }
	real := func(f float64, digits int) string { return strconv.FormatFloat(f, 'f', digits, 64) }
	for _, r := range u.rows {
		_ = w.Write([]string{jobs.Cell(jobs.Printable(r.Name)), r.State, jobs.Cell(jobs.Printable(r.Title)),
			whole(r.Jobs), whole(r.Attempts), whole(r.Running), whole(r.Turns), whole(r.Calls), real(r.ToolSeconds, 1),
			whole(r.Requests), long(r.Tokens()), long(r.Input), long(r.CacheRead), long(r.CacheWrite), long(r.Output), real(float64(r.USD), 6),
			whole(r.Unpriced), whole(r.ByEvents), real(r.Hours, 4), real(r.CoreHours, 4)})
	}
	w.Flush()
	return w.Error()
}
