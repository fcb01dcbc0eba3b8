package notice

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

type world struct {
	*testing.T
	ledger *store.Store
	mu     sync.Mutex
	got    []Notice
	fail   error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, ledger: st}
}

// job records one that waits.
func (w *world) job(how jobs.Notify, name string, labels ...string) *jobs.Record {
	w.Helper()
	id, err := ids.New()
	if err != nil {
		w.Fatal(err)
	}
	s := jobs.Spec{Version: 1, ID: id, Name: name, Labels: labels, Notify: &how, Command: jobs.Command{Shell: "echo secret"}}
	r, err := w.ledger.Create(store.New{Spec: s, Attempt: jobs.AttemptInfo{Version: 1, ID: id, Number: 1}, Script: func(string) (string, error) { return "", nil }})
	if err == nil {
		err = w.ledger.AwaitNotices(&s)
	}
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) end(r *jobs.Record, state jobs.State) {
	w.Helper()
	if _, err := store.SetExit(r.Current().Dir, jobs.ExitRecord{Version: 1, State: state, Ended: time.Now()}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) hook(_ context.Context, _ string, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n Notice
	if err := json.Unmarshal(body, &n); err != nil || strings.Contains(string(body), "secret") {
		w.Errorf("%v: %s", err, body)
	}
	w.got = append(w.got, n)
	return w.fail
}

func (w *world) send(hook Webhook) { Send(w.Context(), w.ledger, hook) }

func (w *world) subjects() (out []string) {
	for _, n := range w.got {
		out = append(out, n.Subject)
	}
	return out
}

func (w *world) want(subjects ...string) {
	w.Helper()
	if got := w.subjects(); strings.Join(got, "\n") != strings.Join(subjects, "\n") {
		w.Fatalf("%q, want %q", got, subjects)
	}
}

var hooked = jobs.Notify{WebhookFile: "/hook"}

// A notice comes when the last job of a label has ended, once, and again for those
// that come later.
func TestLabel(t *testing.T) {
	w := newWorld(t)
	a, b := w.job(hooked, "a", "sweep1"), w.job(hooked, "b", "sweep1", "late")
	other := w.job(hooked, "other")
	w.end(a, jobs.StateCompleted)
	w.send(w.hook)
	w.want()
	w.end(b, jobs.StateOutOfMemory)
	w.send(w.hook)
	w.send(w.hook)
	w.want("berth: 1 job of label late ended: 1 out of memory", "berth: 2 jobs of label sweep1 ended: 1 completed, 1 out of memory")
	if n := w.got[1]; n.Jobs[0].Name != "a" || n.Jobs[1].State != jobs.StateOutOfMemory || n.Label != "sweep1" {
		t.Errorf("%+v", n)
	}
	w.got = nil
	w.end(w.job(hooked, "c", "sweep1"), jobs.StateFailed)
	w.end(other, jobs.StateCompleted)
	w.send(w.hook)
	w.want("berth: 1 job ended: 1 completed", "berth: 1 job of label sweep1 ended: 1 failed")
}

// Of many that see the end at once, one tells of it.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.end(w.job(hooked, "x", "l"), jobs.StateCompleted)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { w.send(w.hook) })
	}
	all.Wait()
	w.want("berth: 3 jobs of label l ended: 3 completed")
}

// What a node cannot send is left to the client that looks next; what it can, it sends.
func TestNode(t *testing.T) {
	w := newWorld(t)
	out := filepath.Join(t.TempDir(), "got")
	how := jobs.Notify{Mail: "ada@example.org", Command: []string{"/bin/sh", "-c", "cat >>" + out}, WebhookFile: "/hook"}
	t.Setenv("PATH", "/nowhere")
	was := sendmailDirs
	sendmailDirs = nil
	t.Cleanup(func() { sendmailDirs = was })
	how.Command[2] = `while read -r x; do echo "$x"; done >>` + out
	r := w.job(how, "x\u202e\x1b", "l")
	w.end(r, jobs.StateCompleted)
	w.send(nil)
	w.send(nil)
	b, err := os.ReadFile(out)
	var n Notice
	if err != nil || json.Unmarshal(b, &n) != nil || n.Subject != "berth: 1 job of label l ended: 1 completed" || n.Jobs[0].Name != "x  " {
		t.Fatalf("%q, %v", b, err)
	}
	w.want()
	w.send(w.hook)
	w.want(n.Subject)
	if got := store.UnsentNotices(r); len(got) != 1 || !strings.Contains(got[0], "notice not sent (mail): there is no sendmail") {
		t.Errorf("%q", got)
	}
	if groups, err := w.ledger.NoticeGroups(); err != nil || len(groups) != 0 {
		t.Errorf("%v, %v", groups, err)
	}
}

// A failure is recorded, and not repeated; a job that was removed keeps nothing back.
func TestFailed(t *testing.T) {
	w := newWorld(t)
	r, gone := w.job(hooked, "x", "l"), w.job(hooked, "y", "l")
	w.end(r, jobs.StateCompleted)
	if err := w.ledger.Remove(gone); err != nil {
		t.Fatal(err)
	}
	w.fail = errors.New("it answered\x1b500")
	w.send(w.hook)
	w.send(w.hook)
	w.want("berth: 1 job of label l ended: 1 completed")
	if got := store.UnsentNotices(r); len(got) != 1 || !strings.HasPrefix(got[0], "notice not sent (webhook): it answered 500 (") {
		t.Errorf("%q", got)
	}
}
