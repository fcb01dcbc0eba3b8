package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/disk"
	"berth/internal/workspace"
	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"
)

// ExportOptions are how a review is written to a file.
type ExportOptions struct {
	Onto string // the target branch, as for [Engine.Review]
	// NoTranscript leaves out what the agent said of its work.
	NoTranscript bool
}

// Exported is a file that [Engine.ExportReview] has written.
type Exported struct {
	File    string `json:"file"`
	Kind    string `json:"kind"` // "result" or "verdict"
	SHA256  string `json:"sha256"`
	Commit  string `json:"commit"`
	Tree    string `json:"tree"`
	Verdict string `json:"verdict,omitempty"`
	// Transcript says that what the agent said is in it.
	Transcript bool `json:"transcript,omitempty"`
}

// ExportReview writes a new file for another user: of a job its result and what to decide
// it by, of an imported review the last verdict on it. No path, variable or credential of
// the record is in it.
func (e *Engine) ExportReview(ctx context.Context, rec *jobs.Record, file string, o ExportOptions) (out *Exported, err error) {
	if err := alone(rec, "a file for another user"); err != nil {
		return nil, err
	}
	err = e.reviewed(ctx, rec, o.Onto, func(r *Review, u *under) error {
		var files []review.Packed
		out = &Exported{File: file, Kind: review.KindResult, Commit: r.Commit, Tree: r.Tree}
		var v any
		name := review.SentName
		if rec.Sent != nil {
			v, name, out.Kind = r.answer(), review.AnswerName, review.KindVerdict
			if r.Reviews.Verdict() == nil {
				short := jobs.Short(rec.Spec.ID)
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "the review of job " + short + " has no verdict yet",
					Hint: "berth review approve " + short + ", or reject it"}
			}
			out.Verdict = r.Reviews.Verdict().Verdict
		} else {
			if r.Tree == "" {
				return r.Problem
			}
			v = e.sent(ctx, r, u)
			files = e.packed(rec, o)
		}
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		files = append([]review.Packed{{Name: name, Data: data}}, files...)
		out.SHA256, err = review.Pack(file, out.Kind, e.Now(), files)
		if errors.Is(err, fs.ErrExist) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: file + " is there already", Hint: "name another file"}
		}
		out.Transcript = files[len(files)-1].Name == review.TranscriptName
		return err
	})
	return out, err
}

// packed are the files of a job's attempt that go with its review.
func (e *Engine) packed(rec *jobs.Record, o ExportOptions) []review.Packed {
	dir := rec.Current().Dir
	files := []review.Packed{{Name: workspace.BundleFile, Path: bundle(dir)}}
	if rec.Spec.Prompt {
		files = append(files, review.Packed{Name: review.PromptName, Path: filepath.Join(rec.Dir, store.FilePrompt)})
	}
	transcript := filepath.Join(dir, store.FileTranscript)
	if _, err := os.Lstat(transcript); err == nil && !o.NoTranscript {
		files = append(files, review.Packed{Name: review.TranscriptName, Path: transcript})
	}
	return files
}

// sent is what a review of a job's record tells others.
func (e *Engine) sent(ctx context.Context, r *Review, u *under) *jobs.ReviewSent {
	s, a := &r.Record.Spec, r.Record.Current()
	out := &jobs.ReviewSent{Version: 1, Job: s.ID, Name: s.Name, Slug: s.Slug, By: s.User, Host: s.Host, Git: u.known(ctx), Base: r.Base, Ref: r.Ref, Onto: r.Onto,
		Tree: r.Tree, Branch: s.Workspace.Branch, Result: *a.Result(), Scope: s.Workspace.Scope, State: jobs.StateOf(r.Record), Level: s.Level,
		Commands: s.Done, PromptBytes: s.PromptBytes, Created: s.Created, Exported: e.Now().UTC()}
	if x := a.Exit; x != nil {
		out.Done, out.Usage, out.Agent, out.Ended = x.Done, x.Usage, x.Agent, x.Ended
	}
	for _, run := range r.Reviews.Runs {
		if run.Tree == r.Tree {
			out.Runs = append(out.Runs, run)
		}
	}
	return out
}

func (r *Review) answer() *jobs.ReviewAnswer {
	a := &jobs.ReviewAnswer{Version: 1, Job: r.Record.Spec.ID}
	if v := r.Reviews.Verdict(); v != nil {
		a.Verdict = *v
	}
	return a
}

// known is how the user's git knows them, "Name <address>"; "" where it does not.
func (u *under) known(ctx context.Context) string {
	p := u.Me(ctx, review.Person{})
	if p.Name == "" && p.Email == "" {
		return ""
	}
	return jobs.Printable(strings.TrimSpace(p.Name + " <" + p.Email + ">"))
}

// ImportOptions are how a file is taken in.
type ImportOptions struct {
	// Repo is a directory in the repository that a result is decided in.
	Repo string
	// Onto is the target that a verdict may be for, as for [Engine.Review].
	Onto string
	// Replace has a result take the place of an earlier one of the same job, with its
	// verdicts.
	Replace bool
}

// ImportReview takes in a file of [Engine.ExportReview]: a result becomes a review of the
// user's own, and a verdict one on their job. The review tells which of both it was by
// its record. All that the file says is held to be hostile, and is a statement: nothing
// proves who has written it.
func (e *Engine) ImportReview(ctx context.Context, file string, o ImportOptions) (r *Review, err error) {
	if err := e.aside(); err != nil {
		return nil, err
	}
	tmp, err := e.Store.BeginImport()
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for the review", Err: err}
	}
	defer func() {
		if _, serr := os.Lstat(tmp); serr == nil {
			err = errors.Join(err, disk.RemoveTree(tmp))
		}
	}()
	kind, sum, err := review.Unpack(file, tmp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no file " + file}
	}
	if err != nil {
		return nil, repoError(err)
	}
	host, _ := os.Hostname()
	came := jobs.ReviewImported{By: identity().User, Host: host, Time: e.Now().UTC(), SHA256: sum}
	if kind == review.KindVerdict {
		return e.importVerdict(ctx, filepath.Join(tmp, review.AnswerName), file, came, o)
	}
	return e.importResult(ctx, tmp, file, came, o)
}

// wrong is the error of what a file says.
func wrong(file, format string, a ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: file + ": " + fmt.Sprintf(format, a...), Hint: "have it written again: berth review export JOB FILE"}
}

func (e *Engine) importResult(ctx context.Context, tmp, file string, came jobs.ReviewImported, o ImportOptions) (*Review, error) {
	var sent jobs.ReviewSent
	if err := store.ReadPrintable(filepath.Join(tmp, review.SentName), &sent); err != nil {
		return nil, wrong(file, "its record cannot be read: %v", err)
	}
	if err := checkSent(&sent, file); err != nil {
		return nil, err
	}
	if fi, err := os.Stat(filepath.Join(tmp, review.PromptName)); sent.PromptBytes > 0 && (err != nil || fi.Size() != int64(sent.PromptBytes)) {
		return nil, wrong(file, "it lacks the task's prompt of %d bytes", sent.PromptBytes)
	}
	short := jobs.Short(sent.Job)
	if _, err := e.Store.Load(sent.Job); !store.Missing(err) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " is one of yours: its review is here", Hint: "berth review show " + short}
	}
	src, err := e.git.Resolve(ctx, cmp.Or(o.Repo, "."), sent.Base)
	if err == nil {
		err = e.hasCommit(ctx, src, sent.Onto)
	}
	if err != nil {
		return nil, e.lacks(err, &sent)
	}
	w := workspaceSpec(src, sent.Branch, sent.Scope)
	if err := e.intake(ctx, w, tmp, &sent.Result); err != nil {
		return nil, repoError(err)
	}
	v := jobs.ReviewImport{Version: 1, Sent: sent, Repo: src.Repo, Top: src.Top, Imported: came}
	if o.Replace {
		if err := e.Store.RemoveImported(sent.Job); err != nil {
			return nil, err
		}
	}
	won, err := e.Store.AddImported(tmp, v)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the review", Err: err}
	}
	if !won {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the review of job " + short + " was imported before",
			Hint: "berth review show " + short + "; --replace forgets that one, with its verdicts"}
	}
	rec, err := e.Store.LoadImported(sent.Job)
	if err != nil {
		return nil, err
	}
	return e.Review(ctx, rec, "")
}

// hasCommit refuses a repository without a commit that a review needs.
func (e *Engine) hasCommit(ctx context.Context, src workspace.Source, id string) error {
	_, err := e.git.Line(ctx, workspace.Call{GitDir: src.Repo, Args: []string{"cat-file", "-e", id + "^{commit}"}})
	if workspace.ExitCode(err) > 0 {
		return &workspace.Error{Kind: workspace.ErrUnknownBase, Msg: fmt.Sprintf("the repository at %q has no commit %s", src.Repo, id), Err: err}
	}
	return err
}

// lacks says what to do about a repository that is not the author's, or older.
func (e *Engine) lacks(err error, s *jobs.ReviewSent) error {
	if !errors.Is(err, workspace.ErrUnknownBase) {
		return repoError(err)
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(),
		Hint: fmt.Sprintf("it is what %s was for its author: git fetch, or name another repository with --repo DIR", strings.TrimPrefix(s.Ref, headRefs))}
}

// mostSent bounds the texts of an imported review that stand in lines.
const mostSent = 1000

// checkSent refuses what no export has written.
func checkSent(s *jobs.ReviewSent, file string) error {
	for _, id := range []string{s.Base, s.Onto, s.Tree, s.Result.Commit, s.Result.Tree} {
		if !workspace.IsObjectID(id) {
			return wrong(file, "%.80q is no commit or tree", id)
		}
	}
	for _, text := range []string{s.Name, s.By, s.Host, s.Git, s.Ref} {
		if len(text) > mostSent {
			return wrong(file, "a text of its record has %d bytes", len(text))
		}
		if err := jobs.CheckText("a text of its record", text); err != nil {
			return wrong(file, "%v", err)
		}
	}
	several := func(r jobs.ReviewRun) bool { return r.Workspace != "" || len(r.Further) > 0 }
	switch {
	case s.Result.Workspace != "" || len(s.Result.Further) > 0 || slices.ContainsFunc(s.Runs, several):
		return wrong(file, "it is of several workspaces")
	case s.Version > 1:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s was written by a newer berth (schema %d)", file, s.Version), Hint: "use that version of berth"}
	case !jobs.ValidID(s.Job):
		return wrong(file, "%.80q is no id of a job", s.Job)
	case s.By == "" || s.Host == "" || s.Name == "":
		return wrong(file, "its record does not say whose job it is")
	case s.Slug == "" || jobs.Slug(s.Slug) != s.Slug || s.Branch != jobs.BranchName(s.Slug, s.Job):
		return wrong(file, "%.80q is not the branch of job %s", s.Branch, jobs.Short(s.Job))
	case s.Result.Base != s.Base:
		return wrong(file, "its result starts from %.12s and its task from %.12s", s.Result.Base, s.Base)
	case !strings.HasPrefix(s.Ref, headRefs):
		return wrong(file, "%.80q is no branch", s.Ref)
	case !s.State.Final():
		return wrong(file, "its job has not ended")
	}
	if _, err := workspace.ParseScope(s.Scope); err != nil {
		return wrong(file, "its scope: %v", err)
	}
	return nil
}

// importVerdict records what another user has decided of a job of this one's.
func (e *Engine) importVerdict(ctx context.Context, path, file string, came jobs.ReviewImported, o ImportOptions) (out *Review, err error) {
	var a jobs.ReviewAnswer
	if err := store.ReadPrintable(path, &a); err != nil {
		return nil, wrong(file, "its verdict cannot be read: %v", err)
	}
	v := a.Verdict
	if err := checkAnswer(&a, file); err != nil {
		return nil, err
	}
	short := jobs.Short(a.Job)
	rec, err := e.Store.Load(a.Job)
	if store.Missing(err) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("%s is a verdict on job %s, which is not here", file, short),
			Hint: "import it where the job was exported"}
	}
	if err != nil {
		return nil, err
	}
	if err := alone(rec, "the verdict of another user"); err != nil {
		return nil, err
	}
	err = e.reviewed(ctx, rec, o.Onto, func(r *Review, u *under) error {
		out = r
		if err := undecided(ctx, r); err != nil {
			return err
		}
		for _, have := range r.Reviews.Verdicts {
			if have.Imported != nil && have.Imported.SHA256 == came.SHA256 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: file + " was imported before", Hint: "berth review show " + short}
			}
		}
		if v.Commit != r.Commit {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is about commit %.12s, and the result of job %s is %.12s", file, v.Commit, short, r.Commit),
				Hint: "berth review export " + short + " FILE, and have that one decided"}
		}
		if v.Verdict == jobs.VerdictReject { // of the commit: what else it names is not looked at
			v.Ref, v.Onto, v.Tree = r.Ref, r.Onto, r.Tree
		} else if err := e.sameTree(ctx, r, u, &v, file); err != nil {
			return err
		}
		v.Version, v.Level, v.Imported = 1, rec.Spec.Level, &came
		if err := r.decide(v); err != nil {
			return err
		}
		if v.Verdict == jobs.VerdictApprove && v.Onto != r.Onto {
			r.State = ReviewStale
		}
		return nil
	})
	return out, err
}

// sameTree refuses an approval of another tree than this repository makes.
func (e *Engine) sameTree(ctx context.Context, r *Review, u *under, v *jobs.ReviewVerdict, file string) error {
	short := jobs.Short(r.Record.Spec.ID)
	if v.Ref != r.Ref {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s approves job %s for %s, and it is for %s", file, short, strings.TrimPrefix(v.Ref, headRefs),
			r.Target()),
			Hint: "--onto " + strings.TrimPrefix(v.Ref, headRefs) + ", if that is meant"}
	}
	if err := e.hasCommit(ctx, u.Src, v.Onto); err != nil {
		return err
	}
	made, err := review.TreeOn(ctx, u.Borrowed, r.Base, v.Onto, r.Commit)
	if err == nil && made.Tree != v.Tree {
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s approves tree %.12s, and the merge of job %s into %.12s makes %.12s",
			file, v.Tree, short, v.Onto, cmp.Or(made.Tree, "none: they conflict")), Hint: "berth review export " + short + " FILE, and have that one decided"}
	}
	return err
}

func checkAnswer(a *jobs.ReviewAnswer, file string) error {
	v := &a.Verdict
	for _, id := range []string{v.Commit, v.Tree, v.Onto} {
		if !workspace.IsObjectID(id) && (v.Verdict != jobs.VerdictReject || id != "") {
			return wrong(file, "%.80q is no commit or tree", id)
		}
	}
	for _, text := range []string{v.By, v.Host, v.Git, v.Ref} {
		if err := jobs.CheckText("a text of its verdict", text); err != nil || len(text) > mostSent {
			return errors.Join(wrong(file, "a text of its verdict is none of one line, at most %d bytes", mostSent), err)
		}
	}
	switch {
	case v.Workspace != "" || len(v.Further) > 0: // what is merged is looked up in it by name
		return wrong(file, "its verdict is of several workspaces")
	case a.Version > 1 || v.Version > 1:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: file + " was written by a newer berth", Hint: "use that version of berth"}
	case !jobs.ValidID(a.Job):
		return wrong(file, "%.80q is no id of a job", a.Job)
	case v.Verdict != jobs.VerdictApprove && v.Verdict != jobs.VerdictReject:
		return wrong(file, "its verdict is %.80q", v.Verdict)
	case v.By == "" || v.Host == "":
		return wrong(file, "it does not say who has decided")
	}
	return nil
}
