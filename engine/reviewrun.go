package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/sitefile"
	"berth/internal/sys/ids"
	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"
)

// RunReview submits a job that runs the done commands of a job again: in the same place,
// from the tree that the target would have and nothing else. [Engine.ReviewRan] records
// how that went.
func (e *Engine) RunReview(ctx context.Context, rec *jobs.Record, onto string) (child *jobs.Record, rv *Review, err error) {
	if err := own(rec, "its checks are the author's words: read them, and run what you trust with berth run --workspace"); err != nil {
		return nil, nil, err
	}
	err = e.reviewed(ctx, rec, onto, func(r *Review, _ *under) error {
		rv = r
		if r.treeless() {
			return r.Whole()
		}
		if len(rec.Spec.Done) == 0 {
			short := jobs.Short(rec.Spec.ID)
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has no done commands: there is nothing to run again",
				Hint: "done = [\"make test\"] in a task file has some; " + ApproveCommand(rec) + " does without"}
		}
		from, lent := map[string]string{}, map[string]string{}
		for _, p := range r.All() {
			if from[p.Workspace] = p.Commit; p.has {
				from[p.Workspace] = p.Onto
			} else if !p.FastForward() {
				var err error
				if from[p.Workspace], lent[p.Workspace], err = p.look(ctx, p.under, p.Tree); err != nil {
					return ofReview(p, err)
				}
			}
		}
		s, err := e.checking(&rec.Spec, from)
		if err != nil {
			return err
		}
		startIn(s, lent)
		child, err = e.Submit(ctx, s, jobs.Task{})
		return err
	})
	return child, rv, err
}

// look makes the commit of a tree for a run alone; the same each time. It is in the git
// directory in, and not in the user's repository: nothing there would name it. Where the
// job runs behind a login host it is in the repository, of which that host has a copy, and
// in is "".
func (r *Review) look(ctx context.Context, u *under, tree string) (commit, in string, err error) {
	name, at := review.Person{Name: "berth", Email: "berth@localhost"}, r.Record.Spec.Created.Unix()
	if r.Record.Spec.Login != nil {
		commit, err = u.Commit(ctx, u.Borrowed, tree, r.Onto, r.Commit, "berth review run\n", name, at)
		return commit, "", err
	}
	if commit, err = u.Made(ctx, u.Borrowed, tree, r.Onto, r.Commit, "berth review run\n", name, at); err != nil {
		return "", "", err
	}
	in = filepath.Join(r.Record.Dir, "review")
	if r.Workspace != "" {
		in += "-" + r.Workspace
	}
	in += ".git"
	if err := u.Lend(ctx, in, commit, r.Onto, r.Commit); err != nil {
		return "", "", fmt.Errorf("store the commit of the run in %q: %w", in, err)
	}
	return commit, in, nil
}

// startIn has a job start from these git directories, by the names of its workspaces; ""
// is the user's repository.
func startIn(s *jobs.Spec, dirs map[string]string) {
	for _, w := range s.Workspaces() {
		if in := dirs[w.Name]; in != "" {
			w.Repo, w.GitDir = in, in
		}
	}
}

// checking is the job that checks a commit: what another one was, but for its task. from
// has the commits of its workspaces by their names; the others are as they were.
func (e *Engine) checking(of *jobs.Spec, from map[string]string) (*jobs.Spec, error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	for _, name := range of.EnvNames {
		if _, ok := e.Getenv(name); !ok {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the job was given the variable " + name + ", which is not set here",
				Hint: "export " + name + ", then repeat"}
		}
	}
	host, _ := os.Hostname()
	name := "review of " + of.Name
	place := of.Place
	place.Credentials, place.Caps, place.Prices = nil, jobs.Caps{}, jobs.Prices{} // checks ask no models
	place.Overlay.Keep = ""
	if p := &place.Network.Phases; p.Verify.Silent() {
		p.Verify = p.Done // the same commands
	}
	s := &jobs.Spec{ID: id, Name: name, Slug: jobs.Slug(name), Command: jobs.Command{Shell: "true"}, Place: place,
		ImageFrom: of.ImageFrom, ImageRef: of.ImageRef, ImageDigest: of.ImageDigest, ImageSum: of.ImageSum, ImageDir: of.ImageDir,
		EnvNames: of.EnvNames, LoginHome: of.LoginHome, Done: of.Done, DoneOver: of.DoneOver, Verifies: true, Results: of.Results,
		Created: e.Now().UTC(), User: identity().User, Host: host}
	w := *of.Workspace
	s.Workspace, s.Further = &w, slices.Clone(of.Further)
	for _, w := range s.Workspaces() {
		w.Base, w.BaseRef, w.Branch, w.Scope = cmp.Or(from[w.Name], w.Base), "", jobs.BranchName(s.Slug, id), nil
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.Hold(&s.Place, false)
	}
	return s, err
}

// ReviewRan records how the job that [Engine.RunReview] has submitted has ended.
func (e *Engine) ReviewRan(rv *Review, child *jobs.Record) (*jobs.ReviewRun, error) {
	state := jobs.StateOf(child)
	if !state.Final() {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + jobs.Short(child.Spec.ID) + " has not ended",
			Hint: "berth wait " + jobs.Short(child.Spec.ID)}
	}
	r := jobs.ReviewRun{Version: 1, Workspace: rv.Workspace, Commit: rv.Commit, Tree: rv.Tree, Onto: rv.Onto,
		Further: rv.further(), Job: child.Spec.ID, State: state, Level: child.Spec.Level,
		Over: runOver(&child.Spec), By: identity().User, Time: e.Now().UTC()}
	if a := child.Current(); a != nil && a.Exit != nil {
		r.Done, r.Reason = a.Exit.Done, a.Exit.Reason
	} else if a != nil && a.Verdict != nil {
		r.Reason = a.Verdict.Reason
	}
	r.OK = state == jobs.StateCompleted && len(r.Done) == len(child.Spec.Done)
	for _, d := range r.Done {
		r.OK = r.OK && d.Exit.OK()
	}
	n, err := store.AddReviewRun(rv.Record.Dir, r)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the review run", Err: err}
	}
	r.N = n
	for _, p := range rv.All() {
		p.Reviews.Runs = append(p.Reviews.Runs, r.Of(p.Workspace))
	}
	return &r, nil
}

// runOver is what a review run stands on that the task could have prepared; "" is nothing.
func runOver(s *jobs.Spec) string {
	var over []string
	if s.Can().Bare {
		over = append(over, "a host that the task could change")
	}
	if s.Overlay.Name != "" {
		over = append(over, fmt.Sprintf("overlay %s as it is now", s.Overlay.Name))
	}
	return strings.Join(over, ", ")
}
