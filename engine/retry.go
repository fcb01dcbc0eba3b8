package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/sitefile"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// RetryOptions say what is different in another job of the same task.
type RetryOptions struct {
	Note string // for the prompt, under [NotesHeading]; "" is that of a reject, where it is the last verdict
	Base string // the commit to start from; "" is that of the job before
	// NewSession has an agent begin a session, also where it could go on with its own.
	NewSession bool
	// Keep has the layer, or the place, kept, as [jobs.KeepAlways] of a task.
	Keep bool
	// Credentials are those of the configuration: of those that the job has, it says
	// where their keys are.
	Credentials []jobs.Credential
}

// NotesHeading is the heading in a prompt under which stands what a review has said.
const NotesHeading = "Notes from review"

const (
	maxNote   = 64 << 10 // bytes
	maxPrompt = 1 << 20  // of a prompt with notes
)

// PlanRetry plans an ended job once more, as a job of its own: with all that was settled
// for it, from the same commit, and without the jobs that it waited for. What the site
// bounds, and what has to be here, is looked at again. Both results are for
// [Engine.Submit].
func (e *Engine) PlanRetry(ctx context.Context, rec *jobs.Record, o RetryOptions) (*jobs.Spec, jobs.Task, error) {
	fail := func(err error) (*jobs.Spec, jobs.Task, error) { return nil, jobs.Task{}, err }
	short := jobs.Short(rec.Spec.ID)
	if state := jobs.StateOf(rec); !state.Final() {
		return fail(&jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has not ended: it is " + string(state), Hint: "berth cancel " + short})
	}
	if rec.Spec.Pulls() {
		return fail(&jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " fetched images for berth, and has no task", Hint: "berth image pull"})
	}
	s := rec.Spec
	var err error
	if s.ID, err = ids.New(); err != nil {
		return fail(err)
	}
	s.Host, _ = os.Hostname()
	s.Created, s.User, s.RetryOf = e.Now().UTC(), identity().User, rec.Spec.ID
	s.Key, s.After, s.Notes = "", nil, nil
	if s.Verifies {
		s.Notes = append(s.Notes, "this looks at the result of another job again; only berth review run JOB records that with the review")
	}
	if o.Keep {
		s.Overlay.Keep = jobs.KeepAlways
	}
	t := jobs.Task{Name: s.Name, Command: s.Command, Place: s.Place, File: s.TaskFile}
	if o.Keep {
		if err := e.settleLayer(&s, t); err != nil {
			return fail(err)
		}
	}
	if t.Source, err = store.TaskSource(rec.Dir); err != nil {
		return fail(err)
	}
	note := o.Note
	if note == "" && rec.Spec.Prompt {
		if note, err = rejected(rec.Dir); err != nil {
			return fail(err)
		}
	}
	if t.Prompt, err = promptAgain(rec, note); err != nil {
		return fail(err)
	}
	s.PromptBytes = len(t.Prompt)
	if w := rec.Spec.Workspace; w != nil {
		t.Workspace = &jobs.Workspace{Repo: w.Repo, Base: w.Base, Scope: w.Scope}
		if o.Base != "" {
			t.Workspace.Base = o.Base
		}
		for _, o := range rec.Spec.Further {
			t.Further = append(t.Further, jobs.Workspace{Name: o.Name, Repo: o.Repo, Base: o.Base, Scope: o.Scope})
		}
		if err := e.settleWorkspace(ctx, &s, t); err != nil {
			return fail(err)
		}
		if s.Workspace.Base == w.Base { // which has no name of its own
			s.Workspace.BaseRef = w.BaseRef
		}
		s.Workspace.ReadOnly = w.ReadOnly
		for i := range s.Further {
			s.Further[i].BaseRef = rec.Spec.Further[i].BaseRef
		}
	} else if o.Base != "" {
		return fail(&jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has no workspace, and so nothing to start from",
			Hint: "leave --base out"})
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.Hold(&s.Place, false)
	}
	if err != nil {
		return fail(err)
	}
	if s.Agent != nil {
		s.Agent = sessionAgain(rec, o.NewSession, &s.Notes)
	}
	if _, err := e.survey(ctx, &s, t); err != nil {
		return fail(err)
	}
	if err := imagesThere(&s, short); err != nil {
		return fail(err)
	}
	for _, name := range s.EnvNames {
		if _, ok := e.Getenv(name); !ok {
			return fail(&jobs.Error{Kind: jobs.KindUsage, Msg: "the task takes " + name + " from your environment, where it is not set",
				Hint: "export " + name + "=..."})
		}
	}
	for _, c := range s.Credentials {
		i := slices.IndexFunc(o.Credentials, func(have jobs.Credential) bool { return have.Name == c.Name })
		if i < 0 {
			return fail(&jobs.Error{Kind: jobs.KindNotFound,
				Msg:  "job " + short + " uses the credential " + c.Name + ", which the configuration does not have any more",
				Hint: "add [credentials." + c.Name + "] there"})
		}
		t.Credentials = append(t.Credentials, o.Credentials[i])
	}
	return &s, t, checkSpec(&s)
}

// imagesThere refuses to try a job again whose images are gone, those that jobs of its task
// may have, too.
func imagesThere(s *jobs.Spec, short string) error {
	files := []string{s.Image}
	if s.Submit != nil {
		for _, i := range s.Submit.Images {
			files = append(files, i.Image)
		}
	}
	for n, file := range files {
		if s.Login != nil || !filepath.IsAbs(file) {
			continue
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			what := "the image"
			if n > 0 {
				what = "an image of [submit]"
			}
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: what + " of job " + short + " is gone: " + file,
				Hint: "submit the task itself again: berth submit TASK.md"}
		}
	}
	return nil
}

// sessionAgain is the agent of another try of a job: with its session of the job before,
// where the files of that are still there. The notes say which.
func sessionAgain(rec *jobs.Record, fresh bool, notes *[]string) *jobs.Agent {
	a := *rec.Spec.Agent
	a.Session = ""
	x := rec.Current().Exit
	if fresh || x == nil || x.Agent == nil {
		return &a
	}
	id := cmp.Or(x.Agent.Session, x.Agent.Continued) // it may have been stopped before its first word
	if !jobs.IsSession(id) {
		return &a
	}
	s, why := &rec.Spec, ""
	switch o := x.Overlay; {
	case a.Resume.Empty():
		why = "its command has no option for one"
	case !s.Can().Leaves():
		why = "the backend " + s.Backend + " keeps nothing outside of the workspace"
	case s.Can().Bare: // its HOME is the user's own
	case s.Overlay.Name == "":
		why = "the layer with its files was thrown away; a named overlay keeps them"
	case o == nil || o.Way != jobs.WayInPlace && !o.Promoted:
		why = "overlay " + s.Overlay.Name + " is as it was before that job"
	}
	if why != "" {
		*notes = append(*notes, "the agent "+a.Name+" begins a new session: "+why)
		return &a
	}
	a.Session = id
	*notes = append(*notes, "the agent "+a.Name+" goes on with its session "+a.Session+" of job "+jobs.Short(s.ID))
	return &a
}

// rejected is the note of the last verdict, where that is a reject.
func rejected(jobDir string) (string, error) {
	rs, err := store.LoadReviews(jobDir)
	if err != nil {
		return "", err
	}
	if v := rs.Verdict(); v != nil && v.Verdict == jobs.VerdictReject {
		return v.Note, nil
	}
	return "", nil
}

// promptAgain is the prompt of a job with a note.
func promptAgain(rec *jobs.Record, note string) (string, error) {
	short := jobs.Short(rec.Spec.ID)
	note = strings.TrimSpace(strings.ReplaceAll(note, "\r\n", "\n"))
	if !rec.Spec.Prompt {
		if note != "" {
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + short + " has no prompt, and so no place for a note",
				Hint: "leave --note out"}
		}
		return "", nil
	}
	b, err := store.Prompt(rec.Dir, rec.Spec.PromptBytes)
	if err != nil {
		return "", err
	}
	if note == "" {
		return string(b), nil
	}
	if err := jobs.CheckText("the note", strings.NewReplacer("\n", "", "\t", "").Replace(note)); err != nil {
		return "", err
	}
	text := strings.TrimRight(string(b), "\n")
	if !strings.Contains("\n"+text, "\n## "+NotesHeading+"\n") {
		text += "\n\n## " + NotesHeading + "\n"
	}
	text += "\n- " + strings.ReplaceAll(note, "\n", "\n  ") + "\n"
	if len(note) > maxNote || len(text) > maxPrompt {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the note has %d bytes, and the prompt %d with it", len(note), len(text)),
			Hint: fmt.Sprintf("at most %s and %s", jobs.Bytes(maxNote), jobs.Bytes(maxPrompt))}
	}
	return text, nil
}
