package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"berth/internal/config/sitefile"
	"berth/internal/sys/failpoint"
	"berth/internal/workspace"
	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"
)

// MergeOptions are how an approved result is merged.
type MergeOptions struct {
	// NoFF makes a merge commit where the target could become the result itself.
	NoFF bool
	// Other says, for people, what of the user's demands that another account than the
	// author's has approved; "" is nothing. The site's file may demand it as well.
	Other string
}

// MergeReview moves the target to what the last verdict approved, and returns the
// journal of that. A merge that was killed goes on. One that is done is done: it is no
// error to say it again.
func (e *Engine) MergeReview(ctx context.Context, rec *jobs.Record, o MergeOptions) (*jobs.ReviewMerge, error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	if err := own(rec, "berth review export "+jobs.Short(rec.Spec.ID)+" FILE writes your verdict, which its author imports"); err != nil {
		return nil, err
	}
	if err := reviewable(rec); err != nil {
		return nil, err
	}
	for _, p := range rec.Parts() {
		workspace.Abandoned(p.Current().Dir, false) // of a merge that was killed
	}
	rs, err := store.LoadReviews(rec.Dir)
	if err != nil {
		return nil, err
	}
	m, err := e.goOnMerging(ctx, rec, rs)
	if m != nil || err != nil {
		return m, err
	}
	short, v := jobs.Short(rec.Spec.ID), rs.Verdict()
	switch {
	case v == nil:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " is not approved",
			Hint: "berth review show " + short + "; " + ApproveCommand(rec)}
	case v.Verdict == jobs.VerdictReject:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " was rejected by " + v.By + note(v.Note),
			Hint: ApproveCommand(rec) + ", if it is wanted after all"}
	}
	if err := withinScope(rec, OutsideText(rec), v.OutOfScope); err != nil {
		return nil, err
	}
	err = e.reviewed(ctx, rec, "", func(r *Review, _ *under) error { // the target is the verdict's
		if err := e.another(ctx, r, v, o.Other); err != nil {
			return err
		}
		m, err = e.beginMerge(ctx, r, v, o)
		return err
	})
	return m, err
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return ": " + jobs.Printable(text)
}

// goOnMerging returns the merge that is done, or goes on with the one that was killed;
// nil is that there is none.
func (e *Engine) goOnMerging(ctx context.Context, rec *jobs.Record, rs *jobs.Reviews) (*jobs.ReviewMerge, error) {
	first := rec.ChangedParts()[0]
	if rs.Of(first.Spec.Workspace.Name).IsMerged(first.Current().Result().Commit) != nil {
		for i := range rs.Merges {
			if _, done := rs.Merged[rs.Merges[i].N]; done {
				return &rs.Merges[i], nil
			}
		}
	}
	m := rs.Unfinished()
	if m == nil {
		return nil, nil
	}
	return m, repoError(e.finishMerge(ctx, rec, m, true))
}

// another refuses the approval of the author's own account where a site or the user
// demands that of another one. What a verdict says of its account is a statement: it is
// not signed.
func (e *Engine) another(ctx context.Context, r *Review, v *jobs.ReviewVerdict, demand string) error {
	site, err := sitefile.Read()
	if err != nil || demand == "" && !site.OtherReviews() {
		return err
	}
	s, short := &r.Record.Spec, jobs.Short(r.Record.Spec.ID)
	why, mine := "", ""
	for _, p := range r.All() { // each repository may know them by another one
		if known := p.under.known(ctx); mine == "" || address(known) == address(v.Git) {
			mine = known
		}
	}
	switch {
	case v.Imported == nil:
		why = fmt.Sprintf("%s on %s has approved it, here and with the author's own account", v.By, v.Host)
	case v.By == s.User || v.By == identity().User:
		why = fmt.Sprintf("%s on %s has approved it, and its author has the same name (%s on %s)", v.By, v.Host, s.User, s.Host)
	case address(v.Git) != "" && address(v.Git) == address(mine):
		why = fmt.Sprintf("%s on %s has approved it, and git knows both by the address %s", v.By, v.Host, address(mine))
	default:
		return nil
	}
	msg, hint := "job "+short+" is not merged: "+why, "berth review export "+short+" FILE; the other one imports, "+
		"approves and exports it; berth review import FILE"
	if site.OtherReviews() {
		return site.RefuseOwnReview(msg, hint)
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: msg + ", and another account has to: " + demand, Hint: hint}
}

// address is that of "Name <address>", in lower case.
func address(git string) string {
	_, rest, _ := strings.Cut(git, "<")
	return strings.ToLower(strings.TrimSuffix(rest, ">"))
}

// same refuses what is not what was approved.
func same(r *Review, v *jobs.ReviewVerdict) error {
	short := jobs.Short(r.Record.Spec.ID)
	again := "berth review run " + short + ", and approve it"
	no := func(format string, a ...any) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, a...), Hint: again}
	}
	switch {
	case v.Commit != r.Commit:
		return no("job %s: commit %.12s was approved, and the result is %.12s", short, v.Commit, r.Commit)
	case r.Problem != nil && v.Onto != r.Onto:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s moved from %.12s to %.12s", r.Target(), v.Onto, r.Onto),
			Err: r.Problem, Hint: jobs.HintOf(r.Problem)}
	case r.Problem != nil:
		return r.Problem
	case v.Tree == r.Tree && v.Tree != "":
		return nil
	case v.Onto != r.Onto:
		return no("%s moved from %.12s to %.12s: the result is another tree", r.Target(), v.Onto, r.Onto)
	}
	return no("job %s: tree %.12s was approved, and the merge makes %.12s", short, v.Tree, r.Tree)
}

// beginMerge makes the commits, writes the journal and moves the targets. Whatever can be
// refused is refused before the journal is there: then nothing is moved in any repository.
func (e *Engine) beginMerge(ctx context.Context, r *Review, v *jobs.ReviewVerdict, o MergeOptions) (*jobs.ReviewMerge, error) {
	var m *jobs.ReviewMerge
	for _, p := range r.All() {
		of := v.Of(p.Workspace)
		one, err := e.planMerge(ctx, p, &of, o)
		if err != nil {
			return nil, ofReview(p, repoError(err))
		}
		if m == nil {
			m = one
		} else {
			m.Further = append(m.Further, *one)
		}
	}
	failpoint.Hit("merge.ready")
	won, err := store.SetMerge(r.Record.Dir, v.N, *m)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "write the journal of the merge", Err: err}
	}
	if !won {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "another berth merges this result just now",
			Hint: "berth review merge " + jobs.Short(r.Record.Spec.ID)}
	}
	return m, e.finishMerge(ctx, r.Record, m, false)
}

// planMerge makes the commit of one workspace, and refuses what could not be moved.
func (e *Engine) planMerge(ctx context.Context, r *Review, v *jobs.ReviewVerdict, o MergeOptions) (*jobs.ReviewMerge, error) {
	if err := same(r, v); err != nil {
		return nil, err
	}
	u := r.under
	host, _ := os.Hostname()
	m := &jobs.ReviewMerge{Version: 1, Workspace: r.Workspace, Repo: u.Src.Repo, Ref: r.Ref, Old: r.Onto, New: r.Commit, Tree: r.Tree,
		By: identity().User, Host: host, Time: e.Now().UTC(), N: v.N}
	if r.has { // by an earlier merge, which could not end
		m.New = r.Onto
		return m, nil
	}
	var err error
	if m.Worktree, err = u.Where(ctx, r.Ref); err != nil {
		return nil, err
	}
	if !r.FastForward() || o.NoFF {
		who := e.me(ctx, u.Repo)
		if m.New, err = u.Commit(ctx, u.Borrowed, r.Tree, r.Onto, r.Commit, e.mergeMessage(r, v), who, 0); err != nil {
			return nil, err
		}
	}
	if tree, err := review.Tree(ctx, u.Borrowed, m.New); err != nil || tree != v.Tree {
		return nil, errors.Join(&jobs.Error{Kind: jobs.KindInfra,
			Msg: fmt.Sprintf("commit %.12s has the tree %.12s, and %.12s was approved", m.New, tree, v.Tree)}, err)
	}
	if m.Worktree == "" {
		return m, nil
	}
	return m, u.Ready(ctx, e.moveOf(ctx, u.Repo, r.Record, m))
}

// mergeMessage is that of the merge commit. What stands in it is berth's own and the
// user's: the result's messages are not quoted.
func (e *Engine) mergeMessage(r *Review, v *jobs.ReviewVerdict) string {
	s := &r.Record.Spec
	return fmt.Sprintf("Merge branch '%s' into %s\n\n%s\n\nBerth-Job: %s\nReviewed-by: %s\n",
		s.Workspace.Branch, r.Target(), jobs.Printable(s.Name), s.ID, jobs.Printable(v.By))
}

// me is the user, for git.
func (e *Engine) me(ctx context.Context, u *review.Repo) review.Person {
	host, _ := os.Hostname()
	name := identity().User
	return u.Me(ctx, review.Person{Name: name, Email: name + "@" + host})
}

func (e *Engine) moveOf(ctx context.Context, u *review.Repo, rec *jobs.Record, m *jobs.ReviewMerge) review.Move {
	return review.Move{Ref: m.Ref, Old: m.Old, New: m.New, Worktree: m.Worktree, Who: e.me(ctx, u),
		Message: "berth review merge " + jobs.Short(rec.Spec.ID)}
}

// step is the move of one workspace's target.
type step struct {
	m    *jobs.ReviewMerge
	repo *review.Repo
	move review.Move
	name string // for people
	done bool
}

// finishMerge goes from the journal to the end. again is that it may have been begun.
// All targets are looked at before one is moved: where one is elsewhere, no other moves.
// An error says which have moved.
func (e *Engine) finishMerge(ctx context.Context, rec *jobs.Record, m *jobs.ReviewMerge, again bool) error {
	steps, err := e.stepsOf(ctx, rec, m)
	if err != nil {
		return err
	}
	at, why := 0, error(nil)
	for i := range steps {
		if err := e.whereIs(ctx, rec, &steps[i]); err != nil && why == nil {
			at, why = i, err
		}
	}
	if why != nil {
		// Another merge begins where the files are what the branch has.
		for i := range steps {
			if s := &steps[i]; i != at && !s.done && s.move.Worktree != "" {
				if _, err := s.repo.PutBack(ctx, s.move); err != nil {
					why = errors.Join(why, err)
				}
			}
		}
		return halted(rec, steps, at, repoError(why))
	}
	for i := range steps {
		s := &steps[i]
		if s.done {
			continue
		}
		if err := e.moveOne(ctx, rec, s, again); err != nil {
			return halted(rec, steps, i, repoError(err))
		}
		s.done = true
		failpoint.Hit("merge.moved")
	}
	return e.endMerge(rec, m)
}

// stepsOf are the moves of a journal, in its order.
func (e *Engine) stepsOf(ctx context.Context, rec *jobs.Record, m *jobs.ReviewMerge) (steps []step, err error) {
	for _, one := range m.All() {
		at := slices.IndexFunc(rec.Spec.Workspaces(), func(w *jobs.WorkspaceSpec) bool { return w.Name == one.Workspace })
		if at < 0 {
			return nil, &jobs.Error{Kind: jobs.KindInfra,
				Msg: "the journal of the merge names a workspace that the job does not have: " + jobs.Printable(one.Workspace)}
		}
		part := rec.Parts()[at]
		s := step{m: one, repo: e.repoOf(&part.Spec), name: cmp.Or(one.Workspace, "the first workspace")}
		s.move = e.moveOf(ctx, s.repo, rec, one)
		steps = append(steps, s)
	}
	return steps, nil
}

// whereIs finds out where a target is: a commit that is neither the old nor the new one is
// an error.
func (e *Engine) whereIs(ctx context.Context, rec *jobs.Record, s *step) error {
	tip, err := s.repo.Tip(ctx, s.m.Ref)
	if err != nil {
		return err
	}
	s.done = tip == s.m.New || tip != s.m.Old && has(ctx, s.repo, s.m.New, tip)
	if !s.done && tip != s.m.Old {
		return e.movedElsewhere(ctx, s.repo, rec, s.move, tip)
	}
	return nil
}

// halted says how far a merge of several workspaces has come.
func halted(rec *jobs.Record, steps []step, at int, err error) error {
	if len(steps) < 2 {
		return err
	}
	var moved, not []string
	for i := range steps {
		if steps[i].done {
			moved = append(moved, steps[i].name)
		} else {
			not = append(not, steps[i].name)
		}
	}
	msg := steps[at].name + ": " + err.Error() + "; merged: " + cmp.Or(strings.Join(moved, ", "), "none") + "; not merged: " + strings.Join(not, ", ")
	hint := jobs.HintOf(err)
	if len(moved) > 0 && hint == "" {
		hint = "berth review merge " + jobs.Short(rec.Spec.ID) + " goes on, once that is out of the way"
	}
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: msg, Hint: hint}
}

// moveOne moves the target of one workspace, with its work tree.
func (e *Engine) moveOne(ctx context.Context, rec *jobs.Record, s *step, again bool) (err error) {
	u, v := s.repo, s.move
	if again {
		if v.Worktree, err = u.Where(ctx, s.m.Ref); err != nil {
			return err
		}
	}
	switch {
	case v.Worktree == "":
	case !again:
		err = u.Files(ctx, v)
	case v.Worktree == s.m.Worktree:
		err = u.Resume(ctx, v)
	default: // it was checked out since, or elsewhere
		if err = u.Ready(ctx, v); err == nil {
			err = u.Files(ctx, v)
		}
	}
	if err != nil {
		return err
	}
	failpoint.Hit("merge.files")
	if err := u.Point(ctx, v); err != nil {
		if !errors.Is(err, review.ErrMoved) {
			return err
		}
		tip, err := u.Tip(ctx, s.m.Ref)
		if err != nil {
			return err
		}
		return e.movedElsewhere(ctx, u, rec, v, tip)
	}
	return nil
}

func (e *Engine) endMerge(rec *jobs.Record, m *jobs.ReviewMerge) error {
	if _, err := store.SetMerged(rec.Dir, m.N, jobs.ReviewMerged{Version: 1, Ref: m.Ref, New: m.New, Time: e.Now().UTC()}); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the branch is merged, and that could not be recorded", Err: err,
			Hint: "berth review merge " + jobs.Short(rec.Spec.ID) + " records it"}
	}
	return nil
}

// movedElsewhere says that the target is neither what it was nor what it was to be. What
// was made of the work tree before is put back where it was not touched since.
func (e *Engine) movedElsewhere(ctx context.Context, u *review.Repo, rec *jobs.Record, v review.Move, tip string) error {
	msg := fmt.Sprintf("%s was to move from %.12s to %.12s, and is at %.12s", strings.TrimPrefix(v.Ref, headRefs), v.Old, v.New, tip)
	if tip == "" {
		msg = fmt.Sprintf("%s was to move from %.12s to %.12s, and is not there any more", strings.TrimPrefix(v.Ref, headRefs), v.Old, v.New)
	}
	if v.Worktree != "" {
		switch back, err := u.PutBack(ctx, v); {
		case err != nil:
			msg += "; index and files of " + v.Worktree + " could not be looked at: " + err.Error()
		case back:
			msg += "; index and files of " + v.Worktree + " were put back"
		}
	}
	short := jobs.Short(rec.Spec.ID)
	return &jobs.Error{Kind: jobs.KindUsage, Msg: msg, Hint: "berth review run " + short + ", and approve it again"}
}
