package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/workspace"
	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"

	"al.essio.dev/pkg/shellescape"
)

// ReviewState is how far the review of a result is.
type ReviewState string

// The states of a review.
const (
	ReviewWaiting    ReviewState = "waiting"    // no verdict yet
	ReviewApproved   ReviewState = "approved"   // and not merged
	ReviewStale      ReviewState = "stale"      // approved, and the branch or its target moved since
	ReviewRejected   ReviewState = "rejected"   //
	ReviewUnfinished ReviewState = "unfinished" // a merge was begun and has no end
	ReviewMerged     ReviewState = "merged"     //
)

// Review is what there is to decide of the result of a job.
type Review struct {
	Record  *jobs.Record
	Reviews *jobs.Reviews
	State   ReviewState
	// Base is what the task started from, Commit its result, and Onto the commit that the
	// target, the branch Ref, has now. Tree is what the target would have; "" where that
	// cannot be made.
	Base, Commit, Ref, Onto, Tree string
	// Conflicts are the paths in which result and target conflict, printable.
	Conflicts []string
	// Problem is why it can neither be approved nor merged as it stands; nil is nothing.
	Problem error
	// Workspace is the name of the workspace that this is about, and Further are the others
	// that have changed. What is decided is decided of all together.
	Workspace string
	Further   []*Review
	// Outside names what an approved result has changed outside of its scope; "" is nothing.
	Outside string

	part  *jobs.Record // the record as that of this workspace alone
	under *under
	has   bool // the target has the result already, of several
}

// All are the reviews of the workspaces that have changed, this one first.
func (r *Review) All() []*Review { return append([]*Review{r}, r.Further...) }

// Whole is the first problem of any workspace; nil is that there is none.
func (r *Review) Whole() error {
	if !slices.ContainsFunc(r.All(), func(p *Review) bool { return !p.has }) {
		return r.Problem // which is of all
	}
	for _, p := range r.All() {
		if p.Problem != nil {
			return ofReview(p, p.Problem)
		}
	}
	return nil
}

// Verdicts are those on the result, whole, in their order.
func (r *Review) Verdicts() []jobs.ReviewVerdict {
	out := slices.Clone(r.Reviews.Verdicts)
	for _, p := range r.Further {
		for i, v := range p.Reviews.Verdicts {
			out[i].Further = append(out[i].Further,
				jobs.ReviewTree{Workspace: v.Workspace, Commit: v.Commit, Tree: v.Tree, Onto: v.Onto, Ref: v.Ref})
		}
	}
	return out
}

// runs are those on the trees of all, whole, in their order.
func (r *Review) runs() (out []jobs.ReviewRun) {
	for i, run := range r.Reviews.Runs {
		if slices.ContainsFunc(r.All(), func(p *Review) bool { return p.Reviews.Runs[i].Tree != p.Tree }) {
			continue
		}
		for _, p := range r.Further {
			o := &p.Reviews.Runs[i]
			run.Further = append(run.Further, jobs.ReviewTree{Workspace: o.Workspace, Commit: o.Commit, Tree: o.Tree, Onto: o.Onto})
		}
		out = append(out, run)
	}
	return out
}

// treeless reports whether the tree of one of them cannot be made.
func (r *Review) treeless() bool {
	return slices.ContainsFunc(r.All(), func(p *Review) bool { return p.Tree == "" })
}

// further are the trees of the further ones, as a run and an agent's advice record them.
func (r *Review) further() (out []jobs.ReviewTree) {
	for _, p := range r.Further {
		out = append(out, jobs.ReviewTree{Workspace: p.Workspace, Commit: p.Commit, Tree: p.Tree, Onto: p.Onto})
	}
	return out
}

// Advice is the last that an agent has said of these trees; nil is none.
func (r *Review) Advice() *jobs.ReviewAdvice {
	if r.treeless() {
		return nil
	}
	for i := len(r.Reviews.Advice) - 1; i >= 0; i-- {
		a := &r.Reviews.Advice[i]
		if !slices.ContainsFunc(r.All(), func(p *Review) bool { return a.TreeOf(p.Workspace) != p.Tree }) {
			return a
		}
	}
	return nil
}

// Run is the last run of the done commands on these trees; nil is none.
func (r *Review) Run() *jobs.ReviewRun {
	for i := len(r.Reviews.Runs) - 1; i >= 0; i-- {
		if !slices.ContainsFunc(r.All(), func(p *Review) bool { return p.Tree == "" || p.Reviews.Runs[i].Tree != p.Tree }) {
			return &r.Reviews.Runs[i]
		}
	}
	return nil
}

// FastForward reports whether the target is still what the task started from.
func (r *Review) FastForward() bool { return r.Onto == r.Base }

// Target is the target's name for people.
func (r *Review) Target() string { return strings.TrimPrefix(r.Ref, headRefs) }

// ReviewFile is a changed path of a result.
type ReviewFile struct {
	Workspace  string   `json:"workspace,omitempty"` // the name of a further one
	Path       string   `json:"path"`                // printable
	Status     string   `json:"status"`
	Insertions int      `json:"insertions"` // lines
	Deletions  int      `json:"deletions"`
	Binary     bool     `json:"binary,omitempty"`
	Why        []string `json:"look_at,omitempty"` // why to look at it before the others
	// Test says that it looks like a test, or decides how tests run; OutOfScope that the
	// task's scope does not cover it.
	Test       bool `json:"test,omitempty"`
	OutOfScope bool `json:"out_of_scope,omitempty"`
}

// Shown is the path for people, with its workspace where that is a further one.
func (f *ReviewFile) Shown() string {
	if f.Workspace == "" {
		return f.Path
	}
	return f.Workspace + ": " + f.Path
}

const headRefs = "refs/heads/"

// under is the repository of a review, and for a moment a git directory that borrows its
// objects.
type under struct {
	*review.Repo
	*workspace.Borrowed
}

// repoOf is the repository of a job as a review works on it.
func (e *Engine) repoOf(s *jobs.Spec) *review.Repo {
	return &review.Repo{Git: e.git, Src: sourceOf(s.Workspace), User: e.Getenv}
}

// reviewable refuses jobs whose result is none to review, or not here.
func reviewable(r *jobs.Record) error {
	short := jobs.Short(r.Spec.ID)
	a := r.Current()
	no := func(kind jobs.Kind, hint, what string) error {
		return &jobs.Error{Kind: kind, Msg: "job " + short + " " + what, Hint: hint}
	}
	switch {
	case r.Spec.Workspace == nil:
		return no(jobs.KindUsage, "berth logs "+short, "has no workspace: there is nothing to review")
	case r.Spec.Parent != "":
		return no(jobs.KindUsage, "berth review show "+jobs.Short(r.Spec.Parent), "was submitted by the task of another job, whose result is reviewed")
	case !jobs.StateOf(r).Final() || a == nil:
		return no(jobs.KindUsage, "berth wait "+short, "has not ended: it is "+string(jobs.StateOf(r)))
	case a.Result() == nil:
		return no(jobs.KindNotFound, "berth collect "+short, "has no result yet")
	case !a.Result().Changed():
		return no(jobs.KindUsage, "berth logs "+short, "changed nothing: there is nothing to review")
	case r.Spec.Workspace.Copy:
		return no(jobs.KindUsage, "review it there", "was submitted on "+r.Spec.Host+", which has its repository")
	case !r.BranchHere():
		return no(jobs.KindInfra, "berth collect "+short, "has a result, and its branch is not in the repository yet")
	}
	return nil
}

// Review says what there is to decide of a job. onto names the target branch; "" is that
// of the last verdict, else the branch that the task started from.
func (e *Engine) Review(ctx context.Context, rec *jobs.Record, onto string) (rv *Review, err error) {
	err = e.reviewed(ctx, rec, onto, func(r *Review, _ *under) error {
		rv = r
		return nil
	})
	return rv, err
}

// ReviewFiles lists what the merge changes in the target: what to look at first comes
// first.
func (e *Engine) ReviewFiles(ctx context.Context, rec *jobs.Record, onto string) (rv *Review, files []ReviewFile, err error) {
	err = e.reviewed(ctx, rec, onto, func(r *Review, _ *under) error {
		rv = r
		files, _, err = changesOfAll(ctx, r)
		return err
	})
	return rv, files, err
}

// ReviewDiff does the same, and then writes the patch in that order. It is git's own
// text: what a file says may drive a terminal.
func (e *Engine) ReviewDiff(ctx context.Context, rec *jobs.Record, onto string, first func(*Review, []ReviewFile) error, w io.Writer) error {
	return e.reviewed(ctx, rec, onto, func(r *Review, _ *under) error {
		files, order, err := changesOfAll(ctx, r)
		if err != nil {
			return err
		}
		if err := first(r, files); err != nil {
			return err
		}
		for i, p := range r.All() {
			if len(rec.Spec.Further) > 0 { // git takes such a line for a comment
				if _, err := fmt.Fprintf(w, "workspace %s: %s onto %s\n", p.Repository(), p.Branch(), p.Target()); err != nil {
					return err
				}
			}
			if err := p.under.Patch(ctx, p.shownOnto(), p.shownTree(), order[i], w); err != nil {
				return err
			}
		}
		for _, p := range r.All() {
			if p.Tree == "" {
				continue
			}
			if err := store.SetShown(rec.Dir, p.Tree); err != nil {
				return err
			}
		}
		return nil
	})
}

// Repository says for people which one this is about: its name, and where it is.
func (r *Review) Repository() string { return titleOf(r.part.Spec.Workspace) }

// Branch is the branch of the result there.
func (r *Review) Branch() string { return r.part.Spec.Workspace.Branch }

// titleOf names a workspace for people.
func titleOf(w *jobs.WorkspaceSpec) string {
	return jobs.Printable(strings.TrimPrefix(w.Name+" "+cmp.Or(w.Repo, w.GitDir), " "))
}

// changesOfAll are the changes in all workspaces, and for each what to show first.
func changesOfAll(ctx context.Context, r *Review) (out []ReviewFile, first [][]workspace.Path, err error) {
	for _, p := range r.All() {
		files, order, err := changesOf(ctx, p, p.under)
		if err != nil {
			return nil, nil, err
		}
		for i := range files {
			files[i].Workspace = p.Workspace
		}
		out, first = append(out, files...), append(first, order)
	}
	return out, first, nil
}

// shownOnto and shownTree are what is compared: where there is no tree of the merge, the
// result with its base.
func (r *Review) shownOnto() string {
	if r.Tree == "" {
		return r.Base
	}
	return r.Onto
}

func (r *Review) shownTree() string { return cmp.Or(r.Tree, r.Commit) }

func changesOf(ctx context.Context, r *Review, u *under) (out []ReviewFile, first []workspace.Path, err error) {
	changes, err := u.Changes(ctx, r.shownOnto(), r.shownTree())
	if err != nil {
		return nil, nil, err
	}
	scope, err := workspace.ParseScope(r.part.Spec.Workspace.Scope)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range review.Files(changes) {
		one := ReviewFile{Path: f.Path.Printable(), Status: string(f.Status), Insertions: f.Insertions, Deletions: f.Deletions, Binary: f.Binary,
			Why: f.Why, Test: f.Test, OutOfScope: !scope.Covers(string(f.Path)) || f.OldPath != "" && !scope.Covers(string(f.OldPath))}
		if f.OldPath != "" {
			one.Path = f.OldPath.Printable() + " -> " + one.Path
		}
		if len(f.Why) > 0 {
			first = append(first, f.Path)
		}
		out = append(out, one)
	}
	return out, first, nil
}

// reviewed settles what there is to decide, and calls do while the trees are there.
func (e *Engine) reviewed(ctx context.Context, rec *jobs.Record, onto string, do func(*Review, *under) error) (err error) {
	if err := reviewable(rec); err != nil {
		return err
	}
	rs, err := store.LoadReviews(rec.Dir)
	if err != nil {
		return err
	}
	var all []*Review
	for _, part := range rec.ChangedParts() {
		w := part.Spec.Workspace
		r := &Review{Record: rec, part: part, Workspace: w.Name, Base: w.Base, Commit: part.Current().Result().Commit}
		r.Reviews = rs.Of(r.Workspace)
		r.under = &under{Repo: e.repoOf(&part.Spec)}
		if r.under.Borrowed, err = e.git.Borrow(ctx, part.Current().Dir, r.under.Src); err != nil {
			return ofReview(r, repoError(err))
		}
		defer func() { err = errors.Join(err, r.under.Close()) }()
		if err := r.settle(ctx, onto); err != nil {
			return ofReview(r, repoError(err))
		}
		all = append(all, r)
	}
	r := all[0]
	r.Further = all[1:]
	r.together()
	return repoError(do(r, r.under))
}

// settle settles target, tree and state of one workspace.
func (r *Review) settle(ctx context.Context, onto string) error {
	refs, err := r.under.Branches(ctx)
	if err != nil {
		return err
	}
	if refs, err = asSent(r.part, refs, onto); err != nil {
		return err
	}
	if err := r.aim(ctx, r.under, refs, onto); err != nil {
		return err
	}
	r.State = stateOfReview(r.part, r.Reviews, refs)
	return nil
}

// together makes the state of the first one that of all.
func (r *Review) together() {
	if len(r.Record.Spec.Further) == 0 {
		return
	}
	had := true
	for _, p := range r.All() {
		if had = had && p.has; p.State == ReviewStale {
			r.State = ReviewStale
		}
	}
	if had {
		r.Problem = &jobs.Error{Kind: jobs.KindUsage, Msg: "the targets have the result of job " + jobs.Short(r.Record.Spec.ID) + " already"}
	}
}

// ofReview says of which repository an error is, where there are several.
func ofReview(r *Review, err error) error {
	if err == nil || len(r.Record.Spec.Further) == 0 {
		return err
	}
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: "workspace " + r.Repository(), Err: err, Hint: jobs.HintOf(err)}
}

// asSent are the branches by which an imported review is decided: its target is the
// author's, as that was, and not the branch of that name in this repository. The record
// is that of one workspace.
func asSent(rec *jobs.Record, refs map[string]string, onto string) (map[string]string, error) {
	if rec.Sent == nil {
		return refs, nil
	}
	sent := rec.Sent.Of(rec.Spec.Workspace.Name)
	if onto != "" && headRefs+strings.TrimPrefix(onto, headRefs) != sent.Ref {
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  "an imported review is for " + strings.TrimPrefix(sent.Ref, headRefs) + " as its author has it",
			Hint: "its author exports it for another branch: berth review export --onto BRANCH"}
	}
	refs = maps.Clone(refs)
	refs[sent.Ref] = sent.Onto
	return refs, nil
}

// own refuses what only the job's author can do, on the machine that has the job.
func own(rec *jobs.Record, hint string) error {
	if rec.Sent == nil {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("job %s is not yours: its review was imported from %s on %s", jobs.Short(rec.Spec.ID),
		rec.Sent.By, rec.Sent.Host), Hint: hint}
}

// aim settles target and tree.
func (r *Review) aim(ctx context.Context, u *under, refs map[string]string, onto string) error {
	w, short := r.part.Spec.Workspace, jobs.Short(r.Record.Spec.ID)
	if r.Ref = targetOf(r.part, r.Reviews); onto != "" {
		r.Ref = headRefs + strings.TrimPrefix(onto, headRefs)
	}
	if r.Ref == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " started from a commit that no branch was named for",
			Hint: "--onto BRANCH names the one that it is for"}
	}
	if err := u.CheckRef(ctx, r.Ref); err != nil {
		return err
	}
	if r.Onto = refs[r.Ref]; r.Onto == "" {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no branch %s in %s", r.Target(), w.GitDir),
			Hint: "--onto BRANCH names another one"}
	}
	if r.Ref == headRefs+w.Branch {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "branch " + r.Target() + " is the result itself", Hint: "--onto BRANCH names another one"}
	}
	problem := func(hint, format string, a ...any) {
		if r.Problem == nil {
			r.Problem = &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, a...), Hint: hint}
		}
	}
	if tip := refs[headRefs+w.Branch]; tip == "" {
		problem("berth collect "+short+" brings it back, where it was deleted by mistake", "branch %s is not there any more", w.Branch)
	} else if tip != r.Commit {
		problem("git log "+w.Branch+" shows it; git branch -f "+w.Branch+" "+r.Commit+" puts the result back",
			"branch %s is at %.12s, and the result of job %s is %.12s: it was changed after the job", w.Branch, tip, short, r.Commit)
	}
	in, err := u.Contains(ctx, r.Commit, r.Onto)
	if err != nil {
		return err
	}
	another := func() {
		if r.Record.Sent == nil {
			return
		}
		if sent := r.Record.Sent.Of(r.Workspace); r.Tree != sent.Tree {
			problem("ask its author for another one: berth review export",
				"the merge of job %s makes tree %.12s here, and %.12s for its author", short,
				cmp.Or(r.Tree, "none: conflict"), sent.Tree)
		}
	}
	if in && len(r.Record.Spec.Further) > 0 { // a merge of all was ended between two of them
		r.has = true
		r.Tree, err = review.Tree(ctx, u.Borrowed, r.Onto)
		another()
		return err
	}
	if in {
		problem("", "%s has the result of job %s already", r.Target(), short)
		return nil
	}
	o, err := review.TreeOn(ctx, u.Borrowed, r.Base, r.Onto, r.Commit)
	if err != nil {
		return err
	}
	r.Tree = o.Tree
	for _, p := range o.Conflicts {
		r.Conflicts = append(r.Conflicts, p.Printable())
	}
	another()
	if r.Tree == "" {
		hint := "merge it by hand, or have it made again from there: berth retry " + short + " --base " + shellescape.Quote(r.Target())
		if r.Workspace != "" { // another try starts that from where this one did
			hint = "merge it by hand, or submit the task again"
		}
		problem(hint, "the result of job %s conflicts with %s: %s", short, r.Target(),
			strings.Join(firstOf(r.Conflicts, 10), ", "))
	}
	return nil
}

func firstOf(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

// targetOf is the full name of the branch that a result is for; "" is not known.
func targetOf(rec *jobs.Record, rs *jobs.Reviews) string {
	if v := rs.Verdict(); v != nil && v.Ref != "" {
		return v.Ref
	}
	if b := rec.Spec.Workspace.BaseRef; b != "" {
		return headRefs + b
	}
	return ""
}

// stateOfReview is how far it is, by the records and the branches alone.
func stateOfReview(rec *jobs.Record, rs *jobs.Reviews, refs map[string]string) ReviewState {
	commit := rec.Current().Result().Commit
	v := rs.Verdict()
	switch {
	case rs.IsMerged(commit) != nil:
		return ReviewMerged
	case rs.Unfinished() != nil:
		return ReviewUnfinished
	case v == nil:
		return ReviewWaiting
	case v.Verdict == jobs.VerdictReject:
		return ReviewRejected
	case v.Commit != commit || refs[v.Ref] != v.Onto || refs[headRefs+rec.Spec.Workspace.Branch] != commit:
		return ReviewStale
	}
	return ReviewApproved
}

// ApproveCommand is the command that approves the result of a job, with what has to be said
// for it.
func ApproveCommand(rec *jobs.Record) string {
	s := "berth review approve "
	if len(rec.Spec.Done) == 0 || rec.Sent != nil {
		s += "--unchecked "
	}
	if OutsideText(rec) != "" {
		s += outOfScope
	}
	return s + jobs.Short(rec.Spec.ID)
}

// outOfScope is the word that a command needs which approves what is out of scope.
const outOfScope = "--out-of-scope "

// OutsideText names in one line what a result has changed outside of its scope, by its
// record; "" is nothing.
func OutsideText(rec *jobs.Record) string { return outsideText(rec.Current().Result().Outside()) }

func outsideText(list []string) string {
	var shown []string
	for _, p := range list {
		shown = append(shown, jobs.Printable(p))
	}
	switch {
	case len(list) == 0:
		return ""
	case len(list) == 1:
		return "1 path out of scope: " + shown[0]
	case len(list) > workspace.MostRecorded: // the last says how many more there are
		return fmt.Sprintf("more than %d paths out of scope: %s", workspace.MostRecorded, strings.Join(shown[:3], ", "))
	}
	return fmt.Sprintf("%d paths out of scope: %s", len(list), strings.Join(firstOf(shown, 3), ", "))
}

// Unapproved reports whether the result has changed what is outside of its scope, and the
// verdict does not say that this is approved.
func Unapproved(rec *jobs.Record, v *jobs.ReviewVerdict) bool {
	return v != nil && !v.OutOfScope && OutsideText(rec) != ""
}

// withinScope refuses what is outside of the scope and was not approved knowingly.
func withinScope(rec *jobs.Record, outside string, knowingly bool) error {
	if outside == "" || knowingly {
		return nil
	}
	short := jobs.Short(rec.Spec.ID)
	approve := ApproveCommand(rec)
	if !strings.Contains(approve, outOfScope) {
		approve = strings.TrimSuffix(approve, short) + outOfScope + short
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + ": " + outside,
		Hint: "berth review diff " + short + ", and if that is meant: " + approve}
}

// outsideOf is what a result has changed outside of its scope. What came from another user
// is looked at, as its record is that one's words.
func outsideOf(ctx context.Context, r *Review) (string, error) {
	if r.Record.Sent == nil {
		return OutsideText(r.Record), nil
	}
	var list []string
	for _, p := range r.All() {
		files, _, err := changesOf(ctx, p, p.under)
		if err != nil {
			return "", err
		}
		for _, f := range files {
			if f.OutOfScope && p.Workspace != "" {
				f.Path = p.Workspace + ": " + f.Path
			}
			if f.OutOfScope {
				list = append(list, f.Path)
			}
		}
	}
	return outsideText(list), nil
}

// ApproveOptions are how a person approves.
type ApproveOptions struct {
	Onto string // the target branch, as for [Engine.Review]
	Note string
	// Unchecked approves a tree on which no review run has succeeded.
	Unchecked bool
	// OutOfScope approves a result that has changed what the task's scope does not cover.
	OutOfScope bool
	// Confirm is asked before the verdict is written; an error is a no. Nil is yes.
	Confirm func(*Review) error
}

// Approve records that the tree which the target would have is approved.
func (e *Engine) Approve(ctx context.Context, rec *jobs.Record, o ApproveOptions) (*Review, error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	var out *Review
	err := e.reviewed(ctx, rec, o.Onto, func(r *Review, u *under) error {
		out = r
		if err := undecided(ctx, r); err != nil {
			return err
		}
		if err := r.Whole(); err != nil {
			return err
		}
		short := jobs.Short(rec.Spec.ID)
		run := r.Run()
		checked := run != nil && run.OK
		if !checked && !o.Unchecked {
			what, instead := "no review run was made on this tree", "berth review run "+short+", or approve it without: --unchecked"
			switch {
			case run != nil:
				what = "the review run on this tree failed"
			case len(rec.Spec.Done) == 0:
				what = "it has no done commands, so nothing was run on this tree"
				instead = "berth review diff " + short + "; " + ApproveCommand(rec)
			}
			if rec.Sent != nil {
				w := rec.Spec.Workspace
				return &jobs.Error{Kind: jobs.KindUsage,
					Msg: fmt.Sprintf("job %s: nothing of its tree was run here: its review was imported", short),
					Hint: "run its checks yourself: berth run --workspace " + cmp.Or(w.Repo, w.GitDir) +
						" --base " + w.Branch + " -- COMMAND; then approve it with --unchecked"}
			}
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("job %s: %s (%.12s)", short, what, r.Tree),
				Hint: instead}
		}
		outside, err := outsideOf(ctx, r)
		if err == nil {
			err = withinScope(rec, outside, o.OutOfScope)
		}
		if err != nil {
			return err
		}
		r.Outside = outside
		if o.Confirm != nil {
			if err := o.Confirm(r); err != nil {
				return err
			}
		}
		v := e.verdict(ctx, r, u, jobs.VerdictApprove, o.Note)
		v.Unchecked, v.OutOfScope = !checked, outside != ""
		return r.decide(v)
	})
	return out, err
}

// Reject records that the result is not wanted as it is; note says why.
func (e *Engine) Reject(ctx context.Context, rec *jobs.Record, note string) (*Review, error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	var out *Review
	err := e.reviewed(ctx, rec, "", func(r *Review, u *under) error {
		out = r
		if err := undecided(ctx, r); err != nil {
			return err
		}
		return r.decide(e.verdict(ctx, r, u, jobs.VerdictReject, note))
	})
	return out, err
}

func (r *Review) decide(v jobs.ReviewVerdict) error {
	n, err := store.AddVerdict(r.Record.Dir, v)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the verdict", Err: err}
	}
	v.N = n
	for _, p := range r.All() {
		p.Reviews.Verdicts = append(p.Reviews.Verdicts, v.Of(p.Workspace))
		if p.State = ReviewApproved; v.Verdict == jobs.VerdictReject {
			p.State = ReviewRejected
		}
	}
	return nil
}

// undecided refuses another verdict on what is merged, or is being merged.
func undecided(ctx context.Context, r *Review) error {
	short := jobs.Short(r.Record.Spec.ID)
	if m := r.Reviews.IsMerged(r.Commit); m != nil {
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg: fmt.Sprintf("job %s is merged: %s has it since %s", short, strings.TrimPrefix(m.Ref, headRefs), m.Time.Format("2006-01-02"))}
	}
	if r.Reviews.Unfinished() == nil {
		return nil
	}
	for _, p := range r.All() {
		m := p.Reviews.Unfinished()
		tip, err := p.under.Tip(ctx, m.Ref)
		if err != nil {
			return err
		}
		if tip != m.Old && !has(ctx, p.under.Repo, m.New, tip) {
			return nil // the target moved elsewhere: that merge cannot go on
		}
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "a merge of job " + short + " was begun and has no end",
		Hint: "berth review merge " + short + " goes on with it"}
}

// has reports whether a commit is known to be in another one.
func has(ctx context.Context, r *review.Repo, commit, in string) bool {
	if in == "" {
		return false
	}
	ok, err := r.Contains(ctx, commit, in)
	return ok && err == nil
}

func (e *Engine) verdict(ctx context.Context, r *Review, u *under, word, note string) jobs.ReviewVerdict {
	host, _ := os.Hostname()
	v := jobs.ReviewVerdict{Version: 1, Verdict: word, Workspace: r.Workspace, Commit: r.Commit, Tree: r.Tree, Onto: r.Onto, Ref: r.Ref,
		By: identity().User, UID: os.Getuid(), Host: host, Git: u.known(ctx), Time: e.Now().UTC(), Note: note, Level: r.Record.Spec.Level}
	for _, p := range r.Further {
		v.Further = append(v.Further, jobs.ReviewTree{Workspace: p.Workspace, Commit: p.Commit, Tree: p.Tree, Onto: p.Onto, Ref: p.Ref})
	}
	return v
}

// jobVariable is what commands of a job have in their environment.
const jobVariable = "BERTH_JOB_ID"

// aside refuses decisions on a review below a process of a job's.
func (e *Engine) aside() error { return e.OutsideJobs("decides on no review") }

// OutsideJobs refuses what a person decides where this runs below a process of a job's; does says
// what a job does not do. A task without a container has its user's rights and can get
// around this: it stops accidents.
func (e *Engine) OutsideJobs(does string) error {
	id, _ := e.Getenv(jobVariable)
	below := id != ""
	if !below {
		id, below = ancestors(os.Getppid())
	}
	if !below {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindAuth, Msg: "this runs below job " + jobs.Short(jobs.Printable(id)) + ", and a job " + does,
		Hint: "decide in a shell of your own"}
}

// ancestors looks for the variable in the processes above.
func ancestors(pid int) (id string, below bool) {
	for range 100 {
		if pid <= 1 {
			return "", false
		}
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // another user's is none of this user's jobs
		for kv := range strings.SplitSeq(string(env), "\x00") {
			if v, ok := strings.CutPrefix(kv, jobVariable+"="); ok {
				return v, true
			}
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			return "", false
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(f) < 2 {
			return "", false
		}
		if pid, err = strconv.Atoi(f[1]); err != nil {
			return "", false
		}
	}
	return "", false
}
