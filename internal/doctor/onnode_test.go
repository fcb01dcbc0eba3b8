package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/slurm"
)

// queue is a scheduler that does what a test says.
type queue struct {
	submit func(l jobs.Launch, script string) (jobs.Handle, error)
	status func() jobs.Status
	known  bool
	rules  func(l jobs.Launch) string // of the site: the words by which it refuses a job
	blind  bool                       // the test does not see them

	mu        sync.Mutex
	cancelled int
	launch    jobs.Launch
}

func (*queue) Name() string                       { return "slurm" }
func (*queue) Check(context.Context) jobs.Checked { return jobs.Checked{} }
func (*queue) Render(l jobs.Launch) (string, error) {
	return "#!/bin/bash\nexec " + strings.Join(l.Argv, " ") + "\n", nil
}
func (q *queue) refuse(l jobs.Launch) error {
	if q.rules != nil && q.rules(l) != "" {
		return &jobs.Error{Kind: jobs.KindRejected, Msg: q.rules(l)}
	}
	return nil
}

func (*queue) Sends(l jobs.Launch) []string { return (*slurm.Scheduler)(nil).Sends(l) }
func (q *queue) TestOnly(_ context.Context, l jobs.Launch, _ string) error {
	if q.blind {
		return nil
	}
	return q.refuse(l)
}
func (q *queue) handle(l jobs.Launch) jobs.Handle { return jobs.Handle{Name: l.Name, NativeID: "7"} }
func (q *queue) Submit(_ context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	q.mu.Lock()
	q.launch = l
	q.mu.Unlock()
	if err := q.refuse(l); err != nil {
		return jobs.Handle{}, err
	}
	return q.submit(l, script)
}

func (q *queue) Find(_ context.Context, names []string) (map[string]jobs.Handle, error) {
	if !q.known {
		return nil, nil
	}
	return map[string]jobs.Handle{names[0]: {Name: names[0], NativeID: "7"}}, nil
}

func (q *queue) Status(_ context.Context, hs []jobs.Handle) (map[string]jobs.Status, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancelled > 0 {
		return map[string]jobs.Status{hs[0].Name: {State: jobs.StateCancelled}}, nil
	}
	return map[string]jobs.Status{hs[0].Name: q.status()}, nil
}

func (q *queue) Cancel(context.Context, []jobs.Handle) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancelled++
	return nil
}

// answers runs the job as a node would, in this process.
func answers(l jobs.Launch) error {
	var request, answer string
	for i, a := range l.Argv {
		switch a {
		case "--request":
			request = l.Argv[i+1]
		case "--answer":
			answer = l.Argv[i+1]
		}
	}
	b, err := os.ReadFile(request)
	if err != nil {
		return err
	}
	var w Where
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	b, err = json.Marshal(Place{Version: Version, Where: w.Where, Host: "c1", Findings: []Finding{{ID: "x", Status: OK, Why: w.Profile.Name}}})
	if err != nil {
		return err
	}
	return os.WriteFile(answer, b, 0o600)
}

func TestOnNode(t *testing.T) {
	waiting := func() jobs.Status { return jobs.Status{State: jobs.StatePending, Reason: "Resources"} }
	ended := func() jobs.Status { return jobs.Status{State: jobs.StateFailed, NativeState: "FAILED", Node: "c1"} }
	ok := func(q *queue) func(jobs.Launch, string) (jobs.Handle, error) {
		return func(l jobs.Launch, _ string) (jobs.Handle, error) { return q.handle(l), nil }
	}
	for _, c := range []struct {
		name      string
		prepare   func(t *testing.T, q *queue, o *OnNode) context.Context
		kind      jobs.Kind
		want      string // of the error; "" is an answer
		hint      string // "" is any
		cancelled bool
	}{
		{name: "answers", prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			q.submit = func(l jobs.Launch, script string) (jobs.Handle, error) {
				if b, err := os.ReadFile(script); err != nil || !strings.Contains(string(b), "berth-node examine --json") {
					t.Errorf("%v: %s", err, b)
				}
				return q.handle(l), answers(l)
			}
			return t.Context()
		}},
		{name: "unclear but there", prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			q.known = true
			q.submit = func(l jobs.Launch, _ string) (jobs.Handle, error) {
				return jobs.Handle{}, errors.Join(answers(l), &jobs.Error{Kind: jobs.KindUnclear, Msg: "socket timed out"})
			}
			return t.Context()
		}},
		{name: "refused", kind: jobs.KindRejected, want: "invalid account", prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			q.submit = func(jobs.Launch, string) (jobs.Handle, error) {
				return jobs.Handle{}, &jobs.Error{Kind: jobs.KindRejected, Msg: "invalid account"}
			}
			return t.Context()
		}},
		{name: "memory refused", prepare: func(t *testing.T, q *queue, o *OnNode) context.Context {
			o.Resources.Memory = jobs.GiB
			q.submit = func(l jobs.Launch, _ string) (jobs.Handle, error) {
				if slices.Contains(q.Sends(l), "mem") {
					return jobs.Handle{}, &jobs.Error{Kind: jobs.KindRejected, Msg: "do not use --mem here"}
				}
				return q.handle(l), answers(l)
			}
			return t.Context()
		}},
		{name: "interrupted", want: "context canceled", cancelled: true, prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			q.submit = ok(q)
			q.status = func() jobs.Status { cancel(); return waiting() }
			return ctx
		}},
		{name: "queue", kind: jobs.KindAgain, want: "has not started within 50ms (Resources)", cancelled: true, prepare: func(t *testing.T, q *queue, o *OnNode) context.Context {
			q.submit, o.Wait = ok(q), 50*time.Millisecond
			return t.Context()
		}},
		{name: "started at last", prepare: func(t *testing.T, q *queue, o *OnNode) context.Context {
			q.submit, o.Wait = ok(q), time.Nanosecond
			q.status = func() jobs.Status {
				if err := answers(q.launch); err != nil {
					t.Error(err)
				}
				return jobs.Status{State: jobs.StateRunning, Node: "c1"}
			}
			return t.Context()
		}},
		{name: "nonsense", kind: jobs.KindInfra, want: "read the node's answer", cancelled: true, prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			q.submit = func(l jobs.Launch, _ string) (jobs.Handle, error) {
				return q.handle(l), os.WriteFile(l.Argv[len(l.Argv)-1], []byte("welcome"), 0o600)
			}
			return t.Context()
		}},
		{name: "ends without", kind: jobs.KindInfra, want: "the job on c1 ended without an answer (FAILED): berth: on c1 this module does not load: x", cancelled: true, prepare: func(t *testing.T, q *queue, _ *OnNode) context.Context {
			q.submit = func(l jobs.Launch, _ string) (jobs.Handle, error) {
				return q.handle(l), os.WriteFile(filepath.Join(l.Dir, jobs.SchedulerLog), []byte("noise\nberth: on c1 this module does not load: x\n"), 0o600)
			}
			q.status = ended
			return t.Context()
		}},
		{name: "noexec", kind: jobs.KindInfra, want: "cannot execute: Permission denied", hint: store.HintNoExec, cancelled: true, prepare: func(t *testing.T, q *queue, o *OnNode) context.Context {
			q.submit = func(l jobs.Launch, _ string) (jobs.Handle, error) {
				return q.handle(l), os.WriteFile(filepath.Join(l.Dir, jobs.SchedulerLog), []byte("slurm_script: line 31: exec: /h/berth-node: cannot execute: Permission denied\n"), 0o600)
			}
			q.status = func() jobs.Status { st := ended(); st.Code = jobs.CodeNotRunnable; return st }
			o.Say = func(line string) {
				if strings.Contains(line, "waits") {
					t.Error(line)
				}
			}
			return t.Context()
		}},
		{name: "open state", kind: jobs.KindConfig, want: "is open to other users", prepare: func(t *testing.T, _ *queue, o *OnNode) context.Context {
			if err := os.MkdirAll(o.Where.State, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(o.Where.State, 0o755); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			if err := os.Chmod(home, 0o700); err != nil {
				t.Fatal(err)
			}
			q := &queue{status: waiting}
			o := OnNode{Scheduler: q, Where: Where{State: filepath.Join(home, "a", "state"), Profile: jobs.Profile{Name: "lake"}}, ID: "01890000-0000-7000-8000-0123456789ab",
				Ground: &Here{State: filepath.Join(home, "a", "state"), Install: func(dir string) (string, error) { return filepath.Join(dir, "berth-node"), os.MkdirAll(dir, 0o700) }},
				Say:    func(string) {}, Poll: 5 * time.Millisecond, Ended: 20 * time.Millisecond}
			p, err := o.Look(c.prepare(t, q, &o))
			switch {
			case c.want == "" && (err != nil || p.Where != "node" || p.Find("x").Why != "lake"):
				t.Errorf("%+v, %v", p, err)
			case c.name == "memory refused" && (p.Find(IDNode).Status != Warn || p.Find(IDNode).Data["forbid"] != "mem"):
				t.Errorf("%+v", p)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || c.kind != 0 && jobs.KindOf(err) != c.kind):
				t.Errorf("%v, want %q", err, c.want)
			case c.hint != "" && jobs.HintOf(err) != c.hint:
				t.Errorf("hint %q", jobs.HintOf(err))
			}
			if (q.cancelled > 0) != c.cancelled {
				t.Errorf("cancelled %d times", q.cancelled)
			}
			if q.launch.Resources.Time != 0 && q.launch.Resources.Time != time.Minute {
				t.Errorf("it asks for %v", q.launch.Resources.Time)
			}
			var left []string
			_ = filepath.WalkDir(home, func(p string, _ os.DirEntry, _ error) error { left = append(left, p); return nil })
			if want := map[bool]int{true: 3, false: 1}[c.name == "open state"]; len(left) != want {
				t.Errorf("left %q", left)
			}
		})
	}
}

// TestThere: the ground behind a shell, which is this machine's here.
func TestThere(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	g := &There{On: run.Local{}, Install: func(context.Context) (string, error) { return "berth-node-0", nil }}
	dir, node, err := g.Make(t.Context())
	if err != nil || filepath.Dir(dir) != filepath.Join(home, ".local/state/berth") || node != filepath.Join(home, ".local/state/berth/bin/berth-node-0") || g.Identity.Home != home {
		t.Fatalf("%q, %q, %v, %+v", dir, node, err, g.Identity)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(err, fi.Mode())
	}
	file := filepath.Join(dir, "it's \"$HOME\"")
	if _, err := g.Read(t.Context(), file); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := g.Write(t.Context(), file, []byte("a\x00b\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if b, err := g.Read(t.Context(), file); err != nil || string(b) != "a\x00b\n" {
		t.Errorf("%q, %v", b, err)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	none := &There{On: refusing{errors.New("no route")}, Install: g.Install}
	if _, _, err := none.Make(t.Context()); err == nil || none.Remove(t.Context()) != nil {
		t.Error(err)
	}
}

// TestRefusals: what a site refuses is found by trying, whatever its words say,
// and what it takes is what a profile is written from.
func TestRefusals(t *testing.T) {
	sends := func(names ...string) func(jobs.Launch) bool {
		return func(l jobs.Launch) bool {
			return slices.ContainsFunc(names, func(n string) bool { return slices.Contains((&queue{}).Sends(l), n) })
		}
	}
	words := func(bad func(jobs.Launch) bool, text string) func(jobs.Launch) string {
		return func(l jobs.Launch) string {
			if bad(l) {
				return text
			}
			return ""
		}
	}
	noAccount := func(l jobs.Launch) bool { return l.Slurm.Account == "" }
	for name, c := range map[string]struct {
		rules    func(l jobs.Launch) string
		blind    bool
		accounts []string
		forbid   []string
		account  string
		refused  string
		most     int // lines that a person is told
	}{
		"requeue":            {rules: words(sends("requeue"), "--requeue is not allowed here"), forbid: []string{"requeue"}},
		"unnamed dependency": {rules: words(sends("dependency"), "dependencies are switched off here"), forbid: []string{"dependency"}},
		"unnamed two":        {rules: words(sends("dependency", "mem"), "no"), forbid: []string{"dependency", "mem"}},
		"one after the other": {rules: func(l jobs.Launch) string {
			return words(sends("mem"), "no --mem")(l) + words(noAccount, "you must give --account")(l)
		}, accounts: []string{"research"}, forbid: []string{"mem"}, account: "research"},
		"unnamed account":     {rules: words(noAccount, "who pays?"), accounts: []string{"research"}, account: "research"},
		"one of two accounts": {rules: words(noAccount, "you must give --account"), accounts: []string{"a", "b"}, refused: "you must give --account", most: 2},
		"no node":             {rules: words(func(jobs.Launch) bool { return true }, "allocation failure: Requested node configuration is not available"), refused: "not available", most: 6},
		"only at submission":  {rules: words(sends("dependency"), "switched off"), blind: true, forbid: []string{"dependency"}},
		"whatever":            {rules: words(func(jobs.Launch) bool { return true }, "not on Thursdays"), refused: "not on Thursdays"},
		"the reaper's alone":  {rules: words(func(l jobs.Launch) bool { return len(l.Behind) > 0 }, "no afterany here"), forbid: []string{"dependency"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			q := &queue{rules: c.rules, blind: c.blind, submit: func(l jobs.Launch, _ string) (jobs.Handle, error) {
				return jobs.Handle{Name: l.Name, NativeID: "7"}, answers(l)
			}}
			var said []string
			o := OnNode{Scheduler: q, Where: Where{State: filepath.Join(home, "state"), Profile: jobs.Profile{Name: "lake"}}, ID: "01890000-0000-7000-8000-0123456789ab",
				Accounts: c.accounts, Resources: jobs.Resources{CPUs: 1, Memory: jobs.GiB}, Reaper: jobs.Resources{Memory: jobs.GiB, Time: time.Minute},
				Ground: &Here{State: filepath.Join(home, "state"), Install: func(dir string) (string, error) { return filepath.Join(dir, "berth-node"), os.MkdirAll(dir, 0o700) }},
				Say:    func(line string) { said = append(said, line) }, Poll: 5 * time.Millisecond, Ended: 20 * time.Millisecond}
			p, err := o.Look(t.Context())
			if c.refused != "" {
				if jobs.KindOf(err) != jobs.KindRejected || !strings.Contains(err.Error(), c.refused) || c.most > 0 && len(said) > c.most {
					t.Errorf("%v, want %q\n%s", err, c.refused, strings.Join(said, "\n"))
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
			}
			if got := p.all(IDNode, "forbid"); !slices.Equal(got, c.forbid) || p.data(IDNode, "account") != c.account {
				t.Errorf("forbid %q, account %q, want %q, %q\n%s", got, p.data(IDNode, "account"), c.forbid, c.account, strings.Join(said, "\n"))
			}
			if len(said) < 3 {
				t.Errorf("a person is told only %q", said)
			}
		})
	}
}
