package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/engine"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Job is what a model is told of a job in few words.
type Job struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Final       bool       `json:"final" jsonschema:"it has ended"`
	ExitCode    int        `json:"exit_code" jsonschema:"0 completed, 1 the task failed, 7 no changes, 8 goes on, 9 out of scope, 10 a cap, 124 timeout"`
	Reason      string     `json:"reason,omitempty"`
	Hint        string     `json:"hint,omitempty"`
	Scheduler   string     `json:"scheduler"`
	NativeID    string     `json:"native_id,omitempty" jsonschema:"the scheduler's own id"`
	Waiting     string     `json:"waiting,omitempty" jsonschema:"why it has not begun"`
	Containment string     `json:"containment"`
	Attempt     int        `json:"attempt"`
	Branch      string     `json:"branch,omitempty" jsonschema:"of its result"`
	Changes     string     `json:"changes,omitempty"`
	Progress    string     `json:"progress,omitempty" jsonschema:"what the task tells of itself"`
	Labels      []string   `json:"labels,omitempty"`
	Submitted   time.Time  `json:"submitted"`
	Started     *time.Time `json:"started,omitempty"`
	Ended       *time.Time `json:"ended,omitempty"`
	// Record is all that is known, as berth status --json prints it.
	Record any `json:"-"`
}

type idIn struct {
	ID string `json:"id" jsonschema:"of a job, or its beginning; or of a request of task_submit"`
}

type statusOut struct {
	Job     *Job     `json:"job,omitempty"`
	Record  any      `json:"record,omitempty" jsonschema:"all that is known of it"`
	Request *waiting `json:"request,omitempty" jsonschema:"in place of a job that a person has not confirmed yet"`
}

// waiting is a request, as its client sees it.
type waiting struct {
	ID    string `json:"id"`
	State string `json:"state" jsonschema:"waiting, refused, expired or confirmed"`
	Next  string `json:"next,omitempty" jsonschema:"what a person has to do"`
}

type waitIn struct {
	ID      string  `json:"id" jsonschema:"of a job, or of a request of task_submit"`
	Timeout float64 `json:"timeout_s,omitempty" jsonschema:"seconds to wait at most; default 45, at most 86400"`
}

type waitOut struct {
	Done    bool     `json:"done" jsonschema:"false: call again"`
	Job     *Job     `json:"job,omitempty"`
	Request *waiting `json:"request,omitempty"`
}

type jobsIn struct {
	State  string `json:"state,omitempty" jsonschema:"all (the default), or open: queued or running"`
	Label  string `json:"label,omitempty"`
	Offset int    `json:"offset,omitempty" jsonschema:"jobs to leave out, newest first"`
	Limit  int    `json:"limit,omitempty" jsonschema:"jobs at most; default 20"`
}

type jobsOut struct {
	Jobs       []Job    `json:"jobs"`
	NextOffset int      `json:"next_offset"`
	More       bool     `json:"more"`
	Notes      []string `json:"notes,omitempty"`
}

type queueOut struct {
	Jobs    []Job    `json:"jobs" jsonschema:"oldest first"`
	Waiting int      `json:"waiting"`
	Running int      `json:"running"`
	More    bool     `json:"more"`
	Notes   []string `json:"notes,omitempty"`
}

type logsIn struct {
	ID     string `json:"id"`
	Of     string `json:"of,omitempty" jsonschema:"command (the default), done: the done commands, or runtime: messages of runner, container program and scheduler"`
	Stream string `json:"stream,omitempty" jsonschema:"stdout (the default) or stderr"`
	span
}

type diffIn struct {
	ID string `json:"id"`
	span
}

type reviewIn struct {
	ID   string `json:"id"`
	Onto string `json:"onto,omitempty" jsonschema:"the branch that it is for; default the one that the task started from"`
}

type reviewOut struct {
	Review any `json:"review" jsonschema:"what there is to decide: state, changed files with why to look at them, checks, conflicts, verdicts"`
}

func (s *Server) jobTools() {
	reads := hints{reads: true}
	tool(s, "task_list", "List jobs, newest first.", reads, s.tasks)
	tool(s, "task_status", "Show one job in full.", reads, s.status)
	tool(s, "task_wait", "Wait until a job has ended, or until timeout_s. One call sleeps for as long: do not poll task_status.", reads, s.wait)
	tool(s, "task_logs", "Read a part of what a job has written.", reads, s.logs)
	tool(s, "task_diff", "Read a part of the patch that a job has made.", reads, s.diff)
	tool(s, "review_get", "Show what a person has to decide of a job's result.", reads, s.review)
	tool(s, "queue", "List the jobs that are queued or running, and why each one waits.", reads, s.queue)
	if s.Submit {
		tool(s, "task_submit",
			"Submit a task file as a job. A person sees it with its caps and cost, "+
				"and confirms it outside of this conversation; then task_wait goes on. "+
				"The same call with the same idempotency_key gives the same job.", hints{repeats: true, open: true}, s.submit)
		tool(s, "task_cancel", "End a job that was submitted by task_submit.", hints{destroys: true, repeats: true}, s.cancel)
	}
}

// find finds a job by its id, or by that of the request that it was made of.
func (s *Server) find(id string) (*jobs.Record, *Request, error) {
	if strings.TrimSpace(id) == "" {
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the id is empty", Hint: "task_list"}
	}
	if !isRequest(id) {
		rec, err := s.Engine.Store.Find(id)
		return rec, nil, err
	}
	r, err := s.requests.Load(id)
	if err != nil {
		return nil, nil, err
	}
	rec, err := s.Submitter.Made(r)
	return rec, r, err
}

// waiting says how far a request is.
func (s *Server) waiting(r *Request) *waiting {
	w := &waiting{ID: r.ID, State: s.requests.State(r)}
	switch w.State {
	case StateWaiting:
		w.Next = "a person runs, in a terminal of their own: berth mcp confirm " + r.ID
	case stateConfirmed:
		w.Next = "it is being submitted; where that has failed, a person runs once more: berth mcp confirm " + r.ID
	case stateExpired:
		w.Next = "submit it again"
	}
	return w
}

// job finds a job that is there.
func (s *Server) job(id string) (*jobs.Record, error) {
	rec, r, err := s.find(id)
	if err == nil && rec == nil {
		w := s.waiting(r)
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the request " + r.ID + " has no job: it is " + w.State, Hint: w.Next}
	}
	return rec, err
}

// views brings records up to date.
func (s *Server) views(ctx context.Context, recs []*jobs.Record) (out []Job, notes []string) {
	out = make([]Job, 0, len(recs))
	for _, v := range s.Engine.Reconcile(ctx, recs) {
		if v.AskError != nil {
			notes = append(notes, jobs.Printable("the last known state of "+jobs.Short(v.Spec.ID)+": "+v.AskError.Error()))
		}
		out = append(out, s.Job(v))
	}
	return out, notes
}

func (s *Server) status(ctx context.Context, _ *sdk.CallToolRequest, in idIn) (*statusOut, error) {
	rec, r, err := s.find(in.ID)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return &statusOut{Request: s.waiting(r)}, nil
	}
	list, _ := s.views(ctx, []*jobs.Record{rec})
	return &statusOut{Job: &list[0], Record: list[0].Record}, nil
}

func (s *Server) wait(ctx context.Context, r *sdk.CallToolRequest, in waitIn) (*waitOut, error) {
	if in.Timeout == 0 {
		in.Timeout = 45
	}
	limit, err := within("timeout_s", in.Timeout, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	rec, asked, err := s.find(in.ID)
	if err != nil {
		return nil, err
	}
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	say, stop := progress(ctx, r, "waiting")
	defer stop()
	if rec == nil {
		say("waiting for a person: berth mcp confirm " + asked.ID)
		if asked, err = s.requests.wait(until, asked.ID); err != nil {
			return nil, err
		}
		for asked.Answer != nil && asked.Answer.Confirmed && rec == nil && until.Err() == nil {
			if rec, err = s.Submitter.Made(asked); err != nil {
				return nil, err
			}
			if rec == nil { // it is being submitted
				_ = engine.Sleep(until, 200*time.Millisecond)
			}
		}
		if rec == nil {
			w := s.waiting(asked)
			return &waitOut{Done: w.State == stateRefused || w.State == stateExpired, Request: w}, ctx.Err()
		}
	}
	var last engine.View
	v, err := s.Engine.Wait(until, rec.Spec.ID, func(v engine.View) {
		last = v
		say("the job is " + string(v.State))
	})
	switch {
	case err == nil:
	case ctx.Err() != nil || until.Err() == nil:
		return nil, err
	case last.Record != nil:
		v = last
	default:
		v = s.Engine.Reconcile(ctx, []*jobs.Record{rec})[0]
	}
	j := s.Job(v)
	return &waitOut{Done: v.State.Final(), Job: &j}, nil
}

// records reads the jobs, newest first.
func (s *Server) records(open bool) ([]*jobs.Record, []string, error) {
	list := s.Engine.Store.List
	if open {
		list = s.Engine.Store.ListOpen
	}
	recs, err := list()
	if recs == nil && err != nil {
		return nil, nil, err
	}
	var notes []string
	if err != nil {
		notes = []string{jobs.Printable(err.Error())}
	}
	slices.SortFunc(recs, func(a, b *jobs.Record) int { return b.Spec.Created.Compare(a.Spec.Created) })
	return recs, notes, nil
}

func (s *Server) tasks(ctx context.Context, _ *sdk.CallToolRequest, in jobsIn) (*jobsOut, error) {
	limit, err := entries(in.Offset, in.Limit, 20)
	if err != nil {
		return nil, err
	}
	if in.State != "" && in.State != "all" && in.State != "open" {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("state must be all or open, found %q", in.State)}
	}
	recs, notes, err := s.records(in.State == "open")
	if err != nil {
		return nil, err
	}
	recs = slices.DeleteFunc(recs, func(r *jobs.Record) bool {
		return in.Label != "" && !slices.Contains(r.Spec.Labels, in.Label) || in.State == "open" && jobs.StateOf(r).Final()
	})
	out := &jobsOut{}
	recs, out.NextOffset, out.More = part(recs, in.Offset, limit, false)
	var more []string
	out.Jobs, more = s.views(ctx, recs)
	out.Notes = append(notes, more...)
	return out, nil
}

// mostQueued is how many jobs of the queue are shown.
const mostQueued = 200

func (s *Server) queue(ctx context.Context, _ *sdk.CallToolRequest, _ none) (*queueOut, error) {
	recs, notes, err := s.records(true)
	if err != nil {
		return nil, err
	}
	slices.Reverse(recs)
	list, more := s.views(ctx, recs)
	out := &queueOut{Jobs: []Job{}, Notes: append(notes, more...)}
	for _, j := range list {
		switch {
		case j.Final:
			continue
		case j.State == string(jobs.StateRunning):
			out.Running++
		default:
			out.Waiting++
		}
		if out.More = len(out.Jobs) == mostQueued; !out.More {
			out.Jobs = append(out.Jobs, j)
		}
	}
	return out, nil
}

func (s *Server) logs(ctx context.Context, _ *sdk.CallToolRequest, in logsIn) (*Page, error) {
	kinds := map[string]engine.LogKind{"": engine.LogCommand, "command": engine.LogCommand, "done": engine.LogDone, "runtime": engine.LogRuntime}
	kind, ok := kinds[in.Of]
	if !ok || in.Stream != "" && in.Stream != "stdout" && in.Stream != "stderr" {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "of must be command, done or runtime, and stream stdout or stderr"}
	}
	rec, err := s.job(in.ID)
	if err != nil {
		return nil, err
	}
	p, err := whole(in.span, func(w io.Writer) error {
		o := engine.LogOptions{Kind: kind, Stdout: w}
		if in.Stream == "stderr" {
			o.Stdout, o.Stderr = nil, w
		}
		_, err := s.Engine.Log(ctx, rec, o)
		return err
	})
	return &p, err
}

func (s *Server) diff(_ context.Context, _ *sdk.CallToolRequest, in diffIn) (*Page, error) {
	rec, err := s.job(in.ID)
	if err != nil {
		return nil, err
	}
	p, err := whole(in.span, func(w io.Writer) error {
		f, err := s.Engine.Diff(rec)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = io.Copy(w, f)
		return err
	})
	return &p, err
}

func (s *Server) review(ctx context.Context, _ *sdk.CallToolRequest, in reviewIn) (*reviewOut, error) {
	rec, err := s.job(in.ID)
	if err != nil {
		return nil, err
	}
	if !jobs.StateOf(rec).Final() || rec.BranchMissing() {
		rec = s.Engine.Reconcile(ctx, []*jobs.Record{rec})[0].Record
	}
	rv, files, err := s.Engine.ReviewFiles(ctx, rec, in.Onto)
	if err != nil {
		return nil, err
	}
	return &reviewOut{s.Review(rv, files)}, nil
}

type cancelOut struct {
	Job   Job  `json:"job"`
	Asked bool `json:"asked" jsonschema:"false: it had ended already"`
}

func (s *Server) cancel(ctx context.Context, _ *sdk.CallToolRequest, in idIn) (*cancelOut, error) {
	rec, err := s.job(in.ID)
	if err != nil {
		return nil, err
	}
	short := jobs.Short(rec.Spec.ID)
	if !slices.Contains(rec.Spec.Labels, Label) {
		return nil, &jobs.Error{Kind: jobs.KindAuth, Msg: "job " + short + " was not submitted by task_submit, and is not ended by task_cancel",
			Hint: "a person runs: berth cancel " + short}
	}
	views := s.Engine.Reconcile(ctx, []*jobs.Record{rec})
	out := &cancelOut{Asked: !views[0].State.Final()}
	if out.Asked {
		if err := s.Engine.Cancel(ctx, views, engine.Identity().User); err != nil {
			return nil, err
		}
	}
	out.Job = s.Job(views[0])
	return out, nil
}

type submitIn struct {
	Task string `json:"task,omitempty" jsonschema:"the text of a task file: TOML between lines of +++, then the prompt as Markdown. Give this or file"`
	File string `json:"file,omitempty" jsonschema:"a task file below the server's directory, by a relative path"`
	Key  string `json:"idempotency_key" jsonschema:"chosen by you, another one for each job: repeating the call gives the same job"`
}

type submitOut struct {
	Job     *Job     `json:"job,omitempty"`
	Request *waiting `json:"request,omitempty" jsonschema:"a person has to confirm it: wait with task_wait and its id"`
}

// Words of a question to a client.
const (
	askName  = "confirm"
	askField = "submit"
	// mostAsked is how much a client is given to show, in bytes: what is longer is
	// confirmed on a terminal, where all of it is seen.
	mostAsked = 20_000
)

func (s *Server) submit(ctx context.Context, r *sdk.CallToolRequest, in submitIn) (*sdk.CallToolResult, error) {
	asked, err := s.request(r, in)
	if err != nil {
		return nil, err
	}
	req, err := s.requests.earlier(asked)
	if err != nil {
		return nil, err
	}
	if req != nil && s.requests.State(req) == stateRefused {
		return nil, refused(req)
	}
	if req != nil {
		if rec, err := s.Submitter.Made(req); rec != nil || err != nil {
			return s.submitted(ctx, rec, err)
		}
	}
	// A task that cannot be a job takes no key.
	p, err := s.Submitter.Propose(ctx, asked)
	if err != nil {
		return nil, err
	}
	if req == nil {
		if req, err = s.requests.add(*asked); err != nil {
			return nil, err
		}
	}
	if a := req.Answer; a != nil && a.Shown != p.Digest() {
		return nil, changed(req)
	}
	if s.requests.late(req) {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "the request " + req.ID + " was confirmed more than a day ago, and not submitted then",
			Hint: "a person runs, in a terminal of their own: berth mcp confirm " + req.ID}
	}
	if req.Answer == nil {
		yes, question, err := s.mayStart(r, req, p)
		if err != nil || question != nil {
			return question, err
		}
		if !yes {
			return answer(&submitOut{Request: s.waiting(req)})
		}
	}
	rec, err := s.Submitter.Submit(ctx, req, p)
	return s.submitted(ctx, rec, err)
}

func refused(req *Request) error {
	return &jobs.Error{Kind: jobs.KindAuth, Msg: "a person has refused the request " + req.ID,
		Hint: "ask them what to change, and submit that with another idempotency_key"}
}

func (s *Server) submitted(ctx context.Context, rec *jobs.Record, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	list, _ := s.views(ctx, []*jobs.Record{rec})
	return answer(&submitOut{Job: &list[0]})
}

// request is what a call asks for.
func (s *Server) request(r *sdk.CallToolRequest, in submitIn) (*Request, error) {
	if strings.TrimSpace(in.Key) == "" || len(in.Key) > 400 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "idempotency_key must have 1 to 400 bytes, and not only blanks"}
	}
	if err := jobs.CheckText("idempotency_key", in.Key); err != nil {
		return nil, err
	}
	req := &Request{Key: in.Key, Text: in.Task, File: textFile(s.Dir), Client: client(r)}
	switch {
	case (in.Task == "") == (in.File == ""):
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "give task, the text of a task file, or file, its path: one of them"}
	case in.File != "":
		b, err := s.taskFile(in.File)
		if err != nil {
			return nil, err
		}
		req.Text, req.File, req.Given = string(b), filepath.Join(s.Dir, in.File), true
	}
	if len(req.Text) > mostTask {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("a task file has at most %d bytes here", mostTask)}
	}
	return req, nil
}

// taskFile reads a file below the server's directory. No link leads out of it: what is
// wrong with a file is told with words of it.
func (s *Server) taskFile(name string) ([]byte, error) {
	if err := jobs.CheckText("file", name); err != nil {
		return nil, err
	}
	fail := func(err error) error {
		kind := jobs.KindUsage
		if errors.Is(err, fs.ErrNotExist) {
			kind = jobs.KindNotFound
		}
		return &jobs.Error{Kind: kind, Msg: "the task file " + name, Err: err, Hint: "give the path of a file below " + s.Dir}
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, fail(err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO is not waited for
	if err != nil {
		return nil, fail(err)
	}
	defer func() { _ = f.Close() }()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, fail(cmp.Or(err, errors.New("it is no file")))
	}
	b, err := io.ReadAll(io.LimitReader(f, mostTask+1))
	if err != nil {
		return nil, fail(err)
	}
	return b, nil
}

// mayStart finds out whether a proposal may be submitted now: by the user's configuration,
// or by a client that can ask its user. What it returns beside is a question for that.
func (s *Server) mayStart(r *sdk.CallToolRequest, req *Request, p *Proposal) (bool, *sdk.CallToolResult, error) {
	by := engine.Identity().User
	if s.Unconfirmed && !p.Asks {
		return true, nil, s.requests.AnswerTo(req, Answer{Confirmed: true, Way: "configuration", By: by, Shown: p.Digest()})
	}
	if said, ok := r.Params.InputResponses[askName].(*sdk.ElicitResult); ok {
		digest, _ := s.shown.Swap(req.ID, "") // it is asked no second time
		yes, chosen := said.Content[askField].(bool)
		if digest != p.Digest() || said.Action != "accept" || !chosen {
			// Clients without a person at them answer so, too: a terminal decides.
			return false, nil, nil
		}
		if err := s.requests.AnswerTo(req, Answer{Confirmed: yes, Way: "client", By: by, Shown: p.Digest()}); err != nil || yes {
			return yes, nil, err
		}
		return false, nil, refused(req)
	}
	if !canAsk(r) || len(p.Text) > mostAsked {
		return false, nil, nil
	}
	if _, was := s.shown.LoadOrStore(req.ID, p.Digest()); was {
		return false, nil, nil // the question is open, or has come to nothing
	}
	return false, &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{askName: &sdk.ElicitParams{
		Message: "berth: submit this job? The request " + req.ID + " comes from a model.\n\n" + p.Text,
		RequestedSchema: map[string]any{"type": "object", "required": []string{askField}, "properties": map[string]any{
			askField: map[string]any{"type": "boolean", "title": "Submit the job", "description": "false refuses it"},
		}},
	}}, RequestState: req.ID}, nil
}

// canAsk reports whether a client can ask its user.
func canAsk(r *sdk.CallToolRequest) bool {
	p := r.Session.InitializeParams()
	return p != nil && p.Capabilities != nil && p.Capabilities.Elicitation != nil &&
		(p.Capabilities.Elicitation.Form != nil || p.Capabilities.Elicitation.URL == nil)
}
