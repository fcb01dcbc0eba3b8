//go:build cluster

package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/internet"
)

// 500 tasks of a simulation whose answer is known, each in a room of a container, on two
// nodes beside jobs of another user: a node is lost, slurmctld begins again, and the sweep
// is cancelled and goes on. Each task has one accepted result, their sum is the known one,
// and no more ran twice than were under way.
func TestSweep(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it takes a node away
	d := s.dir(t)
	sh := func(text string) string {
		t.Helper()
		return s.ok(t, "export BERTH_HOME="+d+"/state; cd "+d+"; "+text)
	}
	const tasks, atOnce = 500, 3 // of the four CPUs of a node
	sh(fmt.Sprintf("mkdir ran go; chmod 700 ran; seq %d >rows", tasks))
	t.Cleanup(func() {
		if t.Failed() {
			s.sh(t, "BERTH_HOME="+d+"/state berth sweep cancel two")
		}
	})
	// Once 100 have run, and 250, the next ones wait for what has to happen first.
	sh(fmt.Sprintf("berth sweep submit --scheduler slurm --image %s --workers 2 --cpus %d --memory 1GiB --time 30m --network none --own room "+
		"--bind %s/ran:/ran:rw --bind %s/go:/go:ro --name two --rows - -- %s <rows", s.image, atOnce, d, d,
		quote(`ran() { ls /ran | wc -l; }
while [ $(ran) -ge 100 ] && [ ! -e /go/1 ] || [ $(ran) -ge 250 ] && [ ! -e /go/2 ]; do sleep 0.2; done
x={line}; for i in 1 2 3 4 5 6 7 8 9 10; do x=$(((x * 75 + 74) % 65537)); done; echo {line} >>/ran/$(hostname).$$.{line}; echo "{\"x\": $x}"`)))
	known := 0
	for i := range tasks {
		x := i + 1
		for range 10 {
			x = (x*75 + 74) % 65537
		}
		known += x
	}
	beside := strings.Fields(s.on(t, "login", "bob", "bash", "-c", `for n in c1 c2; do sbatch --parsable -J beside -w $n -o /dev/null --no-requeue --wrap 'sleep 15; true'; done`).out)
	if len(beside) != 2 {
		t.Fatalf("the other user's jobs: %q", beside)
	}
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
	type worker struct{ Host, Job string }
	workers := func() (all []worker) {
		t.Helper()
		dec := json.NewDecoder(strings.NewReader(sh(`cat state/sweeps/*/*/workers/000/*/worker.json 2>/dev/null || true`)))
		for dec.More() {
			var w worker
			if err := dec.Decode(&w); err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		return all
	}
	await("both workers run", func() bool {
		_, done, _ := look()
		return len(workers()) == 2 && done >= 40
	})
	all := workers()
	if all[0].Host == all[1].Host {
		t.Fatalf("both workers are on %s", all[0].Host)
	}
	await("the other user's jobs end", func() bool {
		return s.on(t, "login", "bob", "squeue", "-h", "--me", "-n", "beside", "-t", "PD,R,CG").out == ""
	})

	lost := all[0].Host
	docker(t, "kill", s.container(lost))
	t.Cleanup(func() { _ = exec.Command("docker", "start", s.container(lost)).Run() })
	docker(t, "start", s.container(lost))
	s.on(t, lost, "root", "bash", "-c", "rm -rf /tmp/berth-1000-* /var/tmp/berth-1000-*") // as a node that boots does
	// Slurm would find out by itself, in minutes.
	if a := s.on(t, "ctl", "root", "scontrol", "update", "NodeName="+lost, "State=DOWN", "Reason=killed"); a.code != 0 {
		t.Fatal(a.err)
	}
	waitFor(t, patience, func() bool {
		s.on(t, "ctl", "root", "scontrol", "update", "NodeName="+lost, "State=RESUME")
		_, err := s.healthy(t)
		return err == nil
	})
	if _, done, _ := look(); done >= tasks/2 {
		t.Fatalf("%d tasks were done before the node was lost", done)
	}
	sh("touch go/1; berth sweep resume two")

	for _, verb := range []string{"stop", "start"} {
		if a := s.on(t, "ctl", "root", "/usr/local/sbin/tb-slurmctld", verb); a.code != 0 {
			t.Fatal(a.err)
		}
		if verb == "stop" { // status asks no Slurm
			await("it goes on without slurmctld", func() bool { _, done, _ := look(); return done >= 120 })
		}
	}
	waitFor(t, patience, func() bool { _, err := s.healthy(t); return err == nil })

	sh("berth sweep cancel two")
	await("it is cancelled", func() bool { return sh("squeue -h --me -t PD,R,CG") == "" })
	if state, done, _ := look(); state != "cancelled" || done >= tasks {
		t.Fatalf("%s with %d of %d done", state, done, tasks)
	}
	sh("touch go/2; berth sweep resume two")
	await("it finishes", func() bool { state, _, _ := look(); return state == "finished" })
	if _, done, ok := look(); done != tasks || ok != tasks {
		t.Errorf("%d of %d have a result, %d are ok", done, tasks, ok)
	}

	sum, results := 0, map[string]bool{}
	for line := range strings.Lines(sh("berth sweep collect two --jsonl -")) {
		var r struct {
			Params struct{ Line string }
			Values struct{ X int }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if results[r.Params.Line] {
			t.Errorf("row %s has two results", r.Params.Line)
		}
		results[r.Params.Line] = true
		sum += r.Values.X
	}
	if sum != known || len(results) != tasks {
		t.Errorf("%d results with the sum %d, want %d with %d", len(results), sum, tasks, known)
	}
	ran := map[string]int{}
	for _, n := range strings.Fields(sh("cat ran/*")) {
		ran[n]++
	}
	again := 0
	for n := range tasks {
		switch times := ran[strconv.Itoa(n+1)]; {
		case times == 0:
			t.Errorf("task %d has a result and never ran", n+1)
		case times > 1:
			again += times - 1
		}
	}
	// What both workers had under way, twice, and what the lost node had not synced of its last second.
	t.Logf("%d tasks ran again", again)
	if again > tasks/10 || len(ran) != tasks {
		t.Errorf("%d ran again, and %d of %d at all", again, len(ran), tasks)
	}
	if ends := s.on(t, "login", "bob", "bash", "-c", "scontrol show job "+beside[0]+"; scontrol show job "+beside[1]).out; strings.Count(ends, "JobState=COMPLETED") != 2 {
		t.Error(ends)
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

// A task with ranks has a step of its own in its worker's job, beside other tasks; one that is
// ended leaves no step behind, whatever its ranks do with a TERM.
func TestSweepRanks(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	home := "export BERTH_HOME=" + d + "/state; cd " + d + "; "
	s.ok(t, home+"cat >ranks.toml <<'END'\n"+`name = "ranks"
command = 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"; [ {n} != 2 ] || { trap "" TERM; sleep 317; }; [ {n} != 3 ] || exit 7'
ntasks = 2
mem = "100MiB"
[grid]
n = [1, 2, 3, 4]
`+"END")
	s.want(t, home+"berth sweep run --scheduler slurm --backend local --workers 1 --cpus 4 --memory 800MiB --time 10m --task-time 5s ranks.toml", 1,
		"sweep ranks: 2 ok, 1 failed, 1 timeout")
	if out := s.ok(t, home+"berth sweep logs ranks 1 2>/dev/null | sort"); out != "rank 0 of 2\nrank 1 of 2" {
		t.Errorf("%q", out)
	}
	s.want(t, home+"berth sweep ls ranks --where 'n == 3' | grep -q 'failed.7'", 0)
	s.quiet(t)
	s.want(t, home+"berth sweep submit --scheduler slurm --image "+s.image+" --cpus 4 --memory 800MiB --name boxed ranks.toml", 2, "only in jobs of Slurm, without a container")
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

// A cap of what models are asked is counted for each task that has a room, by each of its tries, and is refused to that
// task alone, over new connections, too. With an open network, whose loopback all rooms share, the worker is counted.
func TestSweepCaps(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes the nodes' name server
	s.internet(t)
	d := s.dir(t)
	s.ok(t, "mkdir -m 700 -p "+d+"/config/berth "+d+"/ask; cd "+d+"; umask 077; echo "+internet.ModelKey+" >config/berth/key; cat >config/berth/config.toml <<E\n"+
		"[credentials.anthropic]\nfrom = \"file:"+d+"/config/berth/key\"\nupstream = \"https://model.test\"\nca = \"/mnt/share/internet/ca.pem\"\nE\n"+
		"cat >ask/ask.py <<'E'\n"+`import os, sys, urllib.request as u, urllib.error
body = b'{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}'
for _ in range(int(sys.argv[1])):
    try:
        with u.urlopen(u.Request(os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages', data=body, headers={'x-api-key': os.environ['ANTHROPIC_API_KEY']}), timeout=60) as r:
            print(r.status, end=' ')
    except urllib.error.HTTPError as e:
        print(e.code, end=' ')
`+"\nE")
	sweep := func(name, flags, program string) string {
		return "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "; cat >sweep.toml <<'E'\n" +
			"command = '''" + program + "'''\ngrid = {n = [1, 2, 3, 4]}\nretry = {task = 1, codes = [75]}\nE\n" +
			"berth sweep run --scheduler slurm --image " + s.image + " --workers 1 --cpus 2 --memory 1GiB --time 10m --own room --credential anthropic --bind " +
			d + "/ask:/ask:rw --name " + name + " " + flags + " sweep.toml"
	}
	s.want(t, sweep("rooms", "--max-requests 2", `test "$(python3 /ask/ask.py 4)" = "200 200 429 429 " && test "$(python3 /ask/ask.py 1)" = "429 " || exit 1
test -e /ask/{n} || { touch /ask/{n}; exit 75; }`), 0, "sweep rooms: 4 ok")
	// The last of it is on disk a moment after the answer.
	s.want(t, "export BERTH_HOME="+d+"/state; for n in $(seq 100); do berth sweep status rooms | grep -x 'models.16 requests, 208 tokens' && exit; sleep 0.2; done; berth sweep status rooms; exit 1", 0)
	s.want(t, sweep("open", "--max-requests 1 --network open --at-once 1", `test "$(python3 /ask/ask.py 1)" = "200 " && echo {n}`), 1, "sweep open: 1 ok, 3 failed")
	if out := s.ok(t, "cat "+d+"/state/sweeps/*/*/workers/000/*/own.json"); strings.Count(out, `"own":"room"`) != 2 {
		t.Error(out)
	}
	s.quiet(t)
}

// The tasks of a sweep begin with the files of an overlay as it was when they were submitted, of any
// driver, in rooms and in containers of their own, on both nodes; none sees what another one writes.
func TestSweepOverlay(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	home := "export BERTH_HOME=" + d + "/state TMPDIR=/tmp; cd " + d + "; "
	write := func(program string) {
		t.Helper()
		s.want(t, home+"berth run --image "+s.image+" --time 10m --memory 1GiB --overlay deps -- "+quote(program), 0)
	}
	task := func(name, overlay, flags, tool string) string {
		return home + fmt.Sprintf("seq 8 | berth sweep run --scheduler slurm --image %s --overlay %s --workers 2 --cpus 2 --memory 1GiB --time 10m --name %s %s --bind %s:/d --rows - -- %s",
			s.image, overlay, name, flags, d, quote(`test "$(cat /opt/tool)" = `+tool+` && test ! -e /usr/share/doc && test ! -e /opt/mine && `+
				`echo {line} >/opt/tool && touch /opt/mine && mkdir /usr/share/doc && test -z "$(ls /usr/share/doc)" && test ! -e /d/fail`))
	}
	write("echo one >/opt/tool; rm -r /usr/share/doc")
	s.want(t, task("rooms", "deps", "--own room", "one"), 0, "making the image", "begins with the files of overlay deps", "sweep rooms: 8 ok")
	s.ok(t, "touch "+d+"/fail")
	if a := s.sh(t, task("boxes", "deps", "--own container", "one")); a.code != 1 || strings.Contains(a.err, "making the image") || !strings.Contains(a.err, "sweep boxes: 0 ok, 8 failed") {
		t.Errorf("%+v", a)
	}
	s.ok(t, "rm "+d+"/fail")
	// The overlay goes on; the sweep has what it began with.
	write("test $(cat /opt/tool) = one && echo two >/opt/tool")
	s.ok(t, home+"berth sweep retry boxes --failed && until berth sweep status boxes | grep -q 'state.finished'; do sleep 1; done")
	s.want(t, home+"berth sweep status boxes | grep -x 'ok.8'", 0)
	s.ok(t, home+"berth overlay fork deps packed && berth overlay convert packed --driver ext3 --size 64MiB")
	s.want(t, task("packed", "packed", "", "two"), 0, "sweep packed: 8 ok")
	if out := s.ok(t, home+"cat state/sweeps/*/*/workers/000/*/own.json | grep -o '\"own\":\"[a-z]*\"' | sort | uniq -c | awk '{print $2}'"); out != "\"own\":\"container\"\n\"own\":\"room\"" {
		t.Errorf("%q", out)
	}
	s.quiet(t)
}

// A sweep from a machine without Slurm, through the login node: its records and its tasks are there, a table comes
// here, and it is held and goes on from here, also after the link was down. Each task has one result.
func TestSweepFar(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	ip := s.on(t, "login", "root", "hostname", "-i")
	k := newLink(t, net.JoinHostPort(strings.Fields(ip.out)[0], "22"))
	c := newClient(t, s, k)
	rows := filepath.Join(c.dir, "rows.csv")
	var text strings.Builder
	text.WriteString("n\n")
	for n := range 20 {
		fmt.Fprintln(&text, n+1)
	}
	if err := os.WriteFile(rows, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(append([]string{"sweep", "submit"}, c.login...), "--image", s.image, "--bind", d+":/d:rw", "--env", "TOKEN",
		"--workers", "2", "--cpus", "2", "--memory", "1GiB", "--time", "10m", "--name", "far", "--rows", rows, "--",
		`while [ {n} -gt 8 ] && [ ! -e /d/go ]; do sleep 0.2; done; echo {n} >>/d/ran.{n}; echo "{\"square\": $(({n} * {n})), \"token\": ${#TOKEN}}"`)
	id := c.ok(args...)
	t.Cleanup(func() {
		k.mend()
		c.run("sweep", "cancel", id)
		s.sh(t, "rm -rf ~/.local/state/berth/sweeps")
	})
	look := func() (state string, ok int) {
		t.Helper()
		var a struct {
			Sweep struct {
				State  string
				Counts map[string]int
			}
		}
		if err := json.Unmarshal([]byte(c.ok("sweep", "status", "--json", id)), &a); err != nil {
			t.Fatal(err)
		}
		return a.Sweep.State, a.Sweep.Counts["ok"]
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * patience); !is(); time.Sleep(time.Second) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: never; %+v", what, c.run("sweep", "status", id))
			}
		}
	}
	await("the first eight end", func() bool { _, ok := look(); return ok == 8 })
	if a := c.run("sweep", "ls"); !strings.Contains(a.out, "\tfar\tthere\t-/20\ton 127.0.0.1: ") {
		t.Errorf("%+v", a)
	}
	// Without a link it says so, and nothing of it ends.
	k.cut()
	if a := c.run("sweep", "status", id); a.code != 5 && a.code != 75 || !strings.Contains(a.err, "berth: hint: ") {
		t.Errorf("without a link: %+v", a)
	}
	k.mend()
	c.ok("sweep", "cancel", id)
	await("it is cancelled", func() bool {
		state, _ := look()
		return state == "cancelled" && s.ok(t, "squeue --me -h | wc -l") == "0"
	})
	s.ok(t, "touch "+d+"/go")
	c.ok("sweep", "resume", id)
	await("it finishes", func() bool { state, ok := look(); return state == "finished" && ok == 20 })
	table := filepath.Join(c.dir, "far.jsonl")
	c.ok("sweep", "collect", id, "--jsonl", table)
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 20; n++ {
		if want := fmt.Sprintf(`"square":%d,"token":13}`, n*n); strings.Count(string(b), want) != 1 {
			t.Errorf("%s stands there %d times: %s", want, strings.Count(string(b), want), b)
		}
	}
	// It is paired with one of this machine: each is read where it is, and a link that is down is no comparison.
	c.ok("sweep", "run", "--backend", "local", "--scheduler", "local", "--name", "here", "--rows", rows, "--", `echo "{\"square\": $(({n} * {n} + 1))}"`)
	var compared struct {
		Pairs   int
		OnlyA   int `json:"only_a"`
		OnlyB   int `json:"only_b"`
		Metrics []struct {
			Name       string
			Pairs      int
			Difference float64
		}
	}
	if err := json.Unmarshal([]byte(c.ok("sweep", "compare", id, "here", "--json")), &compared); err != nil {
		t.Fatal(err)
	}
	if m := compared.Metrics; compared.Pairs != 20 || compared.OnlyA+compared.OnlyB != 0 || len(m) != 2 || m[1].Name != "square" || m[1].Pairs != 20 || m[1].Difference != 1 {
		t.Errorf("%+v", compared)
	}
	k.cut()
	if a := c.run("sweep", "compare", "here", id); a.code != 5 && a.code != 75 || a.out != "" {
		t.Errorf("without a link: %+v", a)
	}
	k.mend()
	farTemplate(t, s, c, rows)
	if out := s.ok(t, "cat "+d+"/ran.* | sort -n | uniq -c | awk '$1 != 1'; ls "+d+"/ran.* | wc -l"); out != "20" {
		t.Errorf("tasks that ran more than once: %s", out)
	}
	if a := s.sh(t, "grep -rl s3cr3t-canary ~/.local/state/berth/sweeps"); a.out != "" {
		t.Errorf("the secret is left in %s", a.out)
	}
	if a := s.sh(t, "berth sweep status far"); a.code != 0 || !strings.Contains(a.out, "state\tfinished") {
		t.Errorf("there: %+v", a)
	}
	c.ok("sweep", "forget", id)
	if a := c.run("sweep", "status", id); a.code != 3 {
		t.Errorf("%+v", a)
	}
	s.quiet(t)
}

// farTemplate has tasks begin with the image of a template of the client's machine, which is sent once.
func farTemplate(t *testing.T, s site, c *client, rows string) {
	t.Helper()
	image, sif := filepath.Join(c.dir, "mine.sif"), []byte(s.on(t, "login", "alice", "cat", s.image).out)
	if err := os.WriteFile(image, sif, 0o600); err != nil {
		t.Fatal(err)
	}
	templates := filepath.Join(c.dir, ".config", "berth", "templates")
	if err := os.MkdirAll(templates, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("image = %q\nenv = [\"TOKEN\"]\n[resources]\ncpus = 2\nmemory = \"1GiB\"\ntime = \"10m\"\n", image)
	if err := os.WriteFile(filepath.Join(templates, "mine.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(sif))
	t.Cleanup(func() { s.sh(t, "find ~/.local/state/berth -name "+sum+".sif -delete") })
	for _, name := range []string{"first", "second"} {
		c.ok(append(append([]string{"sweep", "run"}, c.login...), "--template", "mine", "--workers", "1", "--name", name, "--rows", rows, "--",
			`echo "{\"n\": {n}, \"token\": ${#TOKEN}}"`)...)
		if out := c.ok("sweep", "collect", name, "--jsonl", "-"); strings.Count(out, `"token":13`) != 20 {
			t.Errorf("%s", out)
		}
	}
	if out := s.ok(t, "cd ~/.local/state/berth && find . -name "+sum+".sif | wc -l; grep -l "+sum+" sweeps/*/*/sweep.json | wc -l"); out != "1\n2" {
		t.Errorf("%s", out)
	}
}
