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
					Hint: ApproveCommand(rec) + ", or reject it"}
			}
			out.Verdict = r.Reviews.Verdict().Verdict
		} else {
			if slices.ContainsFunc(r.All(), func(p *Review) bool { return p.Tree == "" }) {
				return r.Whole()
			}
			v = e.sent(ctx, r, u)
			files = e.packed(r, o)
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
		if p := new(fs.PathError); errors.As(err, &p) && p.Path == file && errors.Is(p.Err, fs.ErrNotExist) {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "write " + file + ": its directory does not exist",
				Hint: "make it, or name another file"}
		}
		out.Transcript = files[len(files)-1].Name == review.TranscriptName
		return err
	})
	return out, err
}

// packed are the files of a job's attempt that go with its review.
func (e *Engine) packed(r *Review, o ExportOptions) []review.Packed {
	rec, dir := r.Record, r.Record.Current().Dir
	files := []review.Packed{{Name: workspace.BundleFile, Path: bundle(r.part.Current().Dir)}}
	for _, p := range r.Further {
		files = append(files, review.Packed{Name: review.BundleName(p.Workspace), Path: bundle(p.part.Current().Dir)})
	}
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
	s, x := &r.Record.Spec, r.Record.Current().Exit
	out := &jobs.ReviewSent{Version: 1, Job: s.ID, Name: s.Name, Slug: s.Slug, By: s.User, Host: s.Host, Git: u.known(ctx),
		SentWorkspace: r.sent(), State: jobs.StateOf(r.Record), Level: s.Level,
		Commands: s.Done, PromptBytes: s.PromptBytes, Created: s.Created, Exported: e.Now().UTC(), Runs: r.runs()}
	for _, p := range r.Further {
		out.Further = append(out.Further, p.sent())
	}
	if out.Several() {
		out.Version = 2
	}
	if x != nil {
		out.Done, out.Usage, out.Ended = x.Done, x.Usage, x.Ended
		if x.Agent != nil { // why it began another session may name a path
			did := *x.Agent
			did.NewSession, did.Continued = "", ""
			out.Agent = &did
		}
	}
	return out
}

// sent is the same of this workspace alone.
func (r *Review) sent() jobs.SentWorkspace {
	w := r.part.Spec.Workspace
	return jobs.SentWorkspace{Workspace: r.Workspace, Base: r.Base, Ref: r.Ref, Onto: r.Onto, Tree: r.Tree, Branch: w.Branch,
		Result: *r.part.Current().Result(), Scope: w.Scope}
}

func (r *Review) answer() *jobs.ReviewAnswer {
	a := &jobs.ReviewAnswer{Version: 1, Job: r.Record.Spec.ID}
	if all := r.Verdicts(); len(all) > 0 {
		a.Verdict = all[len(all)-1]
	}
	if r.Record.Sent.Several() {
		a.Version = 2
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
	// Repo is a directory in the repository that a result is decided in; of one with
	// several, that of the first one, and Repos has those of the others by their names.
	Repo  string
	Repos map[string]string
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
	v := jobs.ReviewImport{Version: sent.Version, Sent: sent, Imported: came}
	places, err := e.placesOf(ctx, &sent, file, o)
	if err != nil {
		return nil, err
	}
	v.ImportRepo, v.Further = jobs.ImportRepo{Repo: places[0].Repo, Top: places[0].Top}, nil
	for _, src := range places[1:] {
		v.Further = append(v.Further, jobs.ImportRepo{Repo: src.Repo, Top: src.Top})
	}
	if err := bundles(tmp, &sent, file); err != nil {
		return nil, err
	}
	for i, w := range sent.All() {
		if err := e.intake(ctx, workspaceSpec(places[i], w.Branch, w.Scope), importDir(tmp, &sent, w.Workspace), &w.Result); err != nil {
			return nil, delivered(ofSent(&sent, w.Workspace, repoError(err)), &sent, places[:i])
		}
	}
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

// importDir is the directory of one workspace in that of an imported review.
func importDir(dir string, sent *jobs.ReviewSent, name string) string {
	if len(sent.Further) == 0 { // it is its own part
		return dir
	}
	return jobs.ResultDir(dir, name)
}

// ofSent says of which workspace an error is, where a review is about several.
func ofSent(sent *jobs.ReviewSent, name string, err error) error {
	if len(sent.Further) == 0 {
		return err
	}
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: strings.TrimSpace("workspace " + name), Err: err, Hint: jobs.HintOf(err)}
}

// delivered says in an error which branches of a review are in their repositories all the
// same. They do no harm there: the next import finds them as they are to be.
func delivered(err error, sent *jobs.ReviewSent, places []workspace.Source) error {
	if len(places) == 0 {
		return err
	}
	var have []string
	for i, w := range sent.All()[:len(places)] {
		have = append(have, fmt.Sprintf("%s in %s", w.Branch, cmp.Or(places[i].Top, places[i].Repo)))
	}
	return &jobs.Error{Kind: jobs.KindOf(err), Err: err, Msg: "not imported; delivered before, and left there: " + strings.Join(have, ", "),
		Hint: strings.TrimPrefix(jobs.HintOf(err)+"; then import it again, which goes on, "+
			"or remove what is there: git branch -D "+sent.Branch, "; then ")}
}

// placesOf are the repositories on this machine that a result is decided in, in its order.
// Each has what its part is built on.
func (e *Engine) placesOf(ctx context.Context, sent *jobs.ReviewSent, file string, o ImportOptions) (out []workspace.Source, err error) {
	for name := range o.Repos {
		if sent.Of(name).Branch == "" {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: file + " is not about a workspace " + name,
				Hint: "leave --repo " + name + "=... out"}
		}
	}
	if first := sent.All()[0].Workspace; o.Repo != "" && o.Repos[first] != "" {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "two repositories are named for the workspace " + first,
			Hint: "leave one of --repo " + o.Repo + " and --repo " + first + "=... out"}
	}
	for i, w := range sent.All() {
		dir, named := o.Repos[w.Workspace]
		if !named && i > 0 {
			return nil, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  file + " is about the workspace " + w.Workspace + ", too, and no repository is named for it",
				Hint: "--repo " + w.Workspace + "=DIR names its repository here"}
		}
		if !named {
			dir = cmp.Or(o.Repo, ".")
		}
		src, err := e.git.Resolve(ctx, dir, w.Base)
		if err == nil {
			err = e.hasCommit(ctx, src, w.Onto)
		}
		if err != nil {
			option := "--repo DIR"
			if named {
				option = "--repo " + w.Workspace + "=DIR"
			}
			return nil, ofSent(sent, w.Workspace, lacks(err, w.Ref, "for its author", "name another repository with "+option))
		}
		if slices.ContainsFunc(out, func(o workspace.Source) bool { return o.Repo == src.Repo }) {
			return nil, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  "workspace " + w.Workspace + ": its repository is that of another workspace: " + src.Repo,
				Hint: "--repo " + w.Workspace + "=DIR names another one"}
		}
		out = append(out, src)
	}
	return out, nil
}

// bundles puts the bundles of several repositories where those of a job are, and refuses
// those of no workspace.
func bundles(tmp string, sent *jobs.ReviewSent, file string) error {
	for i, w := range sent.All() {
		from, to := filepath.Join(tmp, workspace.BundleFile), importDir(tmp, sent, w.Workspace)
		if i > 0 {
			from = filepath.Join(tmp, review.BundleName(w.Workspace))
		}
		if _, err := os.Lstat(from); err != nil {
			return wrong(file, "it lacks the bundle of branch %s in workspace %q", w.Branch, w.Workspace)
		}
		if to == tmp {
			continue
		}
		err := os.MkdirAll(to, 0o700)
		if err == nil {
			err = os.Rename(from, bundle(to))
		}
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the review", Err: err}
		}
	}
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the review", Err: err}
	}
	prefix, suffix, _ := strings.Cut(review.BundleName("*"), "*")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			return wrong(file, "it has a bundle that its record does not name")
		}
	}
	return nil
}

// hasCommit refuses a repository without a commit that a review needs.
func (e *Engine) hasCommit(ctx context.Context, src workspace.Source, id string) error {
	_, err := e.git.Line(ctx, workspace.Call{GitDir: src.Repo, Args: []string{"cat-file", "-e", id + "^{commit}"}})
	if workspace.ExitCode(err) > 0 {
		return &workspace.Error{Kind: workspace.ErrUnknownBase, Msg: fmt.Sprintf("the repository at %q has no commit %s", src.Repo, id), Err: err}
	}
	return err
}

// lacks says what to do about a repository without a commit that ref was elsewhere: where,
// and what helps beside git fetch.
func lacks(err error, ref, where, or string) error {
	if !errors.Is(err, workspace.ErrUnknownBase) {
		return repoError(err)
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(),
		Hint: fmt.Sprintf("it is what %s was %s: git fetch, or %s", strings.TrimPrefix(ref, headRefs), where, or)}
}

// mostSent bounds the texts of an imported review that stand in lines.
const mostSent = 1000

// checkSent refuses what no export has written.
func checkSent(s *jobs.ReviewSent, file string) error {
	for _, text := range []string{s.Name, s.By, s.Host, s.Git} {
		if err := checkLine(file, text); err != nil {
			return err
		}
	}
	switch {
	case s.Version > 2:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s was written by a newer berth (schema %d)", file, s.Version),
			Hint: "use that version of berth"}
	case s.Several() != (s.Version == 2), len(s.Further) > jobs.MaxFurther:
		return wrong(file, "it is of schema %d, with %d workspaces", s.Version, 1+len(s.Further))
	case !jobs.ValidID(s.Job):
		return wrong(file, "%.80q is no id of a job", s.Job)
	case s.By == "" || s.Host == "" || s.Name == "":
		return wrong(file, "its record does not say whose job it is")
	case s.Slug == "" || jobs.Slug(s.Slug) != s.Slug:
		return wrong(file, "%.80q is no part of a branch", s.Slug)
	case !s.State.Final():
		return wrong(file, "its job has not ended")
	}
	var names []string
	for i, w := range s.All() {
		if slices.Contains(names, w.Workspace) {
			return wrong(file, "it names the workspace %.80q twice", w.Workspace)
		}
		names = append(names, w.Workspace)
		if i > 0 || w.Workspace != "" {
			if err := jobs.CheckWorkspaceName(w.Workspace); err != nil {
				return wrong(file, "%v", err)
			}
		}
		if err := checkSentOf(s, &w, file); err != nil {
			return err
		}
	}
	for _, run := range s.Runs {
		of := []string{run.Workspace}
		for _, t := range run.Further {
			of = append(of, t.Workspace)
		}
		if !slices.Equal(of, names) {
			return wrong(file, "a run of its checks is of other workspaces: %.200q", of)
		}
	}
	return nil
}

// checkSentOf is the same for one repository.
func checkSentOf(s *jobs.ReviewSent, w *jobs.SentWorkspace, file string) error {
	for _, id := range []string{w.Base, w.Onto, w.Tree, w.Result.Commit, w.Result.Tree} {
		if !workspace.IsObjectID(id) {
			return wrong(file, "%.80q is no commit or tree", id)
		}
	}
	if err := checkLine(file, w.Ref); err != nil {
		return err
	}
	switch {
	case w.Result.Workspace != w.Workspace || len(w.Result.Further) > 0:
		return wrong(file, "the result of workspace %.80q is that of %.80q", w.Workspace, w.Result.Workspace)
	case w.Branch != jobs.BranchName(s.Slug, s.Job):
		return wrong(file, "%.80q is not the branch of job %s", w.Branch, jobs.Short(s.Job))
	case w.Result.Base != w.Base:
		return wrong(file, "its result starts from %.12s and its task from %.12s", w.Result.Base, w.Base)
	case !strings.HasPrefix(w.Ref, headRefs):
		return wrong(file, "%.80q is no branch", w.Ref)
	}
	if _, err := workspace.ParseScope(w.Scope); err != nil {
		return wrong(file, "its scope: %v", err)
	}
	return nil
}

// checkLine refuses a text of a record that is none of one line.
func checkLine(file, text string) error {
	if len(text) > mostSent {
		return wrong(file, "a text of its record has %d bytes", len(text))
	}
	if err := jobs.CheckText("a text of its record", text); err != nil {
		return wrong(file, "%v", err)
	}
	return nil
}

// importVerdict records what another user has decided of a job of this one's.
func (e *Engine) importVerdict(ctx context.Context, path, file string, came jobs.ReviewImported, o ImportOptions) (out *Review, err error) {
	if o.Repo != "" || len(o.Repos) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: file + " is a verdict on a job of yours, whose repository is known",
			Hint: "leave --repo out"}
	}
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
		if err := e.ofAnother(ctx, r, &v, file); err != nil {
			return err
		}
		v.Version, v.Level, v.Imported = 1, rec.Spec.Level, &came
		if err := r.decide(v); err != nil {
			return err
		}
		for _, p := range r.All() {
			if v.Verdict == jobs.VerdictApprove && v.Of(p.Workspace).Onto != p.Onto {
				r.State = ReviewStale
			}
		}
		return nil
	})
	return out, err
}

// ofAnother refuses a verdict that is not about the results of all workspaces that have
// changed, and makes it one of these, in their order: nothing else that it names is kept.
func (e *Engine) ofAnother(ctx context.Context, r *Review, v *jobs.ReviewVerdict, file string) error {
	short := jobs.Short(r.Record.Spec.ID)
	mine := []string{}
	for _, p := range r.All() {
		mine = append(mine, p.Workspace)
	}
	its := []string{v.Workspace}
	for _, t := range v.Further {
		its = append(its, t.Workspace)
	}
	if !slices.Equal(its, mine) {
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("%s is about the workspaces %.200q, and job %s has changed %q", file, its, short, mine),
			Hint: "berth review export " + short + " FILE, and have that one decided"}
	}
	var all []jobs.ReviewTree
	for _, p := range r.All() {
		of := v.Of(p.Workspace)
		if of.Commit != p.Commit {
			return ofReview(p, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  fmt.Sprintf("%s is about commit %.12s, and the result of job %s is %.12s", file, of.Commit, short, p.Commit),
				Hint: "berth review export " + short + " FILE, and have that one decided"})
		}
		if v.Verdict == jobs.VerdictReject { // of the commit: what else it names is not looked at
			of.Ref, of.Onto, of.Tree = p.Ref, p.Onto, p.Tree
		} else if err := e.sameTree(ctx, p, p.under, &of, file); err != nil {
			return ofReview(p, err)
		}
		all = append(all, jobs.ReviewTree{Workspace: p.Workspace, Commit: of.Commit, Tree: of.Tree, Onto: of.Onto, Ref: of.Ref})
	}
	first := all[0]
	v.Workspace, v.Commit, v.Tree, v.Onto, v.Ref, v.Further = first.Workspace, first.Commit, first.Tree, first.Onto, first.Ref, all[1:]
	return nil
}

// sameTree refuses an approval of another tree than this repository makes.
func (e *Engine) sameTree(ctx context.Context, r *Review, u *under, v *jobs.ReviewVerdict, file string) error {
	short := jobs.Short(r.Record.Spec.ID)
	if v.Ref != r.Ref {
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg: fmt.Sprintf("%s approves job %s for %s, and it is for %s", file, short, strings.TrimPrefix(v.Ref, headRefs),
				r.Target()),
			Hint: "--onto " + strings.TrimPrefix(v.Ref, headRefs) + ", if that is meant"}
	}
	if err := e.hasCommit(ctx, u.Src, v.Onto); err != nil {
		return lacks(err, v.Ref, "where it was approved", "berth review export "+short+" FILE, and have that one decided")
	}
	made, err := review.TreeOn(ctx, u.Borrowed, r.Base, v.Onto, r.Commit)
	if err == nil && made.Tree != v.Tree {
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s approves tree %.12s, and the merge of job %s into %.12s makes %.12s",
			file, v.Tree, short, v.Onto, cmp.Or(made.Tree, "none: they conflict")),
			Hint: "berth review export " + short + " FILE, and have that one decided"}
	}
	return err
}

func checkAnswer(a *jobs.ReviewAnswer, file string) error {
	v := &a.Verdict
	if a.Version > 2 || v.Version > 1 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: file + " was written by a newer berth", Hint: "use that version of berth"}
	}
	all := append([]jobs.ReviewTree{{Workspace: v.Workspace, Commit: v.Commit, Tree: v.Tree, Onto: v.Onto, Ref: v.Ref}}, v.Further...)
	if len(v.Further) > jobs.MaxFurther {
		return wrong(file, "its verdict is of %d workspaces", len(all))
	}
	texts := []string{v.By, v.Host, v.Git}
	var names []string
	for _, t := range all {
		for _, id := range []string{t.Commit, t.Tree, t.Onto} {
			if !workspace.IsObjectID(id) && (v.Verdict != jobs.VerdictReject || id != "") {
				return wrong(file, "%.80q is no commit or tree", id)
			}
		}
		if slices.Contains(names, t.Workspace) { // what is merged is looked up in it by name
			return wrong(file, "its verdict names the workspace %.80q twice", t.Workspace)
		}
		names, texts = append(names, t.Workspace), append(texts, t.Ref, t.Workspace)
	}
	for _, text := range texts {
		if err := jobs.CheckText("a text of its verdict", text); err != nil || len(text) > mostSent {
			return errors.Join(wrong(file, "a text of its verdict is none of one line, at most %d bytes", mostSent), err)
		}
	}
	switch {
	case !jobs.ValidID(a.Job):
		return wrong(file, "%.80q is no id of a job", a.Job)
	case v.Verdict != jobs.VerdictApprove && v.Verdict != jobs.VerdictReject:
		return wrong(file, "its verdict is %.80q", v.Verdict)
	case v.By == "" || v.Host == "":
		return wrong(file, "it does not say who has decided")
	}
	return nil
}
