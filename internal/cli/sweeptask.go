package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/engine"
	"berth/internal/config/task"
	"berth/internal/sweep"
	sweepcommand "berth/internal/sweep/command"
	"berth/internal/sweep/define"
	"berth/internal/sys/ids"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandOnly are the flags of a sweep whose tasks run in workers.
var commandOnly = []string{"at-once", "workers", "canary", "pilot", "each", "stop-on-error-rate", "collect", "task-time", "own", "overlay", "overlay-wait"}

// mostJobs is how many rows a sweep of a task file may have: each is a job.
const mostJobs = 10_000

// beginTaskSweep makes the sweep of a task file, and submits a job for each row.
func (a *app) beginTaskSweep(cmd *cobra.Command, o *sweepOptions, d *define.Sweep) (*engine.Engine, *sweep.Sweep, error) {
	for _, name := range commandOnly {
		if cmd.Flags().Changed(name) {
			return nil, nil, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  "--" + name + " is of sweeps of a command: each row of a task file is a job of its own",
				Hint: "leave it out; the task file says what each job has"}
		}
	}
	if d.Request != (sweepcommand.Request{}) {
		return nil, nil, usage("cpus, mem and gpus of a sweep are of a command's tasks: write [resources] in %s", d.TaskFile)
	}
	if d.Own != "" || d.Collect != "" {
		return nil, nil, usage("own and collect of a sweep are of a command's tasks: "+
			"each row of %s is a job, with a container and a record of its own", d.TaskFile)
	}
	if d.Retry != nil {
		return nil, nil, usage("[retry] of a sweep is of a command's tasks: write it in %s", d.TaskFile)
	}
	file, err := filepath.Abs(d.TaskFile)
	if err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the task file", Err: err}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "read the task file", Err: err}
	}
	spec := sweep.Spec{Name: d.Name, Created: a.now().UTC(), TaskFile: file}
	if o.name != "" {
		spec.Name = o.name
	}
	if err := jobs.CheckText("the name of the sweep", spec.Name); err != nil {
		return nil, nil, err
	}
	place := placeOfRows(cmd, &taskFlags{}, nil)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if place.Flags().Lookup(f.Name) == nil {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				spec.Given = append(spec.Given, "--"+f.Name+"="+v)
			}
			return
		}
		v := f.Value.String()
		if path, err := filepath.Abs(v); err == nil && f.Name == "ssh-key" {
			v = path // it is read again by resume, wherever that is
		}
		spec.Given = append(spec.Given, "--"+f.Name+"="+v)
	})
	if spec.Workdir, err = os.Getwd(); err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the working directory is not known", Err: err}
	}
	d.Most = min(o.most, mostJobs)
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	// All rows are read as task files before there is anything of them.
	n := 0
	each := func(add func(define.Task) error) error {
		n = 0
		writes := map[string]int{} // the rows whose jobs do, by the overlay
		return d.Tasks(text, func(t define.Task) error {
			n++
			row, err := rowTask(spec.TaskFile, text, t)
			if err != nil {
				return err
			}
			if o := row.Overlay; o.Name != "" && o.Wait == 0 {
				if other, ok := writes[o.Name]; ok {
					return &jobs.Error{Kind: jobs.KindConfig,
						Msg: fmt.Sprintf("the jobs of rows %d and %d would both write the overlay %s, which takes one writer",
							other, t.Number, o.Name),
						Hint: `overlay_wait = "2h" in ` + d.TaskFile + " has them take turns; " +
							"each task of a sweep of a command only reads it: " +
							"berth sweep run --overlay " + o.Name + " --rows FILE -- COMMAND"}
				}
				writes[o.Name] = t.Number
			}
			return add(t)
		})
	}
	if o.plan {
		if err := each(func(define.Task) error { return nil }); err != nil {
			return nil, nil, err
		}
		if a.json {
			return nil, nil, a.printJSON(map[string]any{"name": spec.Name, "jobs": n, "task": spec.TaskFile})
		}
		return nil, nil, a.rows([][2]string{{"name", spec.Name}, {"task", spec.TaskFile}, {"jobs", fmt.Sprintf("%d, one for each row", n)}})
	}
	root, err := sweepRoot()
	if err != nil {
		return nil, nil, err
	}
	if spec.ID, err = ids.New(); err != nil {
		return nil, nil, err
	}
	s, err := sweep.Create(root, spec, 1, text, each)
	if err != nil {
		return nil, nil, err
	}
	return e, s, a.submitRows(cmd, e, s)
}

// placeOfRows is a command with the flags that say where the jobs of rows run, and with
// those that were given.
func placeOfRows(cmd *cobra.Command, f *taskFlags, given []string) *cobra.Command {
	c := &cobra.Command{Use: cmd.Use}
	c.SetContext(cmd.Context())
	addKeyFlags(c, keyFlags(), sweepKeys)
	f.keys = sweepKeys
	f.addWhere(c)
	f.addLogin(c)
	_ = c.ParseFlags(given) // they were read once
	return c
}

// rowTask is the task of a row.
func rowTask(file string, text []byte, t define.Task) (jobs.Task, error) {
	filled, err := sweepcommand.File(text, t)
	if err == nil {
		var out jobs.Task
		if out, err = task.Parse(file, filled); err == nil {
			out.File = file
			return out, nil
		}
	}
	return jobs.Task{}, &jobs.Error{Kind: jobs.KindOf(err), Msg: fmt.Sprintf("row %d: %v", t.Number, err), Hint: jobs.HintOf(err)}
}

// submitRows submits a job for each row that has none. Each has a key of its own, so one
// whose record was lost with its command is found again, and not submitted twice.
func (a *app) submitRows(cmd *cobra.Command, e *engine.Engine, s *sweep.Sweep) error {
	text, err := s.TaskText()
	if err != nil {
		return err
	}
	flags := &taskFlags{}
	place := placeOfRows(cmd, flags, s.Spec.Given)
	cfg, err := a.config(place)
	if err != nil {
		return err
	}
	said := map[string]bool{}
	made := 0
	err = s.Tasks(1, s.Spec.Tasks, func(row define.Task) error {
		if id, err := s.Job(row.Number); id != "" || err != nil {
			return err
		}
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		t, err := rowTask(s.Spec.TaskFile, text, row)
		if err != nil {
			return err
		}
		t, choice, notes, err := flags.settle(place, t, cfg)
		if err != nil {
			return err
		}
		t.Labels = append(t.Labels[:len(t.Labels):len(t.Labels)], s.Label())
		key := "sweep " + s.Spec.ID + " " + row.ID.String()
		rec, _, err := e.SubmitOnce(cmd.Context(), key, t, choice, func(c engine.Choice) (*jobs.Spec, error) {
			spec, err := e.Plan(cmd.Context(), t, c, false)
			if err != nil {
				return nil, err
			}
			for _, n := range append(notes, spec.Notes...) {
				if !said[n] { // the rows are alike
					said[n] = true
					a.notes([]string{n})
				}
			}
			return spec, nil
		})
		if err != nil {
			return &jobs.Error{Kind: jobs.KindOf(err), Msg: fmt.Sprintf("row %d: %v", row.Number, err), Hint: jobs.HintOf(err)}
		}
		made++
		return s.SetJob(row.Number, rec.Spec.ID)
	})
	short := jobs.Short(s.Spec.ID)
	if err != nil {
		a.say("sweep %s (%s) is recorded; its other rows are submitted with: berth sweep resume %s", s.Spec.Name, short, short)
		return err
	}
	a.say("sweep %s (%s): %s; they are listed by: berth ps --all --label %s", s.Spec.Name, short, jobs.Plural(made, "job"), s.Label())
	return nil
}

// watchRows waits until the jobs of a sweep have ended.
func (a *app) watchRows(ctx context.Context, e *engine.Engine, s *sweep.Sweep) error {
	all, err := s.Jobs()
	if err != nil {
		return err
	}
	views, err := e.WaitAll(jobs.WithPatience(ctx), all, nil)
	if ctx.Err() != nil {
		a.say("left sweep %s running: its jobs are listed by: berth ps --all --label %s", s.Spec.Name, s.Label())
		return exitCode(jobs.CodeInterrupted)
	}
	if err != nil {
		return err
	}
	good := 0
	for _, v := range views {
		if v.State == jobs.StateCompleted {
			good++
		}
	}
	a.say("sweep %s: %d of %s succeeded", s.Spec.Name, good, jobs.Plural(len(views), "job"))
	if good < len(views) {
		return exitCode(jobs.CodeTaskFailed)
	}
	return nil
}

// rowsStatus shows the jobs of a sweep of a task file.
func (a *app) rowsStatus(ctx context.Context, s *sweep.Sweep) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	all, err := s.Jobs()
	if err != nil {
		return err
	}
	counts := map[jobs.State]int{}
	type row struct {
		Task  int        `json:"task"`
		Job   string     `json:"job"`
		State jobs.State `json:"state"`
	}
	list := []row{}
	var recs []*jobs.Record
	gone := 0
	for _, id := range all {
		rec, err := e.Store.Load(id)
		if err != nil {
			gone++ // it was removed by its user
			continue
		}
		recs = append(recs, rec)
	}
	states := map[string]jobs.State{}
	for _, v := range e.Reconcile(ctx, recs) {
		counts[v.State]++
		states[v.Spec.ID] = v.State
	}
	for n := 1; n <= s.Spec.Tasks; n++ {
		id, err := s.Job(n)
		if err != nil {
			return err
		}
		list = append(list, row{n, id, states[id]})
	}
	if a.json {
		return a.printJSON(map[string]any{"sweep": map[string]any{"id": s.Spec.ID,
			"short": jobs.Short(s.Spec.ID), "name": s.Spec.Name, "task_file": s.Spec.TaskFile,
			"tasks": s.Spec.Tasks, "label": s.Label(), "dir": s.Dir, "jobs": list}})
	}
	rows := [][2]string{{"sweep", s.Spec.Name + " (" + jobs.Short(s.Spec.ID) + ")"}, {"task", s.Spec.TaskFile},
		{"jobs", fmt.Sprintf("%d of %s submitted", len(all), jobs.Plural(s.Spec.Tasks, "row"))}}
	for _, st := range slices.Sorted(maps.Keys(counts)) {
		rows = append(rows, [2]string{strings.ToLower(string(st)), fmt.Sprint(counts[st])})
	}
	if gone > 0 {
		rows = append(rows, [2]string{"removed", fmt.Sprint(gone)})
	}
	return a.rows(append(rows, [2]string{"list", "berth ps --all --label " + s.Label()}, [2]string{"directory", s.Dir}))
}
