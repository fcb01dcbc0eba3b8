package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/engine"
	"berth/internal/cli/top"
	"berth/internal/sweep"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

// topEvery is the least time between two readings of berth top. A site's own least time
// between two questions to its scheduler holds beside it.
const topEvery = 2 * time.Second

func (a *app) topCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:        "top",
		SuggestFor: []string{"watch", "dashboard", "tui", "htop"},
		Long: `Watch everything on one screen: jobs, environments, their allocations, sweeps, the queue of
reviews; why something waits; what it has cost; the output of the chosen job beside the
list, as it comes. Keys are shown in the last line, and all of them by "?". What ends
something asks first.

All lists come from the records and from one question to the scheduler, asked no more
often than the site allows, whoever else asks. Other machines are not asked about
environments. It needs a terminal; NO_COLOR is honoured.
` + exitHelp + `0 left with q or ctrl-C, that of an action that was finished after these and failed,
2 there is no terminal that can show it, 78 the state directory is open to others, 130 ended
by a signal.`,
		Example: "  berth top\n  berth top --all     # what has ended, too",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.screen(); err != nil {
				return err
			}
			// Whoever reports something meanwhile must not write over the screen, and no program
			// may ask for a password there.
			said := &sayings{}
			stderr, errTTY := a.stderr, a.errTTY
			a.stderr, a.errTTY = said, false
			defer func() { a.stderr, a.errTTY = stderr, errTTY }()
			e, err := a.engine()
			if err != nil {
				return err
			}
			l := &lists{app: a, cmd: cmd, e: e, said: said, seen: map[string]bool{}}
			return top.Run(run.Unattended(cmd.Context()), a.stdin, a.stdout, os.Environ(),
				top.Config{Read: l.read, Now: a.now, All: all, Every: topEvery})
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also list what has ended")
	return c
}

// screen refuses a terminal that cannot show one, or none.
func (a *app) screen() error {
	hint := "berth ps lists the jobs, with --json for programs"
	switch term := os.Getenv("TERM"); {
	case !a.tty || !isTerminal(a.stdin):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth top needs a terminal: its input or output is none", Hint: hint}
	case term == "" || term == "dumb":
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("berth top needs a terminal that moves its cursor, and TERM is %q", term), Hint: hint}
	}
	return nil
}

// sayings keeps what is said while the screen is shown.
type sayings struct {
	mu    sync.Mutex
	lines []string
}

func (s *sayings) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "berth: ")
		if line = strings.TrimPrefix(line, "warning: "); line != "" {
			s.lines = append(s.lines, line)
		}
	}
	return len(p), nil
}

// take returns what was said since the last time.
func (s *sayings) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.lines
	s.lines = nil
	return out
}

// mostEnded is how many jobs that have ended stay on the screen that saw them before.
const mostEnded = 100

// firstJobs is how many jobs the first screen has at most: more than a terminal has lines, and few enough
// to be read in a moment.
const firstJobs = 120

// mostTail is how much of an output is read at once, in bytes of each stream.
const mostTail = 256 << 10

// lists reads the lists of berth top, as the verbs that list them do.
type lists struct {
	*app
	cmd  *cobra.Command
	e    *engine.Engine
	said *sayings
	// seen are jobs that had not ended when they were read before, and ended those of them that
	// have since, in that order.
	seen  map[string]bool
	ended []string
	more  bool // of the jobs only the first were read
}

func (l *lists) read(ctx context.Context, want top.Want) top.Snapshot {
	s := top.Snapshot{Tables: map[top.Tab]top.Table{}}
	views := l.jobs(ctx, want)
	s.Tables[top.Jobs] = l.jobTable(views)
	s.Summary = jobSummary(views)
	if want.Quick && l.more {
		s.Summary = "reading more jobs than these"
	}
	if !want.Quick {
		if want.Tabs[top.Environments] || want.Tabs[top.Allocations] {
			s.Tables[top.Environments], s.Tables[top.Allocations] = l.environments(ctx)
		}
		if want.Tabs[top.Sweeps] {
			s.Tables[top.Sweeps] = l.sweeps()
		}
		if want.Tabs[top.Reviews] {
			s.Tables[top.Reviews] = l.reviews(ctx, want.All)
		}
	}
	s.Said = l.said.take()
	return s
}

// jobs are those that have not ended, and those that did since they were seen; all of them,
// where these are wanted.
func (l *lists) jobs(ctx context.Context, want top.Want) []engine.View {
	list := l.e.Store.ListOpen
	switch {
	case want.Quick:
		list = func() ([]*jobs.Record, error) {
			recs, more, err := l.e.Store.Few(store.Few{Most: firstJobs, All: want.All})
			l.more = more
			return recs, err
		}
	case want.All:
		list = l.e.Store.List
	}
	recs, err := list()
	if err != nil {
		l.say("warning: %v", err)
	}
	have := make(map[string]bool, len(recs))
	for _, r := range recs {
		have[r.Spec.ID] = true
	}
	for _, id := range append(slices.Collect(maps.Keys(l.seen)), l.ended...) {
		if !have[id] {
			if r, err := l.e.Store.Load(id); err == nil { // else it was removed
				recs = append(recs, r)
			}
		}
	}
	slices.SortStableFunc(recs, func(a, b *jobs.Record) int { return strings.Compare(a.Spec.ID, b.Spec.ID) })
	var views []engine.View
	if want.Quick {
		for _, r := range recs {
			views = append(views, engine.View{Record: r, State: jobs.StateOf(r), AsOf: l.now()})
		}
	} else {
		views = l.e.Reconcile(ctx, recs)
		l.warn(views)
	}
	open := map[string]bool{}
	for _, v := range views {
		switch id := v.Spec.ID; {
		case !v.State.Final():
			open[id] = true
		case l.seen[id]:
			l.ended = append(l.ended, id)
		}
	}
	l.seen = open
	l.ended = l.ended[max(len(l.ended)-mostEnded, 0):]
	if !want.All {
		views = slices.DeleteFunc(views, func(v engine.View) bool { return v.State.Final() && !slices.Contains(l.ended, v.Spec.ID) })
	}
	return families(views)
}

// jobSummary counts jobs by state, and sums what they have used.
func jobSummary(views []engine.View) string {
	counts := map[jobs.State]int{}
	for _, v := range views {
		counts[v.State]++
	}
	var words []string
	for _, st := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d %s", counts[st], st))
	}
	if len(words) == 0 {
		return "no jobs"
	}
	sum := usageSums(views, byJob, time.Time{}).all
	return fmt.Sprintf("%s; %.2f USD, %.2f core-hours", strings.Join(words, ", "), float64(sum.USD), sum.CoreHours)
}

// columns are those of a table that a verb prints, with how wide they may be and when they
// are left out.
func columns(head []string, of map[string]top.Column) []top.Column {
	out := make([]top.Column, len(head))
	for i, title := range head {
		out[i] = of[title]
		out[i].Title = title
	}
	return out
}

var toneOf = map[jobs.State]top.Tone{jobs.StateRunning: top.Running, jobs.StatePending: top.Waiting, jobs.StateSubmitting: top.Waiting,
	jobs.StateCompleted: top.Good, jobs.StateFailed: top.Bad, jobs.StateTimeout: top.Bad, jobs.StateOutOfMemory: top.Bad,
	jobs.StateError: top.Bad, jobs.StateLost: top.Bad}

// toneOfJob is the tone of its row: a success that is to be looked at is none that ended well.
func toneOfJob(j jobJSON) top.Tone {
	if j.State == jobs.StateCompleted && successText[j.ExitCode] != "" {
		return top.Waiting
	}
	return toneOf[j.State]
}

func (l *lists) jobTable(views []engine.View) top.Table {
	head := append(slices.Clone(jobHead), "USD", "CORE-H")
	t := top.Table{Empty: "no jobs are queued or running; berth run TASK makes one, and a shows those that have ended",
		Columns: columns(head, map[string]top.Column{"ID": {Most: 8}, "STATE": {Most: 30},
			"SCHEDULER": {Most: 16, Drop: 5}, "NODE": {Most: 16, Drop: 4},
			"SUBMITTED": {Most: 9, Drop: 1}, "USD": {Most: 9, Drop: 3, Right: true}, "CORE-H": {Most: 9, Drop: 2, Right: true}})}
	for _, v := range views {
		j := viewJSON(v)
		spent := spentOf(v)
		r := top.Row{Key: j.Short, Tone: toneOfJob(j), Actions: l.jobActions(v, j),
			Cells: append(l.jobRow(j), fmt.Sprintf("%.2f", float64(spent.USD)), fmt.Sprintf("%.2f", spent.CoreHours)),
			By:    map[int]float64{5: float64(j.Created.UnixNano()), 6: float64(spent.USD), 7: spent.CoreHours}}
		r.Detail = func(context.Context) ([][2]string, error) {
			v := v
			inFull(&v)
			return l.detail(viewJSON(v)), nil
		}
		r.Output, r.OutputOf = l.output(v.Record)
		t.Rows = append(t.Rows, r)
	}
	return t
}

// output shows what the current attempt of a job has written and writes.
func (l *lists) output(rec *jobs.Record) (func(*top.Lines) func() error, string) {
	a := rec.Current()
	if a == nil || rec.Sent != nil {
		return nil, ""
	}
	return func(to *top.Lines) func() error {
		stdout := l.agentView(&rec.Spec, to.Stream(), eventsShown, "")
		return l.e.Tail(rec, engine.LogCommand, mostTail, stdout, to.Stream()).Next
	}, a.Dir
}

func (l *lists) jobActions(v engine.View, j jobJSON) []top.Action {
	name := j.Short + " (" + j.Name + ")"
	if j.Final {
		return []top.Action{{Key: "r", Name: "retry", Ask: "run the task of job " + name + " again, as another job?",
			Do: func(context.Context) (string, error) {
				rec, err := l.retryJob(l.cmd, l.e, v.Record, engine.RetryOptions{})
				if err != nil {
					return "", err
				}
				return "job " + jobs.Short(rec.Spec.ID) + " is a retry of " + j.Short, nil
			}}}
	}
	return []top.Action{{Key: "c", Name: "cancel", Ask: "end job " + name + "?",
		Do: func(ctx context.Context) (string, error) {
			rec, err := l.e.Store.Load(v.Spec.ID)
			if err != nil {
				return "", err
			}
			// It may have gone on since it was read.
			views := l.e.Reconcile(ctx, []*jobs.Record{rec})
			if st := views[0].State; st.Final() {
				return "job " + j.Short + " has ended already: " + string(st), nil
			}
			if err := cancelJobs(ctx, l.e, views, false); err != nil {
				return "", err
			}
			return "job " + j.Short + " is asked to end", nil
		}}}
}

// environments are the lists of environments and of their allocations.
func (l *lists) environments(ctx context.Context) (envs, held top.Table) {
	envs = top.Table{Empty: "no environments; berth exec -- COMMAND makes one",
		Columns: columns(envHead, map[string]top.Column{"NAME": {Most: 24}, "STATE": {Most: 10},
			"BACKEND": {Most: 12, Drop: 1}, "LEVEL": {Most: 12, Drop: 3},
			"MADE": {Most: 9, Drop: 2}})}
	held = top.Table{Empty: "no environment has an allocation; berth exec --scheduler slurm -- COMMAND asks for one",
		Columns: columns([]string{"ENVIRONMENT", "SCHEDULER", "STATE", "NODE", "ENDS"},
			map[string]top.Column{"ENVIRONMENT": {Most: 24}, "SCHEDULER": {Most: 20},
				"NODE": {Most: 16, Drop: 1}, "ENDS": {Most: 9}})}
	list, err := l.e.Environments()
	if err != nil {
		l.say("warning: %v", err)
	}
	for i, s := range l.e.ShowAll(ctx, list, false) {
		list[i].Close()
		r := top.Row{Key: s.Spec.Name, Cells: l.envRow(s, false), By: map[int]float64{5: float64(s.Spec.Created.UnixNano())}}
		r.Detail = func(context.Context) ([][2]string, error) { return l.envDetail(s), s.Err }
		if s.State != nil || s.Allocation != nil || l.sandboxLeft(s) {
			r.Actions = l.envActions(s)
		}
		switch {
		case s.Silent || s.Err != nil:
			r.Tone = top.Bad
		case s.Allocation != nil && !s.Allocation.Running:
			r.Tone = top.Waiting
		case s.State != nil:
			r.Tone = top.Running
		}
		envs.Rows = append(envs.Rows, r)
		at := s.Allocation
		if at == nil {
			continue
		}
		state, ends := at.State, "-"
		if at.Reason != "" && at.Reason != "None" {
			state += " (" + at.Reason + ")"
		}
		if !at.Ends.IsZero() {
			ends = "in " + ago(at.Ends.Sub(l.now()))
		}
		h := r
		h.Cells = []string{s.Spec.Name, joinWords(s.Spec.Scheduler, at.ID), state, dash(at.Node), ends}
		h.By = map[int]float64{4: float64(at.Ends.UnixNano())}
		held.Rows = append(held.Rows, h)
	}
	return envs, held
}

func (l *lists) envActions(s engine.Shown) []top.Action {
	name := s.Spec.Name
	what := "stop environment " + name + "? Its files stay"
	if st := s.State; st != nil && st.Running+st.BG > 0 {
		what = fmt.Sprintf("stop environment %s, in which %s? Its files stay", name, jobs.Plural(st.Running+st.BG, "command")+" run")
	}
	return []top.Action{{Key: "x", Name: "stop", Ask: what, Do: func(ctx context.Context) (string, error) {
		v, err := l.e.FindEnvironment(name)
		if err != nil {
			return "", err
		}
		defer v.Close()
		return "environment " + name + " is stopped", v.Stop(ctx)
	}}}
}

func (l *lists) sweeps() top.Table {
	t := top.Table{Empty: "no sweeps; berth sweep run FILE makes one",
		Columns: columns(sweepHead, map[string]top.Column{"ID": {Most: 8}, "NAME": {Most: 24},
			"STATE": {Most: 10}, "DONE": {Most: 15}, "CREATED": {Most: 9, Drop: 1}})}
	root, err := sweepRoot()
	if err != nil {
		l.say("warning: %v", err)
		return t
	}
	all, err := sweep.List(root)
	if err != nil {
		l.say("warning: %v", err)
	}
	tones := map[string]top.Tone{"running": top.Running, "waiting": top.Waiting, "paused": top.Waiting, "pausing": top.Waiting, "finished": top.Good}
	for _, s := range all {
		cells, err := l.sweepRow(s)
		if err != nil {
			l.say("warning: sweep %s: %v", s.Spec.Name, err)
			continue
		}
		state := cells[2]
		r := top.Row{Key: cells[0], Cells: cells, Tone: tones[state], By: map[int]float64{5: float64(s.Spec.Created.UnixNano())}}
		if s.Spec.TaskFile == "" {
			r.Detail = func(context.Context) ([][2]string, error) {
				f, err := s.Fold()
				if err != nil {
					return nil, err
				}
				live, err := sweepRunning(s, f)
				return sweepRows(s, f, live, l.now()), err
			}
			r.Actions = l.sweepActions(s, state)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func (l *lists) sweepActions(s *sweep.Sweep, state string) (out []top.Action) {
	if state == "finished" || state == "cancelled" {
		return nil
	}
	name := "sweep " + s.Spec.Name
	if s.Paused() == nil {
		out = append(out, top.Action{Key: "p", Name: "pause", Ask: "begin no more tasks of " + name + "? Those that run go on to their end",
			Do: func(context.Context) (string, error) {
				return name + " goes on with: berth sweep resume " + jobs.Short(s.Spec.ID), s.Pause(sweep.Pause{Why: "a user has said so"})
			}})
	}
	return append(out, top.Action{Key: "c", Name: "cancel", Ask: "end " + name + "? Finished tasks keep their results",
		Do: func(ctx context.Context) (string, error) { return name + " is being cancelled", l.cancelSweep(ctx, s) }})
}

func (l *lists) reviews(ctx context.Context, all bool) top.Table {
	t := top.Table{Empty: "no results wait for a review",
		Columns: columns(reviewHead, map[string]top.Column{"JOB": {Most: 8}, "REVIEW": {Most: 10}, "TARGET": {Most: 20,
			Drop: 2}, "AGE": {Most: 9}, "CHANGES": {Most: 28, Drop: 1},
			"COST": {Most: 12, Drop: 3}, "CONFLICTS": {Most: 20, Drop: 4}})}
	list, err := l.e.ListReviews(ctx, all)
	if err != nil {
		l.say("warning: %v", err)
	}
	if list == nil {
		return t
	}
	for _, err := range list.Problems {
		l.say("warning: %v", err)
	}
	tones := map[engine.ReviewState]top.Tone{engine.ReviewWaiting: top.Waiting, engine.ReviewApproved: top.Good, engine.ReviewRejected: top.Bad}
	for _, it := range list.Items {
		j := listedReview(it)
		r := top.Row{Key: j.Short, Cells: l.reviewRow(&j, it.Record.Sent), Tone: tones[it.State], By: map[int]float64{}}
		if j.Ended != nil {
			r.By[3] = float64(j.Ended.UnixNano())
		}
		if j.Result != nil {
			r.By[4] = float64(j.Result.Insertions + j.Result.Deletions)
		}
		r.Output, r.OutputOf = l.output(it.Record)
		r.Detail = func(ctx context.Context) ([][2]string, error) {
			rv, files, err := l.e.ReviewFiles(ctx, it.Record, "")
			if err != nil {
				return nil, err
			}
			j := reviewOf(rv)
			j.Files = files
			return l.reviewRows(rv, &j), nil
		}
		if it.State == engine.ReviewWaiting || it.State == engine.ReviewApproved {
			r.Actions = []top.Action{{Key: "x", Name: "reject", Ask: "reject the result of job " + j.Short + " (" + j.Name + ")? Its branch stays",
				Do: func(ctx context.Context) (string, error) {
					_, err := l.e.Reject(ctx, it.Record, "")
					return "the result of job " + j.Short + " is rejected", err
				}}}
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
