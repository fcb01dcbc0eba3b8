package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/remote/replica"
	"berth/internal/sys/failpoint"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// take brings a result's branch into the user's repository where the runner
// could not, once. Its failure is a note: the bundle stays, and whoever looks next
// tries again; later each time when trying costs something.
func (e *Engine) take(ctx context.Context, v *View) {
	if !v.BranchMissing() {
		return
	}
	a := v.Current()
	if v.Spec.Retry != nil && a.Collected == nil && (a.Decision == nil || a.Decision.Verb != jobs.VerbAccept) {
		return // the branch is that of the attempt that is accepted, which another may be
	}
	if v.Spec.Workspace.Copy { // of one workspace, with --login
		v.Note = "its branch goes to the repository on " + v.Spec.Host + ", where it was submitted"
		return
	}
	const not = "the branch is not in the repository yet: "
	if u := a.Undelivered; !u.Due(e.Now()) {
		v.Note = fmt.Sprintf("%s%s; it is kept in %s, and is tried again after %s, or at once by berth collect %s",
			not, u.Reason, bundle(a.Dir), u.Next.UTC().Format(time.RFC3339), jobs.Short(v.Spec.ID))
		return
	}
	switch stored, err := e.deliver(ctx, v); {
	case stored && err != nil:
		v.Note = "the branch is in the repository, but that could not be recorded: " + err.Error()
	case err != nil:
		v.Note = not + err.Error() + "; it is kept in " + bundle(a.Dir)
	}
}

// deliver brings in the branch of the current attempt. With an error, stored
// tells whether the branch is there all the same.
func (e *Engine) deliver(ctx context.Context, v *View) (stored bool, err error) {
	a := v.Current()
	parts := v.ChangedParts()
	var failed []error
	for _, p := range parts { // the trouble of one holds back no other
		if p.BranchHere() {
			continue
		}
		err := e.intake(ctx, p.Spec.Workspace, p.Current().Dir, p.Current().Result())
		if err == nil {
			continue
		}
		costly := costs(err)
		err = repoError(err)
		if w := p.Spec.Workspace; w.Name != "" {
			err = &jobs.Error{Kind: jobs.KindOf(err), Msg: "workspace " + w.Name, Err: err, Hint: jobs.HintOf(err)}
		}
		if costly && ctx.Err() == nil {
			u := a.Undelivered.Again(e.Now().UTC(), err.Error())
			if serr := store.SetUndelivered(a.Dir, u); serr == nil {
				a.Undelivered = &u
			}
		}
		failed = append(failed, err)
	}
	switch len(failed) {
	case 0:
	case 1:
		return false, failed[0]
	default:
		return false, &jobs.Error{Kind: jobs.KindOf(failed[0]), Msg: "several workspaces", Err: errors.Join(failed...), Hint: jobs.HintOf(failed[0])}
	}
	failpoint.Hit("take.branch")
	t := jobs.Taken{Version: 1, Branch: v.Spec.Workspace.Branch, Commit: parts[0].Current().Result().Commit, Time: e.Now().UTC()}
	if _, err := store.SetTaken(a.Dir, t); err != nil {
		return true, err
	}
	a.Taken = &t
	return true, nil
}

// costs reports whether retries of a failed delivery need a growing delay: retries
// must not fill a disk as soon as space is freed, and git will refuse the same
// branch again. Any other failure may be repaired at any moment and is retried at
// the next look.
func costs(err error) bool {
	return errors.Is(err, workspace.ErrSpace) || errors.Is(err, workspace.ErrRejected)
}

// Brought is what [Engine.Bring] did.
type Brought struct {
	// Kept is the work tree that was kept; "" is none here.
	Kept string `json:"kept,omitempty"`
	// Collected tells that the result was made of it now.
	Collected bool `json:"collected,omitempty"`
	// Branch is the result's branch, and Here whether it is in the repository.
	Branch string `json:"branch,omitempty"`
	Here   bool   `json:"branch_taken"`
	// Files were copied to Dir.
	Dir   string   `json:"dir,omitempty"`
	Files []string `json:"files,omitempty"`
	// Missing says what could still not be brought.
	Missing []string `json:"missing,omitempty"`
}

// Bring brings what is still to be brought of an ended job, at once: it makes the
// result of a work tree that was kept, delivers the branch, and copies what was
// left out of the result: artifacts to the attempt's directory or to into, other
// files to into. An error is about the branch or a directory; what else could not
// be brought is in the answer.
func (e *Engine) Bring(ctx context.Context, v *View, into string) (*Brought, error) {
	short := jobs.Short(v.Spec.ID)
	a := v.Current()
	switch {
	case v.Spec.Workspace == nil:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has no workspace: nothing of it is collected",
			Hint: "berth logs " + short}
	case !v.State.Final() || a == nil:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has not ended: it is " + string(v.State), Hint: "berth wait " + short}
	}
	b := &Brought{Kept: filepath.Join(a.Dir, workspace.WorkDir)}
	if _, err := os.Stat(b.Kept); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look for the kept work tree", Err: err}
		}
		b.Kept = ""
	}
	if b.Kept != "" && a.Result() == nil {
		if err := e.collectKept(ctx, v); err != nil {
			return nil, err
		}
		b.Collected = true
	}
	if b.Kept != "" {
		if err := e.bringFiles(ctx, v, b, into); err != nil {
			return nil, err
		}
	}
	b.Missing = append(b.Missing, replica.NotHere(v.Record)...)
	if why := notKept(v.Current()); why != "" {
		b.Missing = append(b.Missing, why)
	}
	if res := a.Result(); res != nil && res.Changed() {
		b.Branch = v.Spec.Workspace.Branch
		if v.BranchMissing() && v.Spec.Workspace.Copy {
			return b, &jobs.Error{Kind: jobs.KindUsage, Msg: "the branch goes to the repository on " + v.Spec.Host,
				Hint: "run berth collect " + short + " there"}
		}
		if v.BranchMissing() {
			if _, err := e.deliver(ctx, v); err != nil {
				return b, &jobs.Error{Kind: jobs.KindInfra,
					Msg:  "branch " + b.Branch + " is not in the repository: " + err.Error() + "; it is kept in " + bundle(a.Dir),
					Hint: jobs.HintOf(err)}
			}
		}
		b.Here = v.BranchHere()
	}
	if a.Result() == nil {
		msg := "job " + short + " has no result, and its work tree was not kept"
		if beside := KeptBeside(v.Spec, a); beside != "" {
			msg = "job " + short + " has no result yet: " + beside
		} else if l := v.Spec.Login; l != nil {
			msg += " here"
			if stays := replica.NotHere(v.Record); len(stays) > 0 {
				msg += "; " + strings.Join(stays, "; ")
			} else {
				msg += "; if it was kept on " + l.Host + ", it is in the attempt's directory there"
			}
		}
		return b, &jobs.Error{Kind: jobs.KindNotFound, Msg: msg, Hint: "berth status " + short}
	}
	return b, nil
}

// KeptBeside says where the files are of a task whose runner was killed: one that
// has ended itself has said so.
func KeptBeside(s jobs.Spec, a *jobs.Attempt) string {
	if s.Workspace == nil || s.Login != nil || a.Claim == nil || a.Verdict == nil || a.Exit != nil {
		return ""
	}
	kept := filepath.Join(a.Dir, workspace.WorkDir)
	switch _, err := os.Lstat(kept); {
	case err == nil:
		return "the task's files are in " + kept + "; what is in there was written by the task"
	case !s.SharesWork():
		return "the task's files are on " + a.Claim.Host + ", and come to " + kept +
			" when the next job or environment of yours begins there, or by berth gc there"
	}
	return ""
}

// KeptOfKilled says what has become of a place that was to be kept, of a task whose runner was
// killed: one that has ended itself has said so.
func KeptOfKilled(r *jobs.Record, a *jobs.Attempt) (k *jobs.KeptPlace, note string) {
	if o := r.Spec.Overlay; o.Keep == "" || o.Name != "" || r.Spec.Login != nil || a.Claim == nil || a.Verdict == nil || a.Exit != nil {
		return nil, ""
	}
	k, err := keptOf(r, a)
	switch {
	case err != nil:
		return nil, "whether the place was kept is not known: " + err.Error()
	case k != nil:
		return k, k.String()
	}
	return nil, "the place was to be kept, and was not: its runner was killed before that; berth gc removes what is left of it"
}

// keptOf finds what was kept of an attempt; nil is nothing.
func keptOf(r *jobs.Record, a *jobs.Attempt) (*jobs.KeptPlace, error) {
	st, err := store.At(store.HomeOf(r.Dir))
	if err != nil {
		return nil, err
	}
	if r.Spec.Can().Layers {
		list, err := (&overlay.Set{Dir: st.Overlays()}).ListKept()
		for _, i := range list {
			if i.Mark != nil && i.Mark.Kept != nil && i.Mark.Kept.Attempt == a.Info.ID {
				return &jobs.KeptPlace{Overlay: i.Name}, nil
			}
		}
		return nil, err
	}
	list, err := st.ListEnvs()
	for _, s := range list {
		if s.ID == a.Info.ID {
			return &jobs.KeptPlace{Environment: s.Name}, nil
		}
	}
	return nil, err
}

// notKept says what of the work tree of an attempt could not be kept, or "".
func notKept(a *jobs.Attempt) string {
	if a.Exit == nil || a.Exit.Kept == nil || a.Exit.Kept.Error == "" {
		return ""
	}
	return a.Exit.Kept.Lost() + " that could not be kept: " + a.Exit.Kept.Error
}

// collectKept makes the result that the runner did not make.
func (e *Engine) collectKept(ctx context.Context, v *View) error {
	a := v.Current()
	// The same for everybody who does this at once, so that they make one commit.
	ended := e.Now()
	switch {
	case a.Exit != nil:
		ended = a.Exit.Ended
	case a.Verdict != nil:
		ended = a.Verdict.Time
	}
	c := jobs.Collected{Version: 1, Time: e.Now().UTC()}
	for i, w := range v.Spec.Workspaces() {
		scope, err := workspace.ParseScope(w.Scope)
		if err != nil {
			return repoError(err)
		}
		git := *e.git
		git.Work, git.Below = filepath.Join(a.Dir, workspace.WorkDir), jobs.WorkspaceDir(w.Name)
		for _, o := range v.Spec.Further {
			if w.Name == "" {
				git.Others = append(git.Others, jobs.WorkspaceDir(o.Name))
			}
		}
		dir := jobs.ResultDir(a.Dir, w.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "make the result of a kept work tree", Err: err}
		}
		res, err := git.CollectKept(ctx, dir, sourceOf(w), workspace.CollectOptions{Branch: w.Branch, Scope: scope, Time: ended,
			Artifacts: v.Spec.Artifacts, Ignore: w.Ignore, Limits: workspace.ResultLimits(v.Spec.Results),
			Message: fmt.Sprintf("%s\n\nBerth-Job: %s\nBerth-Attempt: %s\n", v.Spec.Name, v.Spec.ID, a.Info.ID)})
		if err != nil {
			return repoError(err)
		}
		if one := res.Record(); i == 0 {
			c.Result = one
		} else {
			one.Workspace = w.Name
			c.Result.Further = append(c.Result.Further, one)
		}
	}
	won, err := store.SetCollected(a.Dir, c)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the result", Err: err}
	}
	if !won {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "another berth collect has made the result meanwhile",
			Hint: "berth collect " + jobs.Short(v.Spec.ID)}
	}
	a.Collected = &c
	return nil
}

// bringFiles copies what was left out of the kept work tree.
func (e *Engine) bringFiles(ctx context.Context, v *View, b *Brought, into string) error {
	a := v.Current()
	add := func(got workspace.Artifacts) {
		for _, f := range got.Copied {
			b.Files = append(b.Files, fmt.Sprint(f.Path))
		}
		for _, s := range got.Skipped {
			b.Missing = append(b.Missing, fmt.Sprintf("%s: %s", s.Path, s.Reason))
		}
		if got.SkippedMore > 0 {
			b.Missing = append(b.Missing, fmt.Sprintf("%d more paths", got.SkippedMore))
		}
	}
	b.Dir = into
	if len(v.Spec.Artifacts) > 0 {
		if into == "" {
			b.Dir = filepath.Join(a.Dir, "artifacts")
		}
		all := workspace.ArtifactLimits{FileBytes: math.MaxInt64, TotalBytes: math.MaxInt64, Files: math.MaxInt, Others: into != ""}
		got, err := workspace.CollectArtifacts(ctx, b.Kept, b.Dir, v.Spec.Artifacts, all)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "bring the artifacts", Err: err, Hint: "they are in " + b.Kept}
		}
		add(got)
	}
	var left []workspace.Path
	more := 0
	for _, w := range v.Spec.Workspaces() {
		paths, beyond, err := workspace.LeftOut(jobs.ResultDir(a.Dir, w.Name))
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "read what was left out of the branch", Err: err}
		}
		for _, p := range paths {
			left = append(left, workspace.Path(path.Join(jobs.WorkspaceDir(w.Name), string(p))))
		}
		more += beyond
	}
	switch {
	case len(left) == 0:
	case into == "":
		b.Missing = append(b.Missing, fmt.Sprintf("what is left out of the branch (%d in all); --into DIR brings it", len(left)+more))
	default:
		got, err := workspace.CopyOut(ctx, b.Kept, into, left)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "bring what was left out of the branch", Err: err, Hint: "it is in " + b.Kept}
		}
		add(got)
		if more > 0 {
			b.Missing = append(b.Missing, fmt.Sprintf("%d more paths that were left out of the branch", more))
		}
	}
	if len(b.Files) == 0 {
		b.Dir = ""
	}
	return nil
}

// sweepBranches delivers what is not delivered yet, as every look does, and says
// so; and removes what killed clients have left of that.
func (e *Engine) sweepBranches(ctx context.Context, recs []*jobs.Record, dry bool) (found []Left) {
	var waiting []*jobs.Record
	for _, r := range recs {
		if jobs.StateOf(r).Final() && r.BranchMissing() {
			waiting = append(waiting, r)
		}
		var dirs []string
		for i := range r.Attempts {
			for _, w := range r.Spec.Workspaces() {
				dirs = append(dirs, jobs.ResultDir(r.Attempts[i].Dir, w.Name))
			}
		}
		for _, dir := range dirs {
			for _, path := range workspace.Abandoned(dir, dry) {
				l := Left{What: LeftRemains, Name: path, Job: r.Spec.ID,
					Why: "a client was killed while it brought a branch in", Result: DoneRemoved}
				if dry {
					l.Result = DoneFound
				}
				found = append(found, l)
			}
		}
	}
	views := make([]View, len(waiting))
	if !dry {
		views = e.Reconcile(ctx, waiting)
	}
	for i, r := range waiting {
		l := Left{What: LeftBranch, Name: r.Spec.Workspace.Branch, Job: r.Spec.ID, Why: "the result is not in the repository", Result: DoneFound}
		switch v := views[i]; {
		case dry:
		case !v.BranchMissing():
			l.Result = DoneBrought
		default:
			l.Result = DoneWaits
			if v.Note != "" {
				l.Why = v.Note
			}
		}
		found = append(found, l)
	}
	return found
}
