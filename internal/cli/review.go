package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

func (a *app) reviewCmd() *cobra.Command {
	return group("review",
		`A result is a branch beside yours. A review decides on the tree that your branch would
have with it, and a merge moves your branch to exactly that tree (berth help agents).`,
		`  berth review ls
  berth review diff 0a1b2c3d        # what to look at comes first
  berth review run 0a1b2c3d         # the done commands again, from the branch alone
  berth review approve 0a1b2c3d
  berth review merge 0a1b2c3d`,
		a.reviewLsCmd(), a.reviewShowCmd(), a.reviewDiffCmd(), a.reviewRunCmd(),
		a.reviewApproveCmd(), a.reviewRejectCmd(), a.reviewMergeCmd(), a.reviewPushCmd(),
		a.reviewExportCmd(), a.reviewImportCmd())
}

// reviewJSON is a review in every --json output. Fields are only ever added.
type reviewJSON struct {
	ID        string             `json:"id"`
	Short     string             `json:"short"`
	Name      string             `json:"name"`
	Review    engine.ReviewState `json:"review"`
	State     jobs.State         `json:"state"` // of the job
	Level     jobs.Level         `json:"level"`
	Branch    string             `json:"branch"`
	Target    string             `json:"target,omitempty"`
	Base      string             `json:"base"`
	Commit    string             `json:"commit"`
	Onto      string             `json:"onto,omitempty"`
	Tree      string             `json:"tree,omitempty"`
	Conflicts []string           `json:"conflicts,omitempty"` // paths
	With      []string           `json:"conflicts_with,omitempty"`
	// WithTarget are the branches that moved, and with which it conflicts now; of a list.
	WithTarget []string             `json:"conflicts_with_target,omitempty"`
	Problem    string               `json:"problem,omitempty"`
	Result     *jobs.Result         `json:"result,omitempty"`
	Checklist  []engine.CheckItem   `json:"checklist,omitempty"` // "Done when" of the task
	Done       []jobs.DoneResult    `json:"done,omitempty"`      // of the job itself
	Run        *jobs.ReviewRun      `json:"run,omitempty"`       // of the tree
	Advice     *jobs.ReviewAdvice   `json:"advice,omitempty"`    // of an agent, on the tree
	Verdicts   []jobs.ReviewVerdict `json:"verdicts,omitempty"`
	Usage      *jobs.Usage          `json:"usage,omitempty"`
	Agent      *jobs.AgentUse       `json:"agent,omitempty"`
	Ended      *time.Time           `json:"ended,omitempty"`
	Files      []engine.ReviewFile  `json:"files,omitempty"`
	// Workspace is the name of the first workspace that has changed, where it is a further
	// one, and Workspaces are the others that have.
	Workspace  string       `json:"workspace,omitempty"`
	Workspaces []reviewPart `json:"workspaces,omitempty"`
	// Of a review that was imported.
	Author     string           `json:"author,omitempty"`
	AuthorRuns []jobs.ReviewRun `json:"author_runs,omitempty"`
	Transcript string           `json:"transcript,omitempty"` // the file
}

// reviewPart is what there is to decide in one more workspace.
type reviewPart struct {
	Workspace string   `json:"workspace"`
	Branch    string   `json:"branch"`
	Target    string   `json:"target"`
	Base      string   `json:"base"`
	Commit    string   `json:"commit"`
	Onto      string   `json:"onto"`
	Tree      string   `json:"tree,omitempty"`
	Conflicts []string `json:"conflicts,omitempty"`
	Problem   string   `json:"problem,omitempty"`
}

// recordJSON is what the job's record alone says of it.
func recordJSON(r *jobs.Record, state engine.ReviewState) reviewJSON {
	a := r.Current()
	first := r.ChangedParts()[0] // what the other fields of a workspace are of
	w := first.Spec.Workspace
	j := reviewJSON{ID: r.Spec.ID, Short: jobs.Short(r.Spec.ID), Name: r.Spec.Name, Review: state, State: jobs.StateOf(r), Level: r.Spec.Level,
		Workspace: w.Name, Branch: w.Branch, Base: w.Base, Commit: first.Current().Result().Commit, Result: a.Result()}
	if r.Sent != nil {
		j.Author, j.AuthorRuns = r.Sent.By+" on "+r.Sent.Host, r.Sent.Runs
		if r.Sent.Git != "" {
			j.Author += ", " + r.Sent.Git
		}
	}
	if x := a.Exit; x != nil {
		j.Done, j.Usage, j.Agent, j.Ended = x.Done, x.Usage, x.Agent, &x.Ended
	}
	return j
}

// transcriptOf is the file of an agent's events; "" is that there is none.
func transcriptOf(r *jobs.Record) string {
	if path := filepath.Join(r.Current().Dir, store.FileTranscript); isFile(path) {
		return path
	}
	return ""
}

func reviewOf(r *engine.Review) reviewJSON {
	j := recordJSON(r.Record, r.State)
	j.Transcript = transcriptOf(r.Record)
	j.Target, j.Onto, j.Tree, j.Conflicts, j.Verdicts = r.Target(), r.Onto, r.Tree, r.Conflicts, r.Verdicts()
	if err := r.Whole(); err != nil {
		j.Problem = err.Error()
	}
	for _, p := range r.Further {
		one := reviewPart{Workspace: p.Workspace, Branch: p.Branch(), Target: p.Target(), Base: p.Base, Commit: p.Commit, Onto: p.Onto, Tree: p.Tree,
			Conflicts: p.Conflicts}
		if p.Problem != nil {
			one.Problem = p.Problem.Error()
		}
		j.Workspaces = append(j.Workspaces, one)
	}
	j.Run, j.Advice = r.Run(), r.Advice()
	if s := r.Record.Spec; s.Prompt {
		if b, err := store.Prompt(r.Record.Dir, s.PromptBytes); err == nil {
			j.Checklist = engine.Checklist(string(b))
		} else {
			j.Problem = strings.TrimPrefix(j.Problem+"; the task's prompt cannot be read: "+err.Error(), "; ")
		}
	}
	return j
}

// reviewJob finds the one job that a verb is about, and brings its record up to date.
func (a *app) reviewJob(cmd *cobra.Command, ids []string) (*engine.Engine, *jobs.Record, error) {
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	recs, err := find(e, ids)
	if jobs.KindOf(err) == jobs.KindNotFound {
		if r, ierr := e.Store.FindImported(ids[0]); !store.Missing(ierr) {
			return e, r, ierr
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if r := recs[0]; r.Current() == nil || !jobs.StateOf(r).Final() || r.BranchMissing() {
		views := e.Reconcile(cmd.Context(), recs)
		a.warn(views)
		return e, views[0].Record, nil
	}
	return e, recs[0], nil
}

const ontoHelp = "the `BRANCH` that the result is for (default: the one that the task started from)"

func (a *app) reviewLsCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ls", Short: "list the results that wait for a review or a merge",
		Long: `List the results that wait, oldest first. Columns: job, review, target branch, age,
changes, cost, what it conflicts with (the target branch, where that has moved, and other
results for it), name.
The review is waiting (no verdict), approved, stale (approved, and the branch or its
target moved since), unfinished (a merge was killed: merge it again), rejected, merged.
` + exitHelp + `0 ok, 2 usage, 5 a record or a repository could not be read.`,
		Example: "  berth review ls\n  berth review ls --all --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			list, err := e.ListReviews(cmd.Context(), all)
			if err != nil {
				return err
			}
			return errors.Join(a.printReviews(list), errors.Join(list.Problems...))
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that were merged or rejected")
	a.jsonFlag(c)
	a.watchFlag(c)
	return c
}

func (a *app) printReviews(list *engine.ReviewList) error {
	if list.Unforecast > 0 {
		a.say("%s not looked at for conflicts yet: berth review ls again goes on", haveNotBeen(list.Unforecast))
	}
	out := make([]reviewJSON, len(list.Items))
	rows := make([][]string, len(list.Items))
	for i, it := range list.Items {
		j := listedReview(it)
		if a.json {
			j.Transcript = transcriptOf(it.Record)
		}
		out[i] = j
		rows[i] = a.reviewRow(&j, it.Record.Sent)
	}
	if a.json {
		return a.printJSON(map[string]any{"reviews": out, "pairs_not_looked_at": list.Unforecast})
	}
	return a.table(reviewHead, rows)
}

var reviewHead = []string{"JOB", "REVIEW", "TARGET", "AGE", "CHANGES", "COST", "CONFLICTS", "NAME"}

// reviewRow is a result below reviewHead.
func (a *app) reviewRow(j *reviewJSON, sent *jobs.ReviewSent) []string {
	changes := strings.Replace(changesText(j.Result), ", ", " ", 1)
	name := j.Name
	if sent != nil {
		name += " (of " + sent.By + " on " + sent.Host + ")"
	}
	with := strings.Join(slices.Concat(j.WithTarget, j.With), ",")
	return []string{j.Short, string(j.Review), dash(j.Target), a.age(j.Ended), changes, dash(j.cost()), dash(with), name}
}

func listedReview(it engine.ReviewItem) reviewJSON {
	j := recordJSON(it.Record, it.State)
	j.Target, j.With, j.WithTarget = it.Target, it.Conflicts, it.TargetConflicts
	if it.Verdict != nil {
		j.Verdicts = []jobs.ReviewVerdict{*it.Verdict}
	}
	return j
}

func haveNotBeen(pairs int) string {
	if pairs == 1 {
		return "1 pair of results was"
	}
	return fmt.Sprintf("%d pairs of results were", pairs)
}

func (a *app) age(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return a.when(*t)
}

// cost is what the task has used of models, in few words.
func (j *reviewJSON) cost() string {
	switch {
	case j.Usage != nil && j.Usage.USD > 0:
		return fmt.Sprintf("%.2f USD", float64(j.Usage.USD))
	case j.Agent != nil && j.Agent.Usage != nil && j.Agent.Usage.USD > 0:
		return fmt.Sprintf("%.2f USD", float64(j.Agent.Usage.USD))
	case j.Agent != nil && j.Agent.Turns > 0:
		return jobs.Plural(j.Agent.Turns, "turn")
	}
	return ""
}

func (a *app) reviewShowCmd() *cobra.Command {
	var onto string
	var transcript bool
	c := &cobra.Command{
		Use: "show JOB", Short: "what there is to decide of a result: checks, cost, what to look at",
		Long: `Show what there is to decide of a result: what it would do to the target branch, how its
checks went, what it has cost, which files to look at before the others, and the verdicts.
` + exitHelp + `0 ok, 2 the job has no result to review, 3 no such job or branch, 5 its branch is
not in the repository yet.`,
		Example: "  berth review show 0a1b2c3d\n  berth review show 0a1b2c3d --onto release",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			if transcript {
				return a.reviewTranscript(rec)
			}
			rv, files, err := e.ReviewFiles(cmd.Context(), rec, onto)
			if err != nil {
				return err
			}
			j := reviewOf(rv)
			j.Files = files
			if a.json {
				return a.printJSON(map[string]any{"review": j})
			}
			return a.rows(a.reviewRows(rv, &j))
		},
	}
	c.Flags().StringVar(&onto, "onto", "", ontoHelp)
	c.Flags().BoolVar(&transcript, "transcript", false, "what its agent said of its work, instead")
	a.jsonFlag(c)
	return c
}

// shownFiles bounds the files that are named for one reason.
const shownFiles = 20

func (a *app) reviewRows(rv *engine.Review, j *reviewJSON) (rows [][2]string) {
	add := func(label, value string) {
		if value != "" {
			rows = append(rows, [2]string{label, value})
		}
	}
	add("job", j.ID)
	add("name", j.Name)
	add("author", j.Author)
	add("review", string(j.Review))
	for _, p := range rv.All() {
		if len(rv.Record.Spec.Further) > 0 {
			add("workspace", p.Repository())
		}
		add("branch", fmt.Sprintf("%s (%.12s)", p.Branch(), p.Commit))
		target := fmt.Sprintf("%s (%.12s), where the task started", p.Target(), p.Onto)
		if !p.FastForward() {
			target = fmt.Sprintf("%s (%.12s), which moved since the task started from %.12s", p.Target(), p.Onto, p.Base)
		}
		add("target", target)
		add("tree", p.Tree)
	}
	add("problem", j.Problem)
	add("state", string(j.State))
	add("changes", changesText(j.Result))
	contained := string(j.Level)
	switch {
	case j.Level != jobs.LevelNone:
	case rv.Record.Sent != nil:
		contained += " (the task had its author's rights)"
	default:
		contained += " (the task had your own rights)"
	}
	add("containment", contained)
	for _, c := range j.Checklist {
		box := "[ ] "
		if c.Checked {
			box = "[x] "
		}
		add("done when", box+c.Text)
	}
	for _, d := range j.Done {
		add("done", commandText(d.Command)+": "+d.Exit.String())
	}
	if over := rv.Record.Spec.CheckedOver(); over != "" {
		add("done", "checked over "+over)
	}
	add("review run", a.runText(rv, j.Run))
	if j.Advice != nil {
		rows = append(rows, a.adviceRows(j.Advice)...)
	}
	for _, run := range j.AuthorRuns {
		add("author's run", fmt.Sprintf("%s, %s, by %s: their own word",
			map[bool]string{true: "passed", false: "FAILED"}[run.OK], a.when(run.Time), run.By))
	}
	if j.Agent != nil {
		add("agent", j.Agent.String())
	}
	if j.Usage != nil {
		add("models", j.Usage.String())
	}
	if j.Transcript != "" {
		add("transcript", "berth review show --transcript "+j.Short)
	}
	add3 := func(label string, wanted func(engine.ReviewFile) string) {
		n := 0
		for _, f := range j.Files {
			if text := wanted(f); text != "" {
				if n++; n <= shownFiles {
					add(label, text)
				}
			}
		}
		if n > shownFiles {
			add(label, fmt.Sprintf("and %d more: berth review diff %s", n-shownFiles, j.Short))
		}
	}
	add3("look at", func(f engine.ReviewFile) string {
		if len(f.Why) == 0 {
			return ""
		}
		return f.Shown() + ": " + strings.Join(f.Why, ", ")
	})
	add3("tests", func(f engine.ReviewFile) string {
		if !f.Test {
			return ""
		}
		return f.Shown() + ": " + f.Status
	})
	add3("out of scope", func(f engine.ReviewFile) string {
		if !f.OutOfScope {
			return ""
		}
		return f.Shown()
	})
	for _, v := range j.Verdicts {
		add("verdict", a.verdictText(&v))
	}
	add("next", nextOf(rv, j))
	return rows
}

func (a *app) runText(rv *engine.Review, run *jobs.ReviewRun) string {
	switch {
	case len(rv.Record.Spec.Done) == 0:
		return "the job has no done commands"
	case rv.Record.Sent != nil:
		return "none here: its checks are the author's words"
	case run == nil:
		return "none on this tree"
	case run.OK:
		return strings.TrimSuffix(fmt.Sprintf("passed, %s, job %s, over %s", a.when(run.Time), jobs.Short(run.Job), run.Over), ", over ")
	}
	return fmt.Sprintf("FAILED, %s, job %s: %s", a.when(run.Time), jobs.Short(run.Job), run.Reason)
}

func (a *app) verdictText(v *jobs.ReviewVerdict) string {
	s := fmt.Sprintf("%s by %s on %s, %s", v.Verdict, v.By, v.Host, a.when(v.Time))
	if v.Verdict == jobs.VerdictApprove {
		s += fmt.Sprintf(": tree %.12s onto %.12s", v.Tree, v.Onto)
		for _, t := range v.Further {
			s += fmt.Sprintf(", and %s: tree %.12s onto %.12s", t.Workspace, t.Tree, t.Onto)
		}
	}
	if v.Unchecked {
		s += ", unchecked"
	}
	if v.OutOfScope {
		s += ", out of scope"
	}
	if v.Git != "" {
		s += ", " + v.Git
	}
	if i := v.Imported; i != nil {
		s += ", imported by " + i.By
	}
	if v.Note != "" {
		s += ": " + v.Note
	}
	return s
}

// nextOf is the command that goes on.
func nextOf(rv *engine.Review, j *reviewJSON) string {
	switch sent := rv.Record.Sent != nil; {
	case j.Review == engine.ReviewMerged:
		return ""
	case sent && rv.Reviews.Verdict() != nil:
		return "berth review export " + j.Short + " FILE, for the author"
	case sent && rv.Whole() == nil:
		return "berth review diff " + j.Short + "; " + engine.ApproveCommand(rv.Record)
	case j.Review == engine.ReviewApproved && engine.Unapproved(rv.Record, rv.Reviews.Verdict()):
		return "berth review diff " + j.Short + "; " + engine.ApproveCommand(rv.Record)
	case j.Review == engine.ReviewUnfinished, j.Review == engine.ReviewApproved:
		return "berth review merge " + j.Short
	case rv.Whole() != nil:
		return jobs.HintOf(rv.Whole())
	case j.Run == nil && len(rv.Record.Spec.Done) > 0:
		return "berth review diff " + j.Short + "; berth review run " + j.Short
	case j.Run != nil && !j.Run.OK:
		return "berth review diff " + j.Short + "; berth review reject " + j.Short
	}
	return "berth review diff " + j.Short + "; " + engine.ApproveCommand(rv.Record)
}
