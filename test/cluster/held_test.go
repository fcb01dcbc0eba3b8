//go:build cluster

package cluster

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// held is an environment in allocations, by name, and what runs a command in it.
type held struct {
	site
	name string
	cmd  string // "berth exec ... --"
}

// hold names an environment; it is made by its first command, and removed in
// the end with all that belongs to it.
func (s *site) hold(t *testing.T, flags string) held {
	t.Helper()
	s.need(t)
	h := held{site: *s, name: "held-" + strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))}
	place := "--backend local" // no Apptainer there
	if s.image != "" {
		place = "--image " + s.image
	}
	h.cmd = fmt.Sprintf("berth exec --env %s --scheduler slurm %s %s", h.name, place, flags)
	t.Cleanup(func() {
		a := s.sh(t, "berth env rm --force "+h.name)
		if a.code != 0 && !strings.Contains(a.err, "there is no environment") {
			t.Errorf("remove: %s", a.err)
		}
		waitFor(t, patience, func() bool { return s.ok(t, h.queue()) == "" }) // one that could not be opened ends by itself
		if s.image != "" {
			s.quiet(t)
		}
	})
	return h
}

// run runs a command that must succeed, and returns what it wrote.
func (h held) run(t *testing.T, text string) answer {
	t.Helper()
	return h.want(t, h.cmd+" -- '"+text+"'", 0)
}

// queue lists the environment's jobs that have not ended.
func (h held) queue() string {
	return "squeue --me -h -o '%i %j %T' | grep -- '-env-" + h.name[:min(len(h.name), 30)] + "' || true"
}

// job is the id of its allocation.
func (h held) job(t *testing.T) string {
	t.Helper()
	id := strings.TrimSpace(h.run(t, "echo $SLURM_JOB_ID").out)
	if !regexp.MustCompile(`^[0-9]+$`).MatchString(id) {
		t.Fatalf("SLURM_JOB_ID is %q", id)
	}
	return id
}

// later runs a command that is still running when it returns, until it has
// said "begun".
func (h held) later(t *testing.T, text string) <-chan answer {
	t.Helper()
	c := make(chan answer, 1)
	mark := h.ok(t, "mktemp ~/mark-"+h.name+".XXXXXX")
	go func() {
		c <- h.sh(t, h.cmd+" --session later --timeout 0 -- 'echo begun; "+text+"' | tee "+mark+"; exit ${PIPESTATUS[0]}")
	}()
	t.Cleanup(func() { h.sh(t, "rm -f "+mark) })
	waitFor(t, patience, func() bool { return h.sh(t, "grep -q begun "+mark).code == 0 })
	return c
}

// within waits for the end of such a command.
func within(t *testing.T, c <-chan answer, limit time.Duration) answer {
	t.Helper()
	began := time.Now()
	select {
	case a := <-c:
		t.Logf("after %v: %s", time.Since(began).Round(time.Second), a.err)
		return a
	case <-time.After(limit):
		t.Fatalf("nothing was said within %v", limit)
		return answer{}
	}
}

func TestHeld(t *testing.T) {
	each(t, []site{standard, old, newer, strict}, func(t *testing.T, s site) {
		flags := ""
		if s.profile == "strict" {
			flags = "--profile /mnt/share/strict.toml"
		}
		h := s.hold(t, flags)
		first := h.run(t, "cd /tmp; A=kept; echo data >~/held.txt; hostname")
		if !strings.Contains(first.err, "asked slurm for an allocation") {
			t.Errorf("stderr: %s", first.err)
		}
		again := h.run(t, "echo $A $PWD; hostname")
		if want := "kept /tmp\n" + first.out; again.out != want || again.err != "" {
			t.Errorf("%q %q, want %q", again.out, again.err, want)
		}
		if n := strings.Count(s.ok(t, h.queue())+"\n", "\n"); n != 1 {
			t.Errorf("%d jobs:\n%s", n, s.ok(t, h.queue()))
		}
		job := h.job(t)
		// Codes, streams, time.
		if a := h.want(t, h.cmd+" -- 'echo out; echo err >&2; exit 3'", 3); a.out != "out\n" || a.err != "err\n" {
			t.Errorf("%q %q", a.out, a.err)
		}
		h.want(t, h.cmd+" --timeout 1s -- 'sleep 310'", 124)
		h.want(t, h.cmd+" -- no-such-program-310", 127)
		// Several clients at once.
		a := h.want(t, "for i in 1 2 3 4 5 6; do "+h.cmd+" --session s$i -- \"sleep 0.5; echo $i\" & done; wait", 0)
		if len(strings.Fields(a.out)) != 6 {
			t.Errorf("six clients: %q %s", a.out, a.err)
		}
		// Files, larger than what the step carries well, and the terminal.
		d := s.dir(t)
		h.ok(t, "head -c 40000000 /dev/urandom >"+d+"/big && berth cp --env "+h.name+" "+d+"/big :/tmp/held-big && berth cp --env "+h.name+" :/tmp/held-big "+d+"/back && cmp "+d+"/big "+d+"/back")
		h.ok(t, "rm -f "+d+"/big "+d+"/back")
		h.run(t, "rm -f /tmp/held-big")
		if out := h.ok(t, "TERM=xterm script -qec 'berth shell --env "+h.name+" -- tty' /dev/null </dev/null"); !strings.Contains(out, "/dev/pts/") {
			t.Errorf("terminal: %q", out)
		}
		// Background processes are found by others.
		bg := h.ok(t, "berth bg start --env "+h.name+" -- 'echo in the background; sleep 310'")
		waitFor(t, patience, func() bool {
			return strings.Contains(h.ok(t, "berth bg log --env "+h.name+" "+bg), "in the background")
		})
		h.ok(t, "berth bg kill --env "+h.name+" "+bg)
		if out := h.ok(t, "berth env show "+h.name); !strings.Contains(out, job) {
			t.Errorf("env show does not name the allocation %s:\n%s", job, out)
		}
		// It is given back, and another one goes on.
		h.ok(t, "berth env stop "+h.name)
		if left := s.ok(t, h.queue()); left != "" {
			t.Errorf("after stop: %s", left)
		}
		next := h.want(t, h.cmd+" -- 'cat ~/held.txt; rm ~/held.txt; echo $SLURM_JOB_ID'", 0, "started again")
		if lines := strings.Fields(next.out); len(lines) != 2 || lines[0] != "data" || lines[1] == job {
			t.Errorf("%q, not in another allocation than %s", next.out, job)
		}
		h.ok(t, "berth env rm --force "+h.name)
	})
}

func TestHeldQueue(t *testing.T) {
	s := standard
	h := s.hold(t, "--slurm --begin=now+2hours")
	h.want(t, h.cmd+" --immediate=2s -- true", 125, "no allocation within 2s", "hint: .*--immediate")
	if left := s.ok(t, h.queue()); left != "" {
		t.Errorf("after giving up: %s", left)
	}
	// Who waits and is interrupted keeps the place in the queue.
	said := h.ok(t, "mktemp ~/said-"+h.name+".XXXXXX")
	t.Cleanup(func() { s.sh(t, "rm -f "+said) })
	h.want(t, h.cmd+" -- true 2>"+said+" & until grep -q 'waits in the queue' "+said+" || ! kill -0 $!; do sleep 0.2; done; kill -INT $!; wait $!; code=$?; cat "+said+" >&2; exit $code", 130, "waits in the queue", "stays in the queue for the next command; berth env stop "+h.name)
	if left := s.ok(t, h.queue()); !strings.Contains(left, "PENDING") {
		t.Errorf("after an interrupt: %q", left)
	}
	if out := s.ok(t, "berth env ls | grep "+h.name); !strings.Contains(out, "queued") {
		t.Errorf("env ls: %q", out)
	}
	h.want(t, h.cmd+" --immediate=1s -- true", 125, "no allocation within 1s")
	if left := s.ok(t, h.queue()); !strings.Contains(left, "PENDING") {
		t.Errorf("somebody else's place was given up: %q", left)
	}
	s.ok(t, "berth env stop "+h.name)
	if left := s.ok(t, h.queue()); left != "" {
		t.Errorf("after stop: %s", left)
	}
}

func TestHeldErrors(t *testing.T) {
	s := standard
	s.need(t)
	for name, c := range map[string]struct{ flags, stderr string }{
		"partition":   {"--partition nosuch", "(?i)partition"},
		"image":       {"--image /home/alice/none.sif", "image /home/alice/none.sif does not exist"},
		"docker":      {"--backend docker", "the backend docker goes with the local scheduler, not with slurm"},
		"scheduler":   {"--scheduler pbs", `--scheduler must be "auto", "slurm" or "local", found "pbs"`},
		"time":        {"--time soon", "time"},
		"no schedule": {"--scheduler local --time 5m", "a time limit: not available without an allocation"},
		"backend":     {"--backend ssh --host login", "the backend ssh goes with the local scheduler, not with slurm"},
	} {
		t.Run(name, func(t *testing.T) {
			env := "held-err-" + strings.ReplaceAll(name, " ", "-")
			a := s.sh(t, "berth exec --env "+env+" --scheduler slurm --image "+s.image+" "+c.flags+" -- true")
			if a.code != 125 || !regexp.MustCompile(c.stderr).MatchString(a.err) || !strings.Contains(a.err, "hint: ") && !strings.Contains(a.err, "write for example") && !strings.Contains(a.err, " must be ") {
				t.Errorf("exit %d: %s", a.code, a.err)
			}
			if a := s.sh(t, "berth env ls | grep "+env); a.code == 0 {
				t.Errorf("a record is left: %s", a.out)
			}
		})
	}
}

// The image is not on the node: its keeper says so, and the allocation is given
// back.
func TestHeldCannotOpen(t *testing.T) {
	s := standard
	h := s.hold(t, "")
	d := s.dir(t)
	s.ok(t, "echo junk >"+d+"/bad.sif")
	h.cmd = strings.Replace(h.cmd, s.image, d+"/bad.sif", 1)
	a := h.want(t, h.cmd+" -- true", 125, "bad.sif")
	t.Log(a.err)
	if a := s.sh(t, "berth env ls | grep "+h.name); a.code == 0 {
		t.Errorf("a record is left: %s", a.out)
	}
}

// Its time is up: it ends in order before, and the next one goes on.
func TestHeldTimeUp(t *testing.T) {
	s := old
	h := s.hold(t, "--time 1m")
	h.want(t, h.cmd+" -- 'echo data >~/held.txt; echo $SLURM_JOB_ID'", 0, "the allocation ends in")
	c := h.later(t, "sleep 310")
	a := within(t, c, patience)
	if a.code == 0 || !strings.Contains(a.err, "time of its allocation") {
		t.Errorf("exit %d: %s", a.code, a.err)
	}
	if a := h.want(t, h.cmd+" -- 'cat ~/held.txt'", 0, `started again \(the time of its allocation \([0-9]+\) was up\)`); a.out != "data\n" {
		t.Errorf("%q", a.out)
	}
}

func TestHeldPreempted(t *testing.T) {
	s := standard
	h := s.hold(t, "--slurm --nodelist=c1")
	h.run(t, "echo data >~/held.txt")
	c := h.later(t, "sleep 310")
	urgent := s.ok(t, "sbatch --parsable -p urgent --exclusive --nodelist=c1 -o /dev/null --wrap 'sleep 2'")
	defer s.sh(t, "scancel "+urgent)
	a := within(t, c, patience)
	if a.code != 125 && a.code != 143 && a.code != 137 || !strings.Contains(a.err, "PREEMPTED") && !strings.Contains(a.err, "signal") {
		t.Errorf("exit %d: %s", a.code, a.err)
	}
	if a := h.want(t, h.cmd+" -- 'cat ~/held.txt'", 0, "started again|PREEMPTED"); a.out != "data\n" {
		t.Errorf("%q %s", a.out, a.err)
	}
}

// The batch process is killed: the job ends with it, and the next one says so.
func TestHeldKeeperKilled(t *testing.T) {
	s := standard
	h := s.hold(t, "--slurm --nodelist=c1")
	h.run(t, "echo data >~/held.txt")
	job := h.job(t)
	c := h.later(t, "sleep 310")
	s.on(t, "c1", "root", "bash", "-c", "pkill -9 -u alice -f 'keep --env .*/"+h.name+" '")
	if a := within(t, c, patience); a.code != 125 || !strings.Contains(a.err, job) {
		t.Errorf("exit %d: %s", a.code, a.err)
	}
	if a := h.want(t, h.cmd+" -- 'cat ~/held.txt'", 0, "its keeper was killed"); a.out != "data\n" {
		t.Errorf("%q %s", a.out, a.err)
	}
	if now := h.job(t); now == job {
		t.Errorf("still in allocation %s", job)
	}
}

// The step is killed, or the one that holds it: whoever runs a command is told
// at once, and the next one goes on in the same allocation and session.
func TestHeldLinkKilled(t *testing.T) {
	s := newer
	h := s.hold(t, "")
	h.run(t, "A=kept")
	job := h.job(t)
	for _, pattern := range []string{"srun --jobid=" + job + " ", "hold --env .*/" + h.name} {
		c := h.later(t, "sleep 310")
		s.on(t, "login", "root", "bash", "-c", "pkill -9 -u alice -f -- '"+pattern+"'")
		if a := within(t, c, patience); a.code != 125 {
			t.Errorf("%s: exit %d: %s", pattern, a.code, a.err)
		}
		if a := h.want(t, h.cmd+" -- 'echo $A $SLURM_JOB_ID'", 0); a.out != "kept "+job+"\n" {
			t.Errorf("%s: %q %s", pattern, a.out, a.err)
		}
	}
}

// The node's network is cut for longer than anybody waits: that is said within
// 30 s. When it comes back, the same allocation goes on.
func TestHeldNodeCut(t *testing.T) {
	s := standard
	h := s.hold(t, "--slurm --nodelist=c2")
	s.disturb(t)
	s.configure(t, "SlurmdTimeout", 300, 60) // it is not given up before berth has said something
	h.run(t, "A=kept")
	job := h.job(t)
	c := h.later(t, "sleep 310")
	node := s.container("c2")
	network := docker(t, "inspect", "-f", "{{range $k, $v := .NetworkSettings.Networks}}{{$k}}{{end}}", node)
	docker(t, "network", "disconnect", network, node)
	back := func() {
		_ = exec.Command("docker", "network", "connect", "--alias", "c2", network, node).Run()
	}
	defer back()
	if a := within(t, c, time.Minute); a.code != 125 || !strings.Contains(a.err, "link to it broke") {
		t.Errorf("exit %d: %s", a.code, a.err)
	}
	back()
	waitFor(t, patience, func() bool {
		a := s.sh(t, "timeout 60 "+h.cmd+" -- 'echo $A $SLURM_JOB_ID'")
		return a.out == "kept "+job+"\n"
	})
	waitFor(t, patience, func() bool { _, err := s.healthy(t); return err == nil })
}

// A terminal lives through a restart of slurmctld.
func TestHeldSlurmRestart(t *testing.T) {
	s := standard
	h := s.hold(t, "")
	h.run(t, "true")
	c := make(chan answer, 1)
	mark := h.ok(t, "mktemp ~/mark-"+h.name+".XXXXXX")
	t.Cleanup(func() { s.sh(t, "rm -f "+mark) })
	go func() {
		c <- s.sh(t, "TERM=xterm script -qec 'berth shell --env "+h.name+" -- \"echo tick \\$((3+4)); until [ -e /tmp/held-over ]; do sleep 0.2; done; echo tock \\$((4+4))\"' /dev/null </dev/null | tee "+mark+"; exit ${PIPESTATUS[0]}")
	}()
	waitFor(t, patience, func() bool { return h.sh(t, "grep -q 'tick 7' "+mark).code == 0 })
	for _, verb := range []string{"stop", "start"} {
		if a := s.on(t, "ctl", "root", "/usr/local/sbin/tb-slurmctld", verb); a.code != 0 {
			t.Fatal(a.err)
		}
	}
	waitFor(t, patience, func() bool { _, err := s.healthy(t); return err == nil })
	h.want(t, h.cmd+" --session over -- 'touch /tmp/held-over'", 0)
	if a := within(t, c, patience); a.code != 0 || !strings.Contains(a.out, "tock 8") {
		t.Errorf("exit %d: %q %s", a.code, a.out, a.err)
	}
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
