//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// untilKilled lasts in its first attempt, and ends in another one.
const untilKilled = `echo begun $BERTH_ATTEMPT_NUMBER; [ $BERTH_ATTEMPT_NUMBER -gt 1 ] || sleep 311; echo ended`

// killFirst submits a job with a profile, kills the runner of its first attempt,
// and waits until the second one is accepted, without a client that would act:
// the ledger's own files tell. It returns the id and the job's directory.
func (s site) killFirst(t *testing.T, profile string) (id, dir string) {
	t.Helper()
	d := s.dir(t)
	s.ok(t, "printf '"+profile+"' >"+d+"/fast.toml")
	id = s.submit(t, "--profile "+d+"/fast.toml --retry on --time 10m", untilKilled)
	dir = s.ok(t, "echo ~/.local/state/berth/jobs/*/*"+id)
	waitFor(t, patience, func() bool { return s.sh(t, "grep -q begun "+dir+"/attempts/0001/stdout").code == 0 })
	node := s.ok(t, `sed -n 's/.*"node": *"\([^"]*\)".*/\1/p' `+dir+"/attempts/0001/claim.json")
	s.on(t, node, "root", "pkill", "-9", "-u", "alice", "-f", "berth-node.* runner .*"+id+"/attempts/0001")
	waitFor(t, patience, func() bool {
		return s.sh(t, `grep -q '"accept"' `+dir+"/attempts/0002/decision.json").code == 0
	})
	if st := s.wait(t, id, 0); st.State != "completed" {
		t.Errorf("%+v", st)
	}
	if out := s.ok(t, "berth logs "+id); out != "begun 2\nended" {
		t.Errorf("the output: %q", out)
	}
	if x := s.tried(t, id); len(x.Attempts) != 2 || x.Attempts[0].Decision.Class != "infrastructure" || !strings.Contains(x.Attempts[1].Decision.By, "the runner") {
		t.Errorf("%+v", x)
	}
	return id, dir
}

// TestReaper has a runner killed, and no one looks: the small job that Slurm
// starts after it does what it could not.
func TestReaper(t *testing.T) {
	each(t, []site{standard, newer, old}, reaper)
}

func reaper(t *testing.T, s site) {
	_, dir := s.killFirst(t, `beat = "2s"\nstage = "never"\n`)
	s.ok(t, "test -s "+dir+"/attempts/0001/reaper.json && test ! -e "+dir+"/attempts/0001/standby.json")
}

// TestStandby is the same on a site whose nodes may not submit: a job that was
// submitted ahead is the second attempt, and the other one ends.
func TestStandby(t *testing.T) {
	each(t, []site{standard, newer}, standby)
}

func standby(t *testing.T, s site) {
	id, dir := s.killFirst(t, `beat = "2s"\nstage = "never"\nnodes_submit = false\n`)
	native := s.status(t, id).NativeID
	ahead := s.ok(t, "cat "+dir+"/attempts/0001/standby.json")
	if !strings.Contains(ahead, fmt.Sprintf("%q: %q", "native_id", native)) && !strings.Contains(ahead, fmt.Sprintf("%q:%q", "native_id", native)) {
		t.Errorf("attempt 2 was job %s, and these were submitted ahead: %s", native, ahead)
	}
	s.ok(t, "! ls "+dir+"/attempts/*/reaper.json 2>/dev/null")
	attempt := s.ok(t, `sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' `+dir+"/attempts/0001/attempt.json")
	waitFor(t, patience, func() bool { return s.sh(t, "squeue -h -o %j | grep berth-next.*-"+attempt).code != 0 })
	s.ok(t, "test ! -e "+dir+"/attempts/0003")
}
