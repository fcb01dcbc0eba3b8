//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// exec runs a command beside a job's task.
func (s site) beside(t *testing.T, id, flags, command string) answer {
	t.Helper()
	return s.sh(t, fmt.Sprintf("timeout 300 berth exec --job %s %s -- %s", id, flags, quote(command)))
}

// Beside the task of a job that runs: its files, processes and HOME, its
// containment, and none of its life.
func TestJoin(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.dir(t)
		s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo; echo canary-in-home > ~/canary")
		id := s.ok(t, fmt.Sprintf("cd %s; GIVEN=canary-given berth submit %s --image %s --env GIVEN --workspace repo -- %s", d, s.flags(), s.image,
			quote("echo mine >~/made; env | grep ^SLURM_STEP_ >~/step; sleep 310 & until [ -e over ]; do sleep 0.1; done; rm over; kill $!; exit 3")))
		// The container is there a moment before the task's command has begun.
		s.want(t, "berth exec --job "+id+" --wait 5m -- 'until pgrep -f \"sleep 310$\" >/dev/null; do sleep 0.1; done; exit 7'", 7)
		a := s.beside(t, id, "--json", `pwd; cat ~/made; ls; ps -eo args; grep -E "^(CapPrm|CapEff|NoNewPrivs)" /proc/self/status; env; umask; cat ~/canary; ls /home; ls -l /proc/self/fd; env | grep ^SLURM_STEP_ | cmp - ~/step && echo its step; tty`)
		if a.code != 0 && a.code != 1 { // tty says that there is none
			t.Fatalf("%d %s %s", a.code, a.out, a.err)
		}
		for _, want := range []string{`"text": "/work\nmine\n`, `wordcount.py`, `sleep 310`, `CapPrm:\t0000000000000000`, `CapEff:\t0000000000000000`, `NoNewPrivs:\t1`, `\nHOME=/home/alice\n`, `\nSLURM_JOB_ID=`, `\nBERTH_JOB_ID=`, `\n0022\n`, `its step`, `not a tty`} {
			if !strings.Contains(a.out, strings.ReplaceAll(strings.ReplaceAll(want, "\n", `\n`), "\t", `\t`)) {
				t.Errorf("%q is not there:\n%s", want, a.out)
			}
		}
		for _, leak := range []string{"canary-in-home", "canary-given", "SLURM_CONF", "SLURM_STEP_NODELIST", "/home/alice/st"} {
			if strings.Contains(a.out, leak) {
				t.Errorf("%q is seen inside:\n%s", leak, a.out)
			}
		}

		// Two at once; one that is killed takes with it what it has started, and
		// nothing else.
		s.ok(t, fmt.Sprintf(`berth exec --job %[1]s -- 'setsid sleep 311 & sleep 312' & one=$!
			berth exec --job %[1]s --timeout 0 -- 'sleep 313' 2>~/two.err & two=$!; echo $two >~/two
			for i in $(seq 600); do [ "$(berth exec --job %[1]s -- 'pgrep -fc "sleep 31[123]$"')" = 3 ] && break; sleep 0.1; done
			kill -INT $one; wait $one; [ $? = 130 ] || exit 3
			for i in $(seq 600); do left=$(berth exec --job %[1]s -- 'pgrep -fa "sleep 31[0-9]$" | cut -d" " -f2- | sort | tr "\n" ";"'); [ "$left" = 'sleep 310;sleep 313;' ] && break; sleep 0.1; done
			[ "$left" = 'sleep 310;sleep 313;' ] || { echo "$left" >&2; exit 4; }
			berth exec --job %[1]s -- 'touch over'
			wait $two; [ $? = 125 ] || exit 5
			grep -q 'the job ended: exit code 3$' ~/two.err || { cat ~/two.err >&2; exit 6; }`, id))
		if st := s.wait(t, id, 1); st.State != "failed" || st.Exit.Code != 3 {
			t.Errorf("%+v", st)
		}
		s.want(t, "berth exec --job "+id+" -- true", 125, "has ended: exit code 3", "hint: berth logs")
	})
}

// A cancelled job ends who is beside it, and its end waits for no one, though
// the task has stopped the guest there.
func TestJoinEnds(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "", `until [ -e ~/beside ]; do sleep 0.1; done; kill -STOP $(pgrep -f "[g]uest --joined"); echo stopped; sleep 314`)
	a := s.sh(t, "berth exec --job "+id+" --wait 5m --timeout 0 -- 'touch ~/beside; sleep 315' & until berth logs "+id+" | grep -q stopped; do sleep 0.3; done; date +%s%N; berth cancel "+id+"; berth wait "+id+"; date +%s%N; wait $!; echo code $?")
	var from, to int64
	if _, err := fmt.Sscan(a.out, &from, &to); err != nil || !strings.Contains(a.out, "code 125") || !strings.Contains(a.err, "the job ended: cancelled") {
		t.Errorf("%v %s %s", err, a.out, a.err)
	}
	if d := time.Duration(to - from); d > time.Minute {
		t.Errorf("the end took %v", d)
	}
	s.quiet(t)
}

func TestJoinErrors(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--slurm --begin=now+1hour", "true")
	s.want(t, "berth exec --job "+id+" -- true", 125, "does not run yet: it is pending", "hint: berth status "+id)
	s.want(t, "berth exec --job "+id+" --wait 1s -- true", 125, "does not run yet")
	s.want(t, "berth shell "+id+" </dev/null", 125, "needs a terminal")
	s.ok(t, "berth cancel "+id)
	id = s.submit(t, "", "sleep 316")
	s.want(t, "berth exec --job "+id+" --wait 5m -- true", 0)
	s.want(t, "b=$(command -v berth); PATH=/nowhere $b exec --job "+id+" -- true", 125, "srun is not installed here", "hint: .*login node")
	s.want(t, "berth exec --job "+id+" --image x -- true", 125, "--image is for environments")
	// What looks like the runner, and is another process by now.
	st := s.status(t, id)
	s.ok(t, fmt.Sprintf(`sed -i 's/"start": "[0-9]*"/"start": "1"/' %s/inside.json`, st.Dir))
	s.want(t, "berth exec --job "+id+" -- true", 125, "is no more", "hint: berth status "+id)
	s.ok(t, "scancel "+st.NativeID)
	s.wait(t, id, 130)
	s.quiet(t)
}
