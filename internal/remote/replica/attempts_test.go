package replica_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
	"berth/test/fakes/mirrortest"
)

func retried(s *jobs.Spec) { s.Retry = jobs.DefaultRetry() }

// decides is what a runner there concludes of its attempt.
func (p *pair) decides(verb jobs.Verb, state jobs.State) {
	p.t.Helper()
	a, err := store.LoadAttempt(p.far)
	must(p.t, err)
	d := jobs.Decision{Version: 1, Attempt: a.Info.ID, Verb: verb, Reason: "because", Time: time.Now().UTC()}
	if verb == jobs.VerbAccept {
		d.State = state
	}
	_, err = store.SetDecision(p.far, d)
	must(p.t, err)
}

// next begins another attempt there, to which the writing helpers turn.
func (p *pair) next() {
	p.t.Helper()
	rec, err := store.LoadDir(store.JobDirOf(p.far))
	must(p.t, err)
	id, err := ids.New()
	must(p.t, err)
	n := rec.Current().N + 1
	p.n.Attempt = jobs.AttemptInfo{Version: 1, ID: id, Number: n, Name: fmt.Sprintf("berth-fix-%d", n), Created: time.Now().UTC()}
	p.far, _, err = store.Begin(rec.Dir, p.n.Attempt, fmt.Sprintf("#!/bin/sh\necho %d\n", n))
	must(p.t, err)
}

// twice is a job there that failed once and then did well.
func (p *pair) twice() {
	p.t.Helper()
	must(p.t, p.put())
	p.claim(time.Now())
	p.write("stdout", "first\n")
	p.write("result.bundle", "of no use")
	p.decides(jobs.VerbRetry, "")
	p.exit(func(x *jobs.ExitRecord) { x.State = jobs.StateFailed; x.Artifacts = []string{"d/model"} })
	p.next()
	_, err := store.SetSubmitted(p.far, jobs.Submitted{Version: 1, Handle: jobs.Handle{Version: 1, NativeID: "43"}})
	must(p.t, err)
	p.decides(jobs.VerbAccept, jobs.StateCompleted)
	p.ends()
}

// TestAttempts brings all attempts of a job, in their order, and of those that
// count for nothing no more than what tells why.
func TestAttempts(t *testing.T) {
	p := newPair(t, retried)
	p.twice()
	p.host.Calls()
	must(t, p.round())
	if got := p.host.Calls(); got != "round round artifacts" {
		t.Errorf("executions: %s", got)
	}
	if len(p.rec.Attempts) != 2 || jobs.StateOf(p.rec) != jobs.StateCompleted || p.rec.Current().Info.ID != p.n.Attempt.ID || p.rec.Current().Submitted.Handle.NativeID != "43" {
		t.Fatalf("%+v", p.rec)
	}
	p.same()
	first := p.rec.Attempts[0]
	if b, err := os.ReadFile(filepath.Join(first.Dir, "stdout")); err != nil || string(b) != "first\n" || first.Decision.Verb != jobs.VerbRetry || first.Exit.State != jobs.StateFailed {
		t.Errorf("%q, %v, %+v", b, err, first)
	}
	for _, name := range []string{"result.bundle", "artifacts"} {
		if _, err := os.Stat(filepath.Join(first.Dir, name)); err == nil {
			t.Errorf("%s of an attempt that counts for nothing was brought", name)
		}
	}
	if b, err := os.ReadFile(store.ScriptPath(p.rec.Current().Dir)); err != nil || string(b) != "#!/bin/sh\necho 2\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestCutAttempts: wherever the answers break off, no attempt is here before
// the one before it is known to be over, and the next rounds go on.
func TestCutAttempts(t *testing.T) {
	p := newPair(t, retried)
	p.twice()
	var size int
	p.host.Set(mirrorFault("round", func(b []byte) []byte { size += len(b); return b }))
	blank := t.TempDir()
	must(t, os.CopyFS(filepath.Join(blank, "job"), os.DirFS(p.rec.Dir)))
	must(t, p.round())
	for n := 1; n < size; n += 1 + size/60 {
		must(t, os.RemoveAll(p.rec.Dir))
		must(t, os.CopyFS(p.rec.Dir, os.DirFS(filepath.Join(blank, "job"))))
		var err error
		p.rec, err = store.LoadDir(p.rec.Dir)
		must(t, err)
		left := n // of both answers
		p.host.Set(mirrorFault("round", func(b []byte) []byte {
			b = b[:min(len(b), max(0, left))]
			left -= len(b)
			return b
		}))
		_ = p.round()
		if len(p.rec.Attempts) > 1 {
			if a := p.rec.Attempts[0]; a.Exit == nil || a.Decision == nil {
				t.Errorf("cut after %d: an attempt behind one that goes on", n)
			}
		}
		if jobs.StateOf(p.rec).Final() {
			p.same()
		}
		p.host.Set(mirrortest.Fault{})
		must(t, p.round())
		p.same()
		if len(p.rec.Attempts) != 2 {
			t.Errorf("cut after %d: %d attempts", n, len(p.rec.Attempts))
		}
	}
}

// TestFollowed: what is asked to be done there is done before the answer, and
// after what was made here is there; that it failed is said beside the rest.
func TestFollowed(t *testing.T) {
	p := newPair(t, retried)
	follow := func() error {
		err := p.site.Follow(t.Context(), []*jobs.Record{p.rec})[0]
		rec, lerr := store.LoadDir(p.rec.Dir)
		must(t, lerr)
		p.rec = rec
		return err
	}
	if err := follow(); jobs.KindOf(err) != jobs.KindNotFound {
		t.Errorf("a job that has never arrived: %v", err)
	}
	must(t, p.put())
	p.claim(time.Now())
	p.exit(func(x *jobs.ExitRecord) { x.State = jobs.StateFailed })
	_, err := store.SetCancel(p.rec.Dir, jobs.Cancel{Version: 1, By: "ada"})
	must(t, err)
	p.host.Follow = func(home string, list []string) error {
		if home != p.home || len(list) != 1 || list[0] != p.n.Spec.ID || !store.Cancelled(store.JobDirOf(p.far)) {
			t.Errorf("%s, %q", home, list)
		}
		p.decides(jobs.VerbRetry, "")
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "squeue is busy"}
	}
	if err := follow(); err == nil || !strings.Contains(err.Error(), "squeue is busy") || p.rec.Current().Decision == nil {
		t.Errorf("%v, %+v", err, p.rec.Current())
	}
	p.host.Follow = func(string, []string) error { p.next(); return nil }
	must(t, follow())
	if len(p.rec.Attempts) != 2 {
		t.Errorf("%d attempts", len(p.rec.Attempts))
	}
	p.host.Follow = func(string, []string) error { return errors.New("not asked for") }
	must(t, p.round())
}

// TestHostileAttempts: attempts that there cannot be.
func TestHostileAttempts(t *testing.T) {
	p := newPair(t, retried)
	must(t, p.put())
	id, aid := p.n.Spec.ID, p.n.Attempt.ID
	const other = "01a1feba-0000-7000-8000-000000000000"
	next := func(number int, id, name string) string {
		quoted, err := json.Marshal(name) // what a terminal obeys is no JSON as Go quotes it
		must(t, err)
		return fmt.Sprintf(`{"info":{"version":1,"id":%q,"number":%d,"name":%s},"script":"IyEvYmluL3NoCg=="}`, id, number, quoted)
	}
	retry := fmt.Sprintf(`{"version":1,"attempt":%q,"verb":"retry","reason":"x"}`, aid)
	file := fmt.Sprintf(`{"job":%q,"name":"decision.json","length":%d,"size":%d}`+"\n%s", id, len(retry), len(retry), retry)
	p.host.Set(mirrorFault("round", func([]byte) []byte {
		return []byte(fmt.Sprintf(`{"job":%q,"state":{"next":%s}}`, id, next(2, other, "x")) + "\n" + `{"end":true}` + "\n")
	}))
	if err := p.round(); err == nil || len(p.rec.Attempts) != 1 {
		t.Errorf("without a decision: %v, %d attempts", err, len(p.rec.Attempts))
	}
	for name, answer := range map[string]string{
		"a name for a terminal": file + fmt.Sprintf(`{"job":%q,"state":{"next":%s}}`, id, next(2, other, "\x1b[2J")),
		"an id that climbs":     file + fmt.Sprintf(`{"job":%q,"state":{"next":%s}}`, id, next(2, "../../x", "x")),
		"another decision":      strings.Replace(file, aid, other, 1) + fmt.Sprintf(`{"job":%q,"state":{"next":%s}}`, id, next(2, other, "x")),
		"a decision of no verb": strings.Replace(file, `"retry"`, `"reply"`, 1) + fmt.Sprintf(`{"job":%q,"state":{}}`, id),
	} {
		p.host.Set(mirrorFault("round", func([]byte) []byte { return []byte(answer + "\n" + `{"end":true}` + "\n") }))
		if err := p.round(); err == nil || len(p.rec.Attempts) != 1 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, %d attempts", name, err, len(p.rec.Attempts))
		}
	}
	// A number further on is not what comes next.
	p.host.Set(mirrorFault("round", func([]byte) []byte {
		return []byte(file + fmt.Sprintf(`{"job":%q,"state":{"next":%s}}`, id, next(7, other, "x")) + "\n" + `{"end":true}` + "\n")
	}))
	_ = p.round()
	if entries, err := os.ReadDir(filepath.Join(p.rec.Dir, "attempts")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
