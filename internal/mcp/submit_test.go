package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/mcp"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const hello = "+++\nname = \"hello\"\nlabels = [\"mine\"]\n[agent]\ncommand = \"echo hello; echo err >&2\"\n[terminal]\nbackend = \"local\"\n+++\nSay \x1b]0;x\x07 hello.\n"

type submitted struct {
	Job *struct {
		ID     string   `json:"id"`
		State  string   `json:"state"`
		Labels []string `json:"labels"`
	} `json:"job"`
	Request *struct{ ID, State, Next string } `json:"request"`
	Done    bool                              `json:"done"`
}

// confirm is what a person's berth mcp confirm does.
func (f *fixture) confirm(id string) *jobs.Record {
	f.Helper()
	q := mcp.RequestsIn(f.engine.Store.Home(), time.Now)
	r, err := q.Load(id)
	if err != nil {
		f.Fatal(err)
	}
	p, err := f.sub.Propose(f.Context(), r)
	if err != nil {
		f.Fatal(err)
	}
	if err := q.AnswerTo(r, mcp.Answer{Confirmed: true, Shown: p.Digest()}); err != nil {
		f.Fatal(err)
	}
	rec, err := f.sub.Submit(f.Context(), r, p)
	if err != nil {
		f.Fatal(err)
	}
	return rec
}

// A submission waits for a person, whatever is called meanwhile; then there is one job.
func TestSubmit(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	args := map[string]any{"task": hello, "idempotency_key": "k1"}
	var s submitted
	f.call(c, "task_submit", args, &s)
	if s.Job != nil || s.Request == nil || s.Request.State != "waiting" || !strings.Contains(s.Request.Next, "berth mcp confirm "+s.Request.ID) {
		t.Fatalf("%+v", s)
	}
	id := s.Request.ID
	f.call(c, "task_submit", args, &s)
	if s.Job != nil || s.Request.ID != id {
		t.Fatalf("%+v", s)
	}
	f.call(c, "task_wait", map[string]any{"id": id, "timeout_s": 0.1}, &s)
	if s.Done || s.Request.State != "waiting" {
		t.Fatalf("%+v", s)
	}
	f.fails(c, "task_submit", map[string]any{"task": hello + "more", "idempotency_key": "k1"}, 2, "another task")
	f.fails(c, "task_logs", map[string]any{"id": id}, 3, "it is waiting")
	if list, err := f.engine.Store.List(); err != nil || len(list) != 0 {
		t.Fatalf("%d jobs, %v", len(list), err)
	}
	fi, err := os.Stat(filepath.Join(f.engine.Store.Home(), "mcp", "requests", id, "request.json"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", fi, err)
	}

	waited := make(chan submitted, 1)
	go func() {
		var s submitted
		f.call(c, "task_wait", map[string]any{"id": id, "timeout_s": 60}, &s)
		waited <- s
	}()
	rec := f.confirm(id)
	if s = <-waited; !s.Done || s.Job == nil || s.Job.ID != rec.Spec.ID || s.Job.State != "completed" {
		t.Fatalf("%+v", s)
	}
	if got := strings.Join(s.Job.Labels, " "); got != "mine mcp" {
		t.Fatalf("labels %s", got)
	}
	f.call(c, "task_submit", args, &s)
	if s.Job == nil || s.Job.ID != rec.Spec.ID {
		t.Fatalf("%+v", s)
	}
	if list, err := f.engine.Store.List(); err != nil || len(list) != 1 {
		t.Fatalf("%d jobs, %v", len(list), err)
	}
	var p page
	f.call(c, "task_logs", map[string]any{"id": id, "limit": 3}, &p)
	if p.Text != "hel" || !p.More {
		t.Fatalf("%+v", p)
	}
	f.call(c, "task_logs", map[string]any{"id": id, "stream": "stderr"}, &p)
	if p.Text != "err\n" {
		t.Fatalf("%+v", p)
	}
	f.fails(c, "task_diff", map[string]any{"id": id}, 3, "no diff")
	f.fails(c, "review_get", map[string]any{"id": id}, 2, "no workspace")
	r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "berth://job/" + rec.Spec.ID + "/stdout"})
	if err != nil || r.Contents[0].Text != "hello\n" {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "berth://job/" + rec.Spec.ID})
	if err != nil || !strings.Contains(r.Contents[0].Text, rec.Spec.ID) {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, bad := range []string{"berth://job/zzz", "berth://job/" + rec.Spec.ID + "/../../env", "berth://job/" + rec.Spec.ID + "/secrets"} {
		if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: bad}); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	var q struct {
		Jobs []struct{ ID string } `json:"jobs"`
		More bool                  `json:"more"`
	}
	f.call(c, "task_list", map[string]any{"label": "mine"}, &q)
	if len(q.Jobs) != 1 || q.More {
		t.Fatalf("%+v", q)
	}
	f.call(c, "queue", map[string]any{}, &q)
	if len(q.Jobs) != 0 {
		t.Fatalf("%+v", q)
	}
}

// What a person reads has no control characters, names what matters, and is the same each
// time.
func TestProposal(t *testing.T) {
	f := newFixture(t, all)
	r := &mcp.Request{ID: "req-000000000000", Key: "k", File: filepath.Join(f.dir, "task"),
		Text: strings.Replace(hello, "+++\nSay", "[resources]\ntime = \"2h\"\ncpus = 3\n+++\nSay", 1) + strings.Repeat("x", 400) + " hidden"}
	p, err := f.sub.Propose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"task         hello\n", "IT HAS YOUR OWN RIGHTS", "\nnetwork      open\n", "up to 36.00 core-hours in 6 attempts", "--- command ---\n| echo hello; echo err >&2\n", "--- prompt ---\n| Say \\u{1b}]0;x\\u{7} hello.\n", "--- job script ---\n| #!", "/jobs/00/00000000-0000-0000-0000-000000000000/"} {
		if !strings.Contains(strings.ReplaceAll(p.Text, "\n> ", ""), want) {
			t.Errorf("%q is not in:\n%s", want, p.Text)
		}
	}
	for line := range strings.SplitSeq(p.Text, "\n") {
		if strings.ContainsAny(line, "\x1b\x07") || len(line) > 78 {
			t.Errorf("a line that drives a terminal, or is too long to be seen: %q", line)
		}
	}
	again, err := f.sub.Propose(t.Context(), r)
	if err != nil || again.Digest() != p.Digest() {
		t.Fatalf("it is another one the second time: %v\n%s\n%s", err, p.Text, again.Text)
	}
}

// Nothing else is submitted than what was shown.
func TestChanged(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	var s submitted
	f.call(c, "task_submit", map[string]any{"task": hello, "idempotency_key": "k"}, &s)
	q := mcp.RequestsIn(f.engine.Store.Home(), time.Now)
	r, err := q.Load(s.Request.ID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.sub.Propose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	settle := f.sub.Settle
	f.sub.Settle = func(t *jobs.Task) (engine.Choice, []string, error) {
		t.Env = append(t.Env, "EVIL=1")
		return settle(t)
	}
	other, err := f.sub.Propose(t.Context(), r)
	if err != nil || other.Digest() == p.Digest() {
		t.Fatalf("the change is not shown: %v", err)
	}
	if err := q.AnswerTo(r, mcp.Answer{Confirmed: true, Shown: p.Digest()}); err != nil {
		t.Fatal(err)
	}
	f.fails(c, "task_submit", map[string]any{"task": hello, "idempotency_key": "k"}, 75, "not the one any more")
	if list, _ := f.engine.Store.List(); len(list) != 0 {
		t.Fatal("it was submitted")
	}
}

// What is resolved once more is compared, too, where nothing of it is read on the screen.
func TestChangedUnseen(t *testing.T) {
	f := newFixture(t, all)
	r := &mcp.Request{ID: "req-000000000000", Key: "k", File: filepath.Join(f.dir, "task"), Text: hello}
	p, err := f.sub.Propose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	settle, price := f.sub.Settle, 1.0
	f.sub.Settle = func(t *jobs.Task) (engine.Choice, []string, error) {
		t.Prices.Models = []jobs.Price{{Model: "m", Input: price}}
		return settle(t)
	}
	one, err := f.sub.Propose(t.Context(), r)
	if err != nil || one.Text != p.Text || one.Digest() == p.Digest() {
		t.Fatalf("the change does not count: %v", err)
	}
	// What the plan resolves by itself: the commit behind a branch.
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", f.dir, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "one")
	r = &mcp.Request{ID: "req-000000000001", Key: "k2", File: filepath.Join(f.dir, "task"), Text: strings.Replace(hello, "[agent]", "[workspace]\nrepo = \".\"\n[agent]", 1)}
	if p, err = f.sub.Propose(t.Context(), r); err != nil || !strings.Contains(p.Text, "\nfrom commit  "+git("rev-parse", "HEAD")+", of main\n") {
		t.Fatalf("%v: %+v", err, p)
	}
	git("commit", "-q", "--allow-empty", "-m", "two")
	if rec, err := f.sub.Submit(t.Context(), r, p); rec != nil || jobs.CodeOf(err) != 75 {
		t.Fatalf("%v, %v", rec, err)
	}
	if p, err = f.sub.Propose(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	rec, err := f.sub.Submit(t.Context(), r, p)
	if err != nil {
		t.Fatal(err)
	}
	must(f.engine.Wait(t.Context(), rec.Spec.ID, nil))
}

// A client that can ask its user does; what its user says counts, and an empty yes does not.
func TestElicitation(t *testing.T) {
	answers := map[string]*sdk.ElicitResult{
		"yes":     {Action: "accept", Content: map[string]any{"submit": true}},
		"no":      {Action: "accept", Content: map[string]any{"submit": false}},
		"decline": {Action: "decline"},
		"cancel":  {Action: "cancel"},
		"empty":   {Action: "accept", Content: map[string]any{}},
	}
	f := newFixture(t, all)
	next, asked := "", 0
	c := f.client(&sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		asked++
		if !strings.Contains(r.Params.Message, "--- job script ---") || !strings.Contains(r.Params.Message, "cost ") {
			t.Errorf("asked: %s", r.Params.Message)
		}
		if a := answers[next]; a != nil {
			return a, nil
		}
		return nil, errors.New("the user has left")
	}})
	submit := func(key, task string) *sdk.CallToolResult {
		next = key
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "task_submit", Arguments: map[string]any{"task": task, "idempotency_key": key}})
		if err != nil {
			return &sdk.CallToolResult{IsError: true}
		}
		return r
	}
	text := func(r *sdk.CallToolResult) string { return fmt.Sprint(r.StructuredContent) }
	if r := submit("yes", hello); r.IsError || !strings.Contains(text(r), "job:map") {
		t.Errorf("yes: %s", text(r))
	}
	if r := submit("no", hello); !r.IsError || !strings.Contains(text(r), "has refused") {
		t.Errorf("no: %s", text(r))
	}
	// What a client may have answered by itself decides nothing, and is asked once.
	for _, open := range []string{"decline", "cancel"} {
		if r := submit(open, hello); r.IsError || !strings.Contains(text(r), "waiting") {
			t.Errorf("%s: %s", open, text(r))
		}
	}
	before := asked
	for _, again := range []string{"no", "decline", "cancel"} {
		if r := submit(again, hello); asked != before || strings.Contains(text(r), "job:map") {
			t.Errorf("%s: it was asked once more: %s", again, text(r))
		}
	}
	if r := submit("empty", hello); strings.Contains(text(r), "job:map") {
		t.Errorf("empty: %s", text(r))
	}
	if r := submit("gone", hello); !r.IsError {
		t.Errorf("gone: %s", text(r))
	}
	// A question that has failed, or is open, is put up once.
	before = asked
	if r := submit("gone", hello); r.IsError || asked != before || !strings.Contains(text(r), "waiting") {
		t.Errorf("gone once more: %s", text(r))
	}
	// What is too long to be seen in a dialogue is confirmed on a terminal.
	before = asked
	if r := submit("yes-long", hello+strings.Repeat("A long text.\n", 5000)); r.IsError || !strings.Contains(text(r), "waiting") || asked != before {
		t.Errorf("long: %s", text(r))
	}
	if list, err := f.engine.Store.List(); err != nil || len(list) != 1 {
		t.Errorf("%d jobs, %v", len(list), err)
	}
	for _, r := range must(f.engine.Store.List()) {
		if _, err := f.engine.Wait(t.Context(), r.Spec.ID, nil); err != nil {
			t.Error(err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Without a person only contained tasks are submitted, and only where the user said so.
func TestUnconfirmed(t *testing.T) {
	f := newFixture(t, func(o *mcp.Options) {
		all(o)
		o.Unconfirmed = true
	})
	var s submitted
	f.call(f.client(nil), "task_submit", map[string]any{"task": hello, "idempotency_key": "k"}, &s)
	if s.Job != nil || s.Request == nil {
		t.Fatalf("a task with the user's own rights was submitted: %+v", s)
	}
}

// What a task's own text takes of the user's is asked for all the same; what the
// configuration adds is not. The backend of these tests contains nothing, so that the level
// is left out here.
func TestUnconfirmedTakes(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                                  false,
		"[terminal]\nenv = [\"A=b\"]":                       false,
		"[terminal]\nenv = [\"HOME\"]":                      true,
		"[terminal]\nbind = [\"/etc:/x\"]":                  true,
		"credentials = [\"anthropic\"]":                     true,
		"[submit]\nmax_jobs = 1\nmax_cpu_hours = 1":         true,
		"[slurm]\nextra = [\"--reservation=x\"]":            true,
		"[resources]\ncpus = 2\n[network]\nmode = \"none\"": false,
	} {
		text = "+++\nname = \"x\"\n" + text + "\n[agent]\ncommand = \"true\"\n+++\nx\n"
		if got, err := mcp.Takes(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// A yes counts for a day, and its failed submission can be repeated by a person.
func TestLateYes(t *testing.T) {
	now := time.Now()
	f := newFixture(t, func(o *mcp.Options) {
		all(o)
		o.Now = func() time.Time { return now }
	})
	c := f.client(nil)
	args := map[string]any{"task": hello, "idempotency_key": "k"}
	var s submitted
	f.call(c, "task_submit", args, &s)
	q := mcp.RequestsIn(f.engine.Store.Home(), func() time.Time { return now })
	r := must(q.Load(s.Request.ID))
	p := must(f.sub.Propose(t.Context(), r))
	if err := q.AnswerTo(r, mcp.Answer{Confirmed: true, Shown: p.Digest()}); err != nil {
		t.Fatal(err)
	}
	f.call(c, "task_status", map[string]any{"id": r.ID}, &s)
	if s.Request == nil || s.Request.State != "confirmed" || !strings.Contains(s.Request.Next, "once more: berth mcp confirm "+r.ID) {
		t.Fatalf("%+v", s.Request)
	}
	now = now.Add(25 * time.Hour)
	f.fails(c, "task_submit", args, 75, "more than a day ago")
	if list := must(f.engine.Store.List()); len(list) != 0 {
		t.Fatal("it was submitted")
	}
	rec := must(f.sub.Submit(t.Context(), r, p)) // by a person
	must(f.engine.Wait(t.Context(), rec.Spec.ID, nil))
	f.call(c, "task_submit", args, &s)
	if s.Job == nil || s.Job.ID != rec.Spec.ID {
		t.Fatalf("%+v", s)
	}
}

func TestRefused(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	outside := filepath.Join(t.TempDir(), "secret.md")
	if err := os.WriteFile(outside, []byte("password"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(f.dir, "link.md")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(f.dir, "fifo.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		args  map[string]any
		code  int
		words string
	}{
		{map[string]any{"file": "fifo.md", "idempotency_key": "k"}, 2, "no file"},
		{map[string]any{"task": hello}, 2, "idempotency_key"},
		{map[string]any{"task": hello, "idempotency_key": " "}, 2, "idempotency_key"},
		{map[string]any{"task": hello, "idempotency_key": "a\nb"}, 2, "idempotency_key"},
		{map[string]any{"task": hello, "file": "x.md", "idempotency_key": "k"}, 2, "one of them"},
		{map[string]any{"idempotency_key": "k"}, 2, "one of them"},
		{map[string]any{"task": "no task", "idempotency_key": "k"}, 2, "front matter"},
		{map[string]any{"file": "../secret.md", "idempotency_key": "k"}, 2, "below"},
		{map[string]any{"file": outside, "idempotency_key": "k"}, 2, "below"},
		{map[string]any{"file": "link.md", "idempotency_key": "k"}, 2, "below"},
		{map[string]any{"file": ".", "idempotency_key": "k"}, 2, "no file"},
		{map[string]any{"file": "nope.md", "idempotency_key": "k"}, 3, "nope.md"},
		{map[string]any{"task": strings.Repeat("x", 1<<20+1), "idempotency_key": "k"}, 2, "at most"},
	} {
		f.fails(c, "task_submit", bad.args, bad.code, bad.words)
		if r := f.call(c, "task_submit", bad.args, nil); strings.Contains(fmt.Sprint(r.StructuredContent), "password") {
			t.Errorf("%v tells the content of a file", bad.args)
		}
	}
	if list, err := mcp.RequestsIn(f.engine.Store.Home(), time.Now).List(); err != nil || len(list) != 0 {
		t.Errorf("%d requests, %v", len(list), err)
	}
	f.fails(c, "task_list", map[string]any{"offset": math.MaxInt64, "limit": 1}, 2, "together at most")
	damaged := filepath.Join(f.engine.Store.Home(), "mcp", "requests", "req-000000000001")
	if err := os.MkdirAll(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "request.json"), []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "berth://job/req-000000000001"}); err == nil || !strings.Contains(err.Error(), "hint: rm -r ") {
		t.Errorf("a resource that cannot be read: %v", err)
	}
	if err := os.RemoveAll(damaged); err != nil {
		t.Fatal(err)
	}
	// A model that asks without an end fills no disk.
	for i := range 101 {
		args := map[string]any{"task": hello, "idempotency_key": fmt.Sprint("flood ", i)}
		if i < 100 {
			f.call(c, "task_submit", args, &submitted{})
		} else {
			f.fails(c, "task_submit", args, 75, "100 requests wait")
		}
	}
	f.fails(c, "task_cancel", map[string]any{"id": ""}, 2, "empty")
	for _, id := range []string{"req-", "req-../..", "req-0A0000000000", "req-000000000000"} {
		f.fails(c, "task_status", map[string]any{"id": id}, 3, "no request")
	}
}

// task_cancel ends what this door has made, and nothing else of the user's.
func TestCancelOwn(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	long := strings.Replace(hello, "echo hello;", "sleep 300;", 1)
	var s submitted
	f.call(c, "task_submit", map[string]any{"task": long, "idempotency_key": "k"}, &s)
	f.confirm(s.Request.ID)
	task := jobs.Task{Name: "mine", Command: jobs.Command{Shell: "sleep 300"}, Place: jobs.Place{Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal}}
	spec := must(f.engine.Plan(t.Context(), task, engine.Choice{}, false))
	mine := must(f.engine.Submit(t.Context(), spec, task))
	f.fails(c, "task_cancel", map[string]any{"id": mine.Spec.ID}, 4, "berth cancel")
	f.call(c, "task_cancel", map[string]any{"id": s.Request.ID}, &struct{}{})
	f.call(c, "task_wait", map[string]any{"id": s.Request.ID, "timeout_s": 60}, &s)
	if !s.Done || s.Job.State != "cancelled" {
		t.Errorf("%+v", s)
	}
	views := f.engine.Reconcile(t.Context(), []*jobs.Record{must(f.engine.Store.Load(mine.Spec.ID))})
	if views[0].State.Final() {
		t.Error("the other job has ended")
	}
	if err := f.engine.Cancel(t.Context(), views, "test"); err != nil {
		t.Error(err)
	}
	must(f.engine.Wait(t.Context(), mine.Spec.ID, nil))
}
