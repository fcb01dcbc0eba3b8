package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/jobs"
)

// pushFor bounds the time in which one branch is pushed.
const pushFor = time.Minute

// Pushed is what became of the push of a merged branch.
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
	var out []Pushed
	for _, s := range steps {
		p := Pushed{Workspace: s.m.Workspace, Repo: s.m.Repo, Remote: remote, Ref: s.m.Ref, Commit: s.m.New}
		one, cancel := context.WithTimeout(ctx, pushFor)
		switch err := s.repo.Push(one, remote, s.m.New, s.m.Ref); {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			p.Problem = fmt.Sprintf("it was not done within %s", pushFor)
		default:
			p.Problem = jobs.Printable(err.Error())
		}
		cancel()
		if p.Problem != "" {
			p.Hint = fmt.Sprintf("git -C %s push %s %s, or berth review merge --push %s %s again", cmp.Or(s.repo.Src.Top, p.Repo), remote, strings.TrimPrefix(p.Ref, headRefs),
				remote, jobs.Short(rec.Spec.ID))
		}
		out = append(out, p)
	}
	return out, nil
}
