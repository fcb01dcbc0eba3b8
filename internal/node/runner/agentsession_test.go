package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// begins prints the first event of claude's, with the id of its session.
func begins(id string) string {
	return `echo '{"type":"system","subtype":"init","session_id":"` + id + `","model":"m"}'; `
}

// agentOf is an agent whose sessions are files in a directory, as an adapter makes it.
func agentOf(dir string) *jobs.Agent {
	return &jobs.Agent{Name: "claude", Events: "claude", Tells: jobs.Tells{Turns: jobs.TellsEach, Tokens: jobs.TellsEach},
		Resume: jobs.Command{Argv: []string{"sh", "-c", `cat >>"$2"; test -e "$1/$0" || { echo 'No conversation found' >&2; exit 1; }; ` + begins("two") + turn(1) + `exit 0`,
			jobs.SessionWord, dir, filepath.Join(dir, "prompts")}}}
}

// stops works until its time is up.
const stops = `echo ready; trap 'exit 0' TERM; while :; do sleep 0.05; done`

// TestSession: the next attempt goes on with the agent's session where its files and the work
// tree are those of before; else it begins one, and the record says why.
func TestSession(t *testing.T) {
	t.Parallel()
	resume := jobs.Resume{Before: time.Hour - slow}
	for _, c := range []struct {
		name, session string // that the first attempt tells
		gone          bool   // its file is not there
		change        func(*store.New)
		continued     string
		fresh         string
	}{
		{"it goes on", "one", false, nil, "one", ""},
		{"its file is gone", "one", true, nil, "", "claude ended with 1 before it did anything with its session one"},
		{"an option", "--dangerously", false, nil, "", "attempt 1 has told no id of its session"},
		{"a path", "../one", false, nil, "", "attempt 1 has told no id of its session"},
		{"a command of the task's own", "one", false, func(n *store.New) { n.Spec.Agent.Resume = jobs.Command{} }, "", "the command of claude has no option for a session"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if !c.gone {
				if err := os.WriteFile(filepath.Join(dir, "one"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := begins(c.session) + turn(1) + `echo x >made; [ $BERTH_ATTEMPT_NUMBER = 1 ] || exit 0; ` + stops
			j := newJob(t, command, goesOn(t, repo(t), resume, func(n *store.New) {
				n.Spec.Agent, n.Spec.Prompt, n.Spec.PromptBytes, n.Prompt = agentOf(dir), true, 4, []byte("do x")
				if c.change != nil {
					c.change(n)
				}
			}))
			j.periods.Grace = patient
			code, rec := j.run()
			if code != jobs.CodeTimeout || rec.Agent == nil || rec.Agent.Sessions() != "" {
				t.Fatalf("exit %d, %+v\n%s", code, rec.Agent, j.read(store.FileRuntime))
			}
			code, rec = j.next(nil).run()
			if u := rec.Agent; code != 0 || u == nil || u.Continued != c.continued || u.NewSession != c.fresh || u.Turns != 1 {
				t.Errorf("exit %d, %s, %+v", code, rec.Reason, u)
			}
			b, _ := os.ReadFile(filepath.Join(dir, "prompts"))
			if told := strings.HasPrefix(string(b), "(This session goes on") && strings.HasSuffix(string(b), "\n\ndo x"); told != (c.continued != "" || c.gone) {
				t.Errorf("it was told %q", b)
			}
		})
	}
}

// TestSessionOfRetry: another try of a job goes on with the session that was settled for it.
// An agent that fails for a reason that a new session would meet is not started again.
func TestSessionOfRetry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "one"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(a *jobs.Agent, id string) func(*store.New) {
		return func(n *store.New) { a.Session, n.Spec.Agent = id, a }
	}
	again := "echo again >>" + filepath.Join(dir, "again") + "; "
	if code, rec := newJob(t, again, with(agentOf(dir), "one")).run(); code != 0 || rec.Agent.Continued != "one" || rec.Agent.Session != "two" {
		t.Errorf("exit %d, %+v", code, rec.Agent)
	}
	refused := agentOf(dir)
	refused.Resume = jobs.Command{Argv: []string{"sh", "-c", `exit 41 # "$0"`, jobs.SessionWord}}
	refused.Exit = map[string]string{"41": "auth"}
	if code, rec := newJob(t, again, with(refused, "one")).run(); code != jobs.CodeAuth || rec.Agent.Continued != "one" {
		t.Errorf("exit %d, %s, %+v", code, rec.Reason, rec.Agent)
	}
	worked := agentOf(dir)
	worked.Resume = jobs.Command{Argv: []string{"sh", "-c", begins("one") + turn(1) + `exit 3 # "$0"`, jobs.SessionWord}}
	if code, rec := newJob(t, again, with(worked, "one")).run(); code != 1 || rec.Exit.Code != 3 || rec.Agent.Continued != "one" {
		t.Errorf("exit %d, %s, %+v", code, rec.Reason, rec.Agent)
	}
	if _, err := os.Stat(filepath.Join(dir, "again")); err == nil {
		t.Error("the agent was started a second time")
	}
	if code, rec := newJob(t, again, with(agentOf(dir), "../one")).run(); code != 0 || rec.Agent.NewSession != `"../one" cannot be the id of a session` {
		t.Errorf("exit %d, %+v", code, rec.Agent)
	}
}

// TestSessionLayer: where the layer was thrown away there is no session.
func TestSessionLayer(t *testing.T) {
	t.Parallel()
	j := layered(t, begins("two")+turn(1), func(n *store.New) {
		n.Spec.Agent, n.Spec.Overlay.Name = agentOf(t.TempDir()), ""
		n.Spec.Agent.Session = "one"
	})
	if code, rec := j.run(); code != 0 || rec.Agent.NewSession != "the layer with its files was not kept" {
		t.Errorf("exit %d, %s, %+v", code, rec.Reason, rec.Agent)
	}
}
