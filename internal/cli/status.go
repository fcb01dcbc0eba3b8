package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

func (a *app) psCmd() *cobra.Command {
	var all, spent bool
	var labels []string
	c := &cobra.Command{
		Use:        "ps",
		SuggestFor: []string{"ls", "list", "queue", "squeue"},
		Long: `List the jobs that are queued or running, or with --all every job, oldest first.
Columns: id, state, name, scheduler and its id, node, submitted; with --usage what each
has used, as berth usage shows it, and the sum.
` + exitHelp + `0 ok, 5 the ledger could not be read, 78 the state directory is open to others.`,
		Example: `  berth ps
  berth ps --watch                  # again every 5 seconds
  berth ps --all
  berth ps --all --label sweep1     # ended ones, too
  berth ps --all --usage            # with turns, tokens, cost, core-hours and their sum
  berth ps --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			views, err := a.views(cmd, nil, all)
			if err != nil {
				return err
			}
			views = slices.DeleteFunc(labelled(views, labels), func(v engine.View) bool { return !all && v.State.Final() })
			if spent {
				a.counted(views)
			}
			if spent && !a.json {
				return a.usageTable(usageSums(views, byJob, time.Time{}))
			}
			return a.list(views)
		},
	}
	c.Flags().BoolVar(&spent, "usage", false, "show what each has used: turns, tokens, cost, time of tools, core-hours")
	c.Flags().BoolVarP(&all, "all", "a", false, "also list ended jobs")
	c.Flags().StringArrayVar(&labels, "label", nil, "list only jobs with the label `NAME`; repeatable: with all of them")
	a.jsonFlag(c)
	a.watchFlag(c)
	return c
}

// labelled are the jobs with all of these labels.
func labelled(views []engine.View, labels []string) []engine.View {
	return slices.DeleteFunc(views, func(v engine.View) bool {
		return slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(v.Spec.Labels, l) })
	})
}

func (a *app) statusCmd() *cobra.Command {
	var report bool
	c := &cobra.Command{
		Use: "status [ID...]",
		Long: `Show one job in full, several as a table; without an ID, every job.

The record on disk is read first. The scheduler is asked once, and only about jobs
that are queued or have gone silent; when it does not answer, the last known state
is shown with its time.

With --report one job is shown by what it did: what it created, changed and deleted,
what it ran, whom it contacted, and what of that looks suspicious, each with its reason
(berth help containment). It is no verdict, and says what is not known.
` + exitHelp + `0 ok, 2 an ambiguous id, 3 no such job, 5 the ledger could not be read, 78 the
state directory is open to others.`,
		Example: `  berth status 0a1b2c3d
  berth status
  berth status --json 0a1b2c3d
  berth status --report 0a1b2c3d`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			views, err := a.views(cmd, ids, true)
			if err != nil {
				return err
			}
			for i := range views[:min(len(ids), len(views))] { // of many it would take long
				inFull(&views[i])
			}
			if report {
				if len(ids) != 1 || len(views) != 1 {
					return usage("--report is of one job: give its id")
				}
				return a.printReport(cmd.Context(), views[0])
			}
			if len(ids) != 1 || a.json {
				return a.list(views)
			}
			return a.rows(a.detail(viewJSON(views[0])))
		},
	}
	c.Flags().BoolVar(&report, "report", false, "show what one job did, and what of it looks suspicious")
	a.jsonFlag(c)
	a.watchFlag(c)
	return c
}

// inFull looks for what is shown of one job alone.
func inFull(v *engine.View) {
	v.Notices, v.NetworkUse = store.UnsentNotices(v.Record), engine.NetworkUse(v.Record)
	v.AgentUses, _ = engine.AgentUses(v.Record) // as far as it can be read
	if a := v.Current(); a != nil {
		v.Progress = store.LoadProgress(a.Dir)
	}
}

// views reads the named jobs, or all, and brings them up to date. Unless ended,
// some that have ended may not be among them.
func (a *app) views(cmd *cobra.Command, ids []string, ended bool) ([]engine.View, error) {
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	var recs []*jobs.Record
	if len(ids) > 0 {
		recs, err = find(e, ids)
	} else {
		list := e.Store.ListOpen
		if ended {
			list = e.Store.List
		}
		recs, err = list()
		if recs != nil && err != nil {
			a.say("warning: %v", err)
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	views := e.Reconcile(cmd.Context(), recs)
	a.warn(views)
	return views, nil
}

// list prints jobs as a table or as JSON.
func (a *app) list(views []engine.View) error {
	if !a.json {
		views = families(views)
	}
	list := make([]jobJSON, len(views))
	for i, v := range views {
		list[i] = viewJSON(v)
	}
	if a.json {
		return a.printJSON(map[string]any{"jobs": list})
	}
	if len(list) == 0 && a.tty {
		a.say("no jobs")
		return nil
	}
	rows := make([][]string, len(list))
	for i, j := range list {
		rows[i] = a.jobRow(j)
	}
	return a.table(jobHead, rows)
}

var jobHead = []string{"ID", "STATE", "NAME", "SCHEDULER", "NODE", "SUBMITTED"}

// jobRow is a job below jobHead.
func (a *app) jobRow(j jobJSON) []string {
	if j.Parent != "" {
		j.Name = "+ " + j.Name // of the job above
	}
	return []string{j.Short, shownState(j), j.Name, dash(joinWords(j.Scheduler, j.NativeID)), dash(j.Node), a.when(j.Created)}
}

// families puts jobs that a task has submitted below its own, where that is listed.
func families(views []engine.View) []engine.View {
	below := map[string][]engine.View{}
	listed := map[string]bool{}
	for _, v := range views {
		listed[v.Spec.ID] = true
	}
	for _, v := range views {
		if p := v.Spec.Parent; listed[p] {
			below[p] = append(below[p], v)
		}
	}
	if len(below) == 0 {
		return views
	}
	out := make([]engine.View, 0, len(views))
	for _, v := range views {
		if !listed[v.Spec.Parent] {
			out = append(append(out, v), below[v.Spec.ID]...)
		}
	}
	return out
}

func joinWords(x, y string) string {
	if y == "" {
		return x
	}
	return x + " " + y
}

func (a *app) rmCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:        "rm ID...",
		SuggestFor: []string{"remove", "delete"},
		Long: `Remove the records of ended jobs: logs, diff, bundle and artifacts. Branches and named
overlays stay. Refused without --force: a job whose branch is not in the repository
(its record is the only copy), and one that another job waits for (--after). A job
that has not ended is always refused. Of a job on a cluster that is reached by ssh,
the record there is removed first.
` + exitHelp + `0 ok, 2 the job has not ended or its branch is only in the record, 3 no
such job, 5 it could not be removed.`,
		Example: `  berth rm 0a1b2c3d`,
		Args:    someJobs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, err := findEach(cmd.Context(), e, ids)
			errs := []error{err}
			views := e.Reconcile(cmd.Context(), recs)
			a.warn(views)
			var free []engine.View
			for _, v := range views {
				if err := removable(v, force); err != nil {
					errs = append(errs, err)
				} else {
					free = append(free, v)
				}
			}
			var waiting map[string]*jobs.Record
			if !force {
				// One that is removed with it waits for nothing.
				going := make([]*jobs.Record, len(free))
				for i, v := range free {
					going[i] = v.Record
				}
				if waiting, err = e.Dependents(going); err != nil {
					return err
				}
			}
			for _, v := range free {
				err := notAwaited(v.Record, waiting[v.Spec.ID])
				if err == nil {
					err = e.Remove(cmd.Context(), v.Record, force)
				}
				switch {
				case errors.Is(err, fs.ErrNotExist) && v.Spec.Login == nil:
				case err != nil && force && v.Spec.Login != nil:
					a.say("warning: %v; it stays there", err)
				default:
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().BoolVar(&force, "force", false,
		"also when this removes the only copy of the changes, ends a job that waits for this one, or leaves a record on a cluster")
	return c
}

// removable refuses to remove a job that has not ended, or the only copy of its
// changes.
func removable(v engine.View, force bool) error {
	if !v.State.Final() && !(force && jobs.KindOf(v.AskError) == jobs.KindNotFound) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + jobs.Short(v.Spec.ID) + " has not ended: it is " + string(v.State),
			Hint: "berth cancel " + jobs.Short(v.Spec.ID)}
	}
	if j := viewJSON(v); !force && j.Branch != "" && !j.BranchHere {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + j.Short + " has the only copy of its changes: " + dash(v.Note),
			Hint: "berth status " + j.Short + " tries again to bring them in; berth rm --force " + j.Short + " throws them away"}
	}
	return nil
}

// notAwaited refuses to remove what another job waits for; nil is that none does.
func notAwaited(r, w *jobs.Record) error {
	if w == nil {
		return nil
	}
	short, other := jobs.Short(r.Spec.ID), jobs.Short(w.Spec.ID)
	msg := "job " + other + " waits for job " + short
	if !engine.Waits(w) {
		msg = "job " + other + " runs after job " + short + ", and begins again only as that has ended, should it have to"
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: msg,
		Hint: "berth cancel " + other + " first, or berth rm --force " + short + ", after which the other ends unless it waits for any end"}
}

func (a *app) cancelCmd() *cobra.Command {
	var children bool
	c := &cobra.Command{
		Use:        "cancel ID...",
		SuggestFor: []string{"kill", "stop", "scancel"},
		Long: `Ask for the end of jobs, queued or running. A running command gets SIGTERM and, after
at most 10 seconds, everything in its container is killed. Its changes are brought
back as far as the scheduler leaves time, or until the job is cancelled once more.
A job that has ended is left alone. berth wait waits for the end. Jobs that its task has
submitted go on, unless --children is said or the task has end_with_parent in [submit].
` + exitHelp + `0 asked, 2 an ambiguous id, 3 no such job, 5 the scheduler could not be
reached: the request is recorded, and the job's runner finds it.`,
		Example: `  berth cancel 0a1b2c3d
  berth cancel 0a1b2c3d && berth wait 0a1b2c3d`,
		Args: someJobs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, missing := findEach(cmd.Context(), e, ids)
			views := e.Reconcile(cmd.Context(), recs)
			for _, v := range views {
				if v.State.Final() {
					a.say("job %s has ended already: %s", jobs.Short(v.Spec.ID), v.State)
				}
			}
			if len(views) == 0 {
				return missing
			}
			err = cancelJobs(cmd.Context(), e, views, children)
			if hosts := unreached(views); err != nil && hosts != "" {
				a.say("the wish is recorded here, and goes to %s with the next berth status that reaches it", hosts)
			} else if jobs.KindOf(err) == jobs.KindInfra {
				a.say("the wish is recorded: a job that runs sees it within seconds " +
					"where its node sees the record, one that waits when it starts")
			}
			return errors.Join(missing, err)
		},
	}
	c.Flags().BoolVar(&children, "children", false, "end the jobs that their tasks have submitted, too")
	return c
}

// cancelJobs asks for the end of jobs, and of those that their tasks have submitted where
// these end with them.
func cancelJobs(ctx context.Context, e *engine.Engine, views []engine.View, children bool) error {
	user := engine.Identity().User
	err := e.Cancel(ctx, views, user)
	for _, v := range views {
		if s := v.Spec.Submit; children || s != nil && s.EndWithParent {
			err = errors.Join(err, e.CancelChildren(ctx, v.Record, nil, user))
		}
	}
	return err
}

// unreached names the login hosts that did not answer.
func unreached(views []engine.View) string {
	var hosts []string
	for _, v := range views {
		if v.AskError != nil && v.Spec.Login != nil && !slices.Contains(hosts, v.Spec.Login.Host) {
			hosts = append(hosts, v.Spec.Login.Host)
		}
	}
	return strings.Join(hosts, ", ")
}

func (a *app) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.json, "json", false, "print one JSON object; errors too")
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s takes no arguments, got %q", cmd.CommandPath(), args[0]),
			Hint: cmd.CommandPath() + " --help"}
	}
	return nil
}

func someJobs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a job id", Hint: "berth ps --all lists the jobs"}
	}
	return nil
}
