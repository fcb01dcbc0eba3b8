//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// acked are the jobs whose submission was acknowledged, by their short ids.
var acked sync.Map

// fast is a profile by which a silent owner is gone after 20 s; another one,
// "real", has the times that jobs have by themselves.
const fast = "fast"

// quote is a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// submitLine is the command line that submits a job with the canary in its
// environment.
func submitLine(flags, command string) string {
	if !strings.Contains(flags, "--profile") {
		flags += " --profile " + fast
	}
	return fmt.Sprintf("export CANARY=$(cat ~/.canary); berth submit --image %s --env CANARY %s -- %s", image, flags, quote(command))
}

// submit submits a job and returns its id.
func submit(t *testing.T, flags, command string) string {
	t.Helper()
	id := ok(t, "login", "alice", submitLine(flags, command))
	ack(t, id)
	return id
}

// ack notes what berth submit has printed.
func ack(t *testing.T, id string) {
	t.Helper()
	if !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(id) {
		t.Fatalf("submit printed %q, want an id and nothing else", id)
	}
	acked.Store(id, true)
}

// status is what the tests read of `berth status --json`.
type status struct {
	Short, State string
	Final        bool
	Code         int `json:"exit_code"`
	Reason, Hint string
	NativeID     string `json:"native_id"`
	Node, Dir    string
	Branch       string
	Notes        []string
}

// look asks berth for a job's state.
func look(t *testing.T, id string) status {
	t.Helper()
	var got struct{ Jobs []status }
	a := sh("berth status --json " + id)
	if err := json.Unmarshal([]byte(a.out), &got); err != nil || len(got.Jobs) != 1 {
		t.Fatalf("status of %s: code %d, %v\n%s\n%s", id, a.code, err, a.out, a.err)
	}
	return got.Jobs[0]
}

// running waits until a job's command has printed "ready".
func running(t *testing.T, id string) status {
	t.Helper()
	eventually(t, 2*time.Minute, "job "+id+" runs", func() bool {
		if st := look(t, id); st.Final {
			t.Fatalf("job %s has ended: %+v", id, st)
		}
		release()
		return strings.Contains(sh("berth logs "+id).out, "ready")
	})
	return look(t, id)
}

// gate is a command that says that it runs, and ends once [open] was called: so
// that a test breaks things under a job that runs, however slow the machine is.
// A job with it is submitted with [onlyOnce].
func gate(name string) string {
	return "echo ready; until [ -e /once/" + name + " ]; do sleep 0.3; done"
}

// open lets the jobs of a gate end.
func open(t *testing.T, name string) {
	t.Helper()
	ok(t, "login", "alice", "touch "+files+"/once/"+name)
}

// begunAgain tells whether a job has a second attempt, and Slurm has that.
func begunAgain(r *jobs.Record) bool {
	return r != nil && len(r.Attempts) == 2 && r.Attempts[1].Submitted != nil
}

// again waits for the second attempt of a job. No one looks.
func again(t *testing.T, id string) {
	t.Helper()
	eventually(t, patience, "job "+id+" is tried again by itself", func() bool { return begunAgain(ledger(t, id)[id]) })
}

// ends waits for a job without asking berth: no one looks, and the ledger's own
// files tell. It returns the record.
func ends(t *testing.T, limit time.Duration, id string, want jobs.State) *jobs.Record {
	t.Helper()
	var rec *jobs.Record
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		rec = ledger(t, id)[id]
		if rec != nil && jobs.StateOf(rec).Final() {
			break
		}
		if time.Now().After(deadline) {
			a := sh("berth explain " + id + "; berth logs --runtime " + id + "; squeue -a --me; sinfo")
			t.Fatalf("job %s has not ended by itself in %s:\n%s\n%s", id, limit, a.out, a.err)
		}
	}
	if got := jobs.StateOf(rec); got != want {
		t.Errorf("job %s ended as %s, want %s:\n%s", id, got, want, tell(rec))
	}
	return rec
}

// tell is what happened to a job, for people.
func tell(r *jobs.Record) string {
	var b strings.Builder
	for i := range r.Attempts {
		a := &r.Attempts[i]
		fmt.Fprintf(&b, "attempt %d: %s", a.N, jobs.StateOfAttempt(a))
		if a.Submitted != nil {
			fmt.Fprintf(&b, ", Slurm job %s", a.Submitted.Handle.NativeID)
		}
		if a.Claim != nil {
			fmt.Fprintf(&b, ", on %s (restart %d)", a.Claim.Node, a.Claim.Restart)
		}
		if a.Exit != nil {
			fmt.Fprintf(&b, ", exit: %s %q", a.Exit.State, a.Exit.Reason)
		}
		if a.Verdict != nil {
			fmt.Fprintf(&b, ", verdict: %s %q", a.Verdict.State, a.Verdict.Reason)
		}
		if d := a.Decision; d != nil {
			fmt.Fprintf(&b, ", decision: %s, class %q, %q by %s", d.Verb, d.Class, d.Reason, d.By)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ledger reads the records of jobs, or of all, by their short ids, from a copy
// of the files: no program of berth's is asked.
func ledger(t *testing.T, ids ...string) map[string]*jobs.Record {
	t.Helper()
	dir := t.TempDir()
	defer func() { _ = os.RemoveAll(dir) }()
	which := "jobs"
	if len(ids) > 0 {
		which = "jobs/*/*" + strings.Join(ids, " jobs/*/*")
	}
	// What is large, or changes while it is read, is not wanted.
	out, err := exec.Command("bash", "-c", "docker exec "+container("login")+" bash -c 'cd "+state+" && tar -c --ignore-failed-read --warning=none --exclude=work --exclude=git --exclude=stdout --exclude=stderr --exclude=recheck --exclude=artifacts --exclude=.new-* "+which+" || [ $? = 1 ]' | tar -xC "+dir).CombinedOutput()
	if err != nil {
		t.Logf("reading the ledger: %v: %s", err, out)
		return nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "jobs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	recs := map[string]*jobs.Record{}
	for _, d := range found {
		r, err := store.LoadDir(d)
		if err != nil {
			t.Errorf("a record that cannot be read: %v", err)
			continue
		}
		recs[jobs.Short(r.Spec.ID)] = r
	}
	return recs
}
