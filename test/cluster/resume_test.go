//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// counter counts in the workspace and in the layer, as long as its attempt
// lasts; the third ends by itself. It fails when one of the two did not come
// along, or is behind the other.
const counter = `
n=$(cat count 2>/dev/null || echo 0); m=$(cat ~/count 2>/dev/null || echo 0)
trap 'stop=1' TERM
echo $BERTH_ATTEMPT_NUMBER >>attempts
echo "attempt $BERTH_ATTEMPT_NUMBER from ${BERTH_RESUMED:-0}: $n $m"
[ $n = $m ] || exit 9
while [ -z "$stop" ]; do
	[ $BERTH_ATTEMPT_NUMBER -lt LAST ] || [ $n -lt 1 ] || { echo the end >end; exit 0; }
	n=$((n+1)); echo $n >count; echo $n >~/count; sleep 0.5
done
`

// TestResume has a task that is longer than its time limit, and no one looks:
// it needs three attempts, ends once, and one branch has what all have done. A
// second one is requeued, in an overlay with a name.
func TestResume(t *testing.T) {
	each(t, []site{standard, newer}, resume)
}

func resume(t *testing.T, s site) {
	if s.version == standard.version {
		s.unhurried(t)
	}
	d := s.dir(t)
	s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo")
	submit := func(name, image, resources string, last int) string {
		t.Helper()
		command := strings.ReplaceAll(counter, "LAST", fmt.Sprint(last))
		s.ok(t, fmt.Sprintf("cat >%s/%s.md <<'E'\n+++\nname = %q\nagent.command = '''%s'''\n[workspace]\nrepo = \"repo\"\n[terminal]\nimage = %q\n%s\n[resources]\n%s\n[resume]\nbefore = \"16s\"\nhook = \"echo $BERTH_HOOK >>hooks\"\n+++\nE", d, name, name, command, s.image, image, resources))
		return s.ok(t, "berth submit "+d+"/"+name+".md")
	}
	long := submit("long", "", `time = "65s"`, 3)
	overlay := "resume-" + strings.ToLower(long)
	t.Cleanup(func() { s.sh(t, "berth overlay rm "+overlay) })
	requeued := submit("requeued", fmt.Sprintf("overlay = %q", overlay), `time = "10m"`, 2)
	s.state(t, requeued, "running")
	begun := "grep -q 'attempt 1' ~/.local/state/berth/jobs/*/*" + requeued + "/attempts/0001/stdout"
	waitFor(t, patience, func() bool { return s.sh(t, begun).code == 0 })
	s.ok(t, "scontrol requeue "+s.status(t, requeued).NativeID)

	// The ledger's own files tell, without a client that would act.
	accepted := "grep -l '\"accept\"' ~/.local/state/berth/jobs/*/*" + long + "/attempts/*/decision.json 2>/dev/null || true"
	waitFor(t, patience, func() bool { return s.ok(t, accepted) != "" })
	for id, last := range map[string]int{long: 3, requeued: 2} {
		st := s.wait(t, id, 0)
		x := s.tried(t, id)
		if st.State != "completed" || !st.Taken || len(x.Attempts) != last {
			t.Fatalf("%+v\n%+v", st, x)
		}
		if got := s.ok(t, "git -C "+d+"/repo show "+st.Branch+":attempts"); got != strings.TrimSpace("1\n2\n3"[:2*last-1]) {
			t.Errorf("%s: the branch has the attempts %q", st.Name, got)
		}
		if got := s.ok(t, "git -C "+d+"/repo show "+st.Branch+":hooks"); got != strings.TrimSpace(strings.Repeat("stop\n", last-1)) {
			t.Errorf("%s: the hook was told %q", st.Name, got)
		}
		if got := s.ok(t, "git -C "+d+"/repo rev-list --count main.."+st.Branch); got != "1" {
			t.Errorf("%s: %s commits", st.Name, got)
		}
		if out := s.ok(t, "berth logs "+id); !strings.Contains(out, fmt.Sprintf("attempt %d from %d: ", last, last-1)) {
			t.Errorf("%s: %s", st.Name, out)
		}
		for n, a := range x.Attempts {
			class := map[string]string{long: "time", requeued: "preempted"}[id]
			if n < last-1 && (a.Decision == nil || a.Decision.Verb != "retry" || a.Decision.Class != class) {
				t.Errorf("%s: attempt %d: %+v", st.Name, a.Number, a.Decision)
			}
		}
	}
	if left := s.ok(t, "ls ~/.local/state/berth/overlays/.kept 2>/dev/null || true"); strings.Contains(left, long) {
		t.Errorf("kept: %s", left)
	}
}
