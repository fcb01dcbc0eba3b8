package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"

	"al.essio.dev/pkg/shellescape"
)

// pushFor bounds the time in which one branch is pushed.
const pushFor = time.Minute

// Pushed is what became of the push of a branch.
type Pushed struct {
	Workspace string `json:"workspace,omitempty"` // its name; "" is the first one
	Repo      string `json:"repo"`                // the git directory
	Remote    string `json:"remote"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit"`
	// Problem is why the remote does not have it, and Hint what to do; "" is that it has.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// PushMerged pushes what a merge has moved to a remote of the user's repositories, with
// the user's own means, see [review.Repo.Push]. A failure is in what it returns: what is
// merged stays merged.
func (e *Engine) PushMerged(ctx context.Context, rec *jobs.Record, m *jobs.ReviewMerge, remote string) ([]Pushed, error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	steps, err := e.stepsOf(ctx, rec, m)
	if err != nil {
		return nil, err
	}
	short := jobs.Short(rec.Spec.ID)
	var out []Pushed
	for _, s := range steps {
		p := Pushed{Workspace: s.m.Workspace, Repo: s.m.Repo, Remote: remote, Ref: s.m.Ref, Commit: s.m.New}
		// A merge that is said again may have been taken back since.
		switch tip, err := s.repo.Tip(ctx, p.Ref); {
		case err != nil:
			p.Problem, p.Hint = jobs.Printable(repoError(err).Error()), "berth review show "+short
		case !has(ctx, s.repo, p.Commit, tip):
			p.Problem, p.Hint = "it does not have the merge any more", "berth review show "+short
		default:
			p = pushOne(ctx, s.repo, p, "berth review merge --push "+remote+" "+short)
		}
		out = append(out, p)
	}
	return out, context.Cause(ctx)
}

// PushBranches pushes the branches of a result that is not merged to a remote of the user's
// repositories, as [Engine.PushMerged] pushes a target. What was rejected, or has changed
// what its task's scope does not cover without an approval, is refused: a server may run
// what a branch brings, such as the files of its CI.
func (e *Engine) PushBranches(ctx context.Context, rec *jobs.Record, remote string) ([]Pushed, error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	short := jobs.Short(rec.Spec.ID)
	if rec.Sent != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " is not yours: its author pushes it",
			Hint: "berth review export " + short + " FILE writes your verdict"}
	}
	if err := reviewable(rec); err != nil {
		return nil, err
	}
	rs, err := store.LoadReviews(rec.Dir)
	if err != nil {
		return nil, err
	}
	v, outside := rs.Verdict(), rec.Current().Result().Outside()
	switch {
	case v != nil && v.Verdict == jobs.VerdictReject:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " was rejected by " + v.By, Hint: "berth review show " + short}
	case len(outside) > 0 && (v == nil || !v.OutOfScope):
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg: fmt.Sprintf("job %s has changed what its scope does not cover, which a server may run (%d, such as %s)",
				short, len(outside), jobs.Printable(outside[0])),
			Hint: "berth review diff " + short + ", and if that is meant: " + ApproveCommand(rec)}
	}
	type one struct {
		repo *review.Repo
		p    Pushed
	}
	var all []one
	for _, part := range rec.ChangedParts() {
		w, repo := part.Spec.Workspace, e.repoOf(&part.Spec)
		p := Pushed{Workspace: w.Name, Repo: w.GitDir, Remote: remote, Ref: headRefs + w.Branch, Commit: part.Current().Result().Commit}
		tip, err := repo.Tip(ctx, p.Ref)
		if err != nil {
			return nil, repoError(err)
		}
		of := p.Commit
		if v != nil {
			of = v.Of(w.Name).Commit
		}
		if tip != p.Commit || of != p.Commit {
			return nil, &jobs.Error{Kind: jobs.KindUsage,
				Msg: fmt.Sprintf("branch %s of %s is at %.12s, and the result of job %s, or what was approved, is %.12s",
					w.Branch, titleOf(w), tip, short, of), Hint: "berth review show " + short}
		}
		all = append(all, one{repo, p})
	}
	var out []Pushed
	for _, o := range all {
		out = append(out, pushOne(ctx, o.repo, o.p, "berth review push "+short+" "+remote))
	}
	return out, context.Cause(ctx)
}

// pushOne pushes one branch; again is how it is said again.
func pushOne(ctx context.Context, repo *review.Repo, p Pushed, again string) Pushed {
	ctx, cancel := context.WithTimeout(ctx, pushFor)
	defer cancel()
	switch err := repo.Push(ctx, p.Remote, p.Commit, p.Ref); {
	case err == nil:
		return p
	case errors.Is(err, context.DeadlineExceeded):
		p.Problem = fmt.Sprintf("it was not done within %s", pushFor)
	default:
		p.Problem = jobs.Printable(err.Error())
	}
	p.Hint = fmt.Sprintf("git -C %s push %s %s, or %s again", shellescape.Quote(cmp.Or(repo.Src.Top, p.Repo)),
		p.Remote, strings.TrimPrefix(p.Ref, headRefs), again)
	return p
}
