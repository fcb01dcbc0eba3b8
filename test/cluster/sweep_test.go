//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// 200 tasks in the elements of one array on two nodes, one of which is killed in the
// middle: each task has one accepted result, and no more ran twice than it had begun.
func TestSweep(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.unhurried(t)
	sh := func(text string) string {
		t.Helper()
		return s.ok(t, "export BERTH_HOME="+d+"/state; cd "+d+"; "+text)
	}
	sh("mkdir ran; seq 200 >rows")
	const atOnce = 4
	// What comes after the first 80 waits until a worker was killed.
	sh(fmt.Sprintf("berth sweep submit --backend local --scheduler slurm --workers 2 --cpus %d --time 30m --name two --rows - -- %s <rows", atOnce,
		quote(`while [ {line} -gt 80 ] && [ ! -e go ]; do sleep 0.2; done; sleep 1; echo {line} >>ran/$SLURM_JOB_ID.$$; echo "task {line} on $(hostname)"`)))
	look := func() (state string, done, ok int) {
		t.Helper()
		var a struct {
			Sweep struct {
				State  string
				Done   int
				Counts map[string]int
			}
		}
		if err := json.Unmarshal([]byte(sh("berth sweep status two --json")), &a); err != nil {
			t.Fatal(err)
		}
		return a.Sweep.State, a.Sweep.Done, a.Sweep.Counts["ok"]
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * patience); !is(); time.Sleep(time.Second) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: never; %s", what, sh("berth sweep status two; squeue -a; tail -n 20 state/sweeps/*/*/jobs/*/*.log"))
			}
		}
	}
	var hosts []string
	await("both workers run", func() bool {
		hosts = strings.Fields(sh(`cat state/sweeps/*/*/workers/000/*/worker.json 2>/dev/null | sed -n 's/.*"host":"\([^"]*\)".*/\1/p' || true`))
		_, done, _ := look()
		return len(hosts) == 2 && done >= 40
	})
	if hosts[0] == hosts[1] {
		t.Fatalf("both workers are on %s", hosts[0])
	}
	var worker struct {
		Host, Job string
		PID       int
	}
	if err := json.Unmarshal([]byte(sh("cat state/sweeps/*/*/workers/000/000001/worker.json")), &worker); err != nil || worker.Job == "" {
		t.Fatalf("%+v %v", worker, err)
	}
	s.on(t, worker.Host, "root", "kill", "-9", strconv.Itoa(worker.PID))
	// The element that was started last has the array's id, by which squeue lists the other one too.
	await("the killed worker's element ends", func() bool {
		return !slices.Contains(strings.Fields(sh("squeue -h -t R -o %A -j "+worker.Job+" 2>/dev/null || true")), worker.Job)
	})
	if _, done, _ := look(); done >= 200 {
		t.Fatalf("%d tasks were done before a worker was killed", done)
	}
	sh("touch go; berth sweep resume two")
	await("it finishes", func() bool { state, _, _ := look(); return state == "finished" })
	if _, done, ok := look(); done != 200 || ok != 200 {
		t.Errorf("%d of 200 have a result, %d are ok", done, ok)
	}
	ran := map[string]int{}
	for _, n := range strings.Fields(sh("cat ran/*")) {
		ran[n]++
	}
	again := 0
	for n := range 200 {
		switch times := ran[strconv.Itoa(n+1)]; {
		case times == 0:
			t.Errorf("task %d has a result and never ran", n+1)
		case times > 1:
			again += times - 1
		}
	}
	if again > atOnce || len(ran) != 200 {
		t.Errorf("%d ran again, and %d of 200 at all", again, len(ran))
	}
	for _, n := range []int{1, 100, 200} {
		if out := sh("berth sweep logs two " + strconv.Itoa(n)); !strings.HasPrefix(out, fmt.Sprintf("task %d on c", n)) {
			t.Errorf("task %d: %q", n, out)
		}
	}
	s.quiet(t)
}

// cancel ends what waits and what runs of an array, and leaves nothing of it.
func TestSweepCancel(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "export BERTH_HOME="+d+"/state; cd "+d+`; seq 40 | berth sweep submit --backend local --scheduler slurm --workers 12 --time 10m --name many --rows - -- 'sleep 600 # {line}'
		for i in $(seq 300); do [ "$(squeue --me -h -t R | wc -l)" -gt 0 ] && break; sleep 0.2; done
		berth sweep cancel many
		for i in $(seq 600); do [ "$(squeue --me -h -t PD,R,CG | wc -l)" = 0 ] && break; sleep 0.2; done; squeue --me; [ "$(squeue --me -h -t PD,R,CG | wc -l)" = 0 ]`)
	s.want(t, "export BERTH_HOME="+d+"/state; berth sweep status many | grep -q 'state.cancelled'", 0)
	s.quiet(t)
}

// The tasks of each worker have a room each below its container: they see nothing of the
// sweep's records or of each other, may change the image, and nothing of them is left.
func TestSweepContainer(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	home := "export BERTH_HOME=" + d + "/state; cd " + d + "; "
	s.want(t, home+fmt.Sprintf("seq 20 | berth sweep run --scheduler slurm --image %s --workers 2 --cpus 2 --memory 1GiB --time 10m --network none --name boxed --rows - -- %s", s.image,
		quote(`test ! -e `+d+`/state && test ! -e `+d+` && for f in /tmp/f /var/tmp/f $HOME/f /dev/shm/f /usr/f; do test ! -e $f && touch $f || exit 9; done && `+
			`rm -r /usr/share/doc && mkdir /usr/share/doc && test "$(ls /usr/share/doc | wc -l)" = 0 && `+
			`test "$(whoami)" = alice && test "$(ls -d /proc/[0-9]* | wc -l)" -lt 6 && echo {line} in $(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')`)), 0, "sweep boxed: 20 ok")
	if out := s.ok(t, home+"berth sweep logs boxed 20"); out != "20 in lo" {
		t.Errorf("%q", out)
	}
	// With a list each room has doors of its own.
	s.want(t, home+fmt.Sprintf("seq 4 | berth sweep run --scheduler slurm --image %s --workers 1 --cpus 2 --memory 1GiB --time 10m --own room --network allow --allow good.example "+
		"--name doors --rows - -- %s", s.image, quote(`getent ahostsv4 good.example | grep -q '^198\.18\.' && ! getent ahostsv4 bad.example && echo {line} in $(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')`)),
		0, "sweep doors: 4 ok")
	if out := s.ok(t, home+"berth sweep logs doors 4"); out != "4 in lo" {
		t.Errorf("%q", out)
	}
	if out := s.ok(t, home+"cat state/sweeps/*/*/workers/000/*/worker.json"); strings.Count(out, `"tasks_in":"singularity: `) != 3 {
		t.Error(out)
	}
	if out := s.ok(t, home+"cat state/sweeps/*/*/workers/000/*/own.json"); strings.Count(out, `"own":"room"`) != 3 {
		t.Error(out)
	}
	s.quiet(t)
}
