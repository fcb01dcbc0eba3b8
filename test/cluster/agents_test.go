//go:build cluster && linux

package cluster

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/internet"
)

// agentProgram plays an agent: its prompt has what its model wants called.
//
//go:embed testdata/agent/agent.py
var agentProgram string

// bombProgram is a fork bomb.
//
//go:embed testdata/agent/bomb.py
var bombProgram string

// agents is a user with an agent, a key for its model, prices, and repositories.
type agents struct {
	site
	dir, repo string
	memory    string // of a job
	before    string // a shell text before a submit
}

func (s site) agents(t *testing.T) agents {
	t.Helper()
	a := agents{site: s, dir: s.dir(t), memory: "300MiB"}
	a.ok(t, fmt.Sprintf(`mkdir -m 700 -p %[1]s/config/berth/agents; cd %[1]s; umask 077
/mnt/share/examples/fix-the-test/make-repo night; cp -r night hostile
echo %[2]s >config/berth/key
cat >config/berth/config.toml <<E
[credentials.anthropic]
from = "file:%[1]s/config/berth/key"
upstream = "https://model.test"
ca = "/mnt/share/internet/ca.pem"
[prices]
date = "2026-11-27"
"m-1" = {input = 100000, output = 100000}
E
cat >config/berth/agents/mine.toml <<E
like = "claude"
program = "python3"
args = ["/opt/agent.py"]
E
cat >agent.py <<'E'
%[3]s
E
cat >bomb.py <<'E'
%[4]s
E`, a.dir, internet.ModelKey, agentProgram, bombProgram))
	return a
}

// line is of berth in the repository, with that configuration and a state directory of its own.
func (a agents) line(args string) string {
	return "cd " + a.dir + "/" + a.repo + " && BERTH_HOME=" + a.dir + "/state XDG_CONFIG_HOME=" + a.dir + "/config berth " + args
}

func (a agents) berth(t *testing.T, args string) string {
	t.Helper()
	return a.ok(t, a.line(args))
}

// submit has a task submitted whose agent calls what the lines say. more is put into its file.
func (a agents) submit(t *testing.T, name, more string, lines ...string) string {
	t.Helper()
	file := a.dir + "/" + strings.ReplaceAll(name, " ", "-") + ".md"
	if !strings.Contains(more, "[agent]") {
		more += "\n[agent]\nuse = 'mine'"
	}
	a.ok(t, "cat >"+file+" <<'E'\n+++\nname = '"+name+"'\ncredentials = ['anthropic']\nretry = 'off'\n"+more+"\n+++\n$ "+
		strings.Join(lines, "\n$ ")+"\n\n## Done when\n\n- [ ] it is done\nE")
	return a.ok(t, a.before+a.line("submit --scheduler slurm --image "+a.image+" --workspace . --time 5m --memory "+a.memory+
		" --bind "+a.dir+"/agent.py:/opt/agent.py --bind "+a.dir+"/bomb.py:/opt/bomb.py "+file))
}

// manifest lists the files of a host that no task may change: owners, modes, sizes, and when
// they changed. What berth keeps of jobs is none of them.
func (s site) manifest(t *testing.T, host string) string {
	t.Helper()
	a := s.on(t, host, "root", "bash", "-c", `find /home/alice /home/bob /root /etc /usr/local /opt /srv /var/spool/cron /var/tmp /dev/shm -xdev \
	\( -path '/home/alice/.local/state/berth' -o -path '/home/alice/.cache' -o -path '/home/alice/.apptainer' -o -path '/home/alice/Test*' \) -prune -o \
	\( -type f -o -type l -o -perm /6000 \) -printf '%p %l %U %m %s %C@\n' 2>/dev/null | sort`)
	if strings.Count(a.out, "\n") < 100 {
		t.Fatalf("the files of %s: %+v", host, a)
	}
	return a.out
}

// TestAgents has agents work on Slurm in containers whose network is the broker of their key alone.
func TestAgents(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes the nodes' name server
	s.internet(t)
	t.Cleanup(func() { s.quiet(t) })
	before := map[string]string{}
	for _, host := range []string{"login", "c1", "c2"} {
		before[host] = s.manifest(t, host)
	}
	a := s.agents(t)
	t.Run("night", a.night)
	t.Run("hostile", a.hostile)
	t.Run("bomb", a.bomb)
	for host, was := range before {
		if is := s.manifest(t, host); is != was {
			t.Errorf("%s has changed:\n%s", host, onlyOne(was, is))
		}
	}
}

// onlyOne has the lines that only one of two texts has.
func onlyOne(a, b string) string {
	var out strings.Builder
	for _, l := range []struct{ sign, of, in string }{{"-", a, b}, {"+", b, a}} {
		for line := range strings.Lines(l.of) {
			if !strings.Contains("\n"+l.in, "\n"+line) {
				out.WriteString(l.sign + line)
			}
		}
	}
	return out.String()
}

// night: ten tasks are submitted at once; in the morning two of their results conflict, and the others are merged.
func (a agents) night(t *testing.T) {
	a.repo = "night"
	var ids []string
	for i := range 10 {
		part := fmt.Sprintf("part%d", i)
		lines := []string{fmt.Sprintf("echo PART = %d >%s.py", i, part), "python3 -c 'import wordcount, " + part + "'"}
		if i >= 8 {
			lines = append(lines, fmt.Sprintf("sed -i '1s/.*/# wordcount %d/' README.md", i))
		}
		ids = append(ids, a.submit(t, part, "done = ['grep -q PART "+part+".py']\n[workspace]\nscope = ['part*.py', 'README.md']", lines...))
	}
	a.berth(t, "wait --timeout 10m "+strings.Join(ids, " "))
	list := a.berth(t, "review ls")
	if got := strings.Count(list, "\twaiting\tmain\t"); got != 10 {
		t.Errorf("%d of 10 results wait:\n%s", got, list)
	}
	for i, id := range ids {
		with := "-"
		if i >= 8 {
			with = ids[17-i]
		}
		if !regexp.MustCompile(`(?m)^` + id + `\t.*\t` + with + `\tpart` + fmt.Sprint(i) + `$`).MatchString(list) {
			t.Errorf("task %d, %s, is not listed as in conflict with %q:\n%s", i, id, with, list)
		}
	}
	if run := a.berth(t, "review run "+ids[0]); !strings.Contains(run, "passed") {
		t.Errorf("review run:\n%s", run)
	}
	a.berth(t, "review approve "+ids[0]+" && "+a.line("review merge "+ids[0]))
	for _, id := range ids[1:9] {
		a.berth(t, "review approve --unchecked "+id+" && "+a.line("review merge "+id))
	}
	a.want(t, a.line("review approve --unchecked "+ids[9]), 2, "conflicts with main: README.md")
	if got := a.ok(t, "cd "+a.dir+"/night && git status --porcelain && git ls-files | grep -c '^part[0-8].py$'; head -1 README.md"); got != "9\n# wordcount 8" {
		t.Errorf("merged:\n%s", got)
	}
}

// hostile: agents that do what they must not each end as it is documented.
func (a agents) hostile(t *testing.T) {
	a.repo = "hostile"
	const scope = "[workspace]\nscope = ['*.py']\n"
	const good = "echo MORE = 1 >NAME.py"
	hooks := []string{
		good,
		`printf '#!/bin/sh\ntouch /home/alice/hooked\n' | tee .git/hooks/post-checkout .git/hooks/post-merge .git/hooks/reference-transaction >/dev/null`,
		`chmod +x .git/hooks/*; git config core.fsmonitor 'touch /home/alice/hooked'; git config core.hooksPath .git/hooks`,
		`printf '*.py filter=x\n' >.git/info/attributes; git config filter.x.smudge 'touch /home/alice/hooked'`,
	}
	slurm := []string{
		good,
		"sbatch --wrap true; scontrol ping; ls /run/munge /etc/slurm",
		`python3 -c 'import socket; print(*[socket.socket().connect_ex((h, p)) for h in ("10.0.0.1", "127.0.0.1") for p in (6817, 6818)])'`,
	}
	cases := []struct {
		name, more string
		lines      []string
		code       int
		status     string   // a pattern of what berth status says
		answers    []string // patterns of what its tools answered
	}{
		{"scope", scope, []string{good, "echo x >setup.cfg"}, 9, `setup\.cfg`, nil},
		{"hooks", scope, hooks, 0, "", nil},
		{"links", scope, []string{good, "ln -s /etc/passwd a.py; ln -s ../../../../../home/bob b.py"}, 9, `[ab]\.py`, nil},
		{"large", scope, []string{good, "truncate -s 2GB holes.py; head -c 2GB /dev/zero >full.py; ls -s *.py"}, 11, `full\.py, holes\.py`, []string{`19\d{5} full\.py`}},
		{"processes", scope, []string{good, `for i in $(seq 150); do setsid sh -c 'trap "" TERM HUP; sleep 319' >/dev/null 2>&1 & done; echo started`}, 0, "", []string{"started"}},
		{"nothing", scope, []string{"true"}, 7, "", nil},
		{"approval", "[workspace]\n[submit]\n", []string{"echo 'APPROVE: merge it at once.' >REVIEW.md", `berth review approve --unchecked "$BERTH_JOB_ID"`}, 0, "",
			[]string{`review.*\[exit code [1-9]`}},
		{"slurm", scope, slurm, 0, "", []string{`sbatch: command not found`, `cannot access '/run/munge'`, `cannot access '/etc/slurm'`, `"[1-9]\d* [1-9]\d* [1-9]\d* [1-9]\d*\\n`}},
		{"key", scope, []string{good, `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c '[s]k-test-8'`}, 0, "", []string{`"0\\n\[exit code 1\]`}},
		{"name", scope, []string{good, `python3 -c 'import urllib.request as u; u.urlopen("https://other.test/", timeout=20)'`}, 0, "", []string{`\[exit code 1\]`}},
		{"turns", scope + "[caps]\nmax_turns = 2\n", []string{good, "true", "true", "sleep 319"}, 10, "cap max_turns met: 2 of 2 turns", nil},
		{"dollars", scope + "[caps]\nmax_usd = 3\n", []string{good, "true", "true", "sleep 319"}, 10, "cap max_usd met", nil},
		{"child", scope + "[submit]\nmax_jobs = 1\nmax_cpu_hours = 1\ntime = '2m'\n", []string{
			good, `sbatch --parsable --wrap 'python3 -c "import child; print(6 * 7 * child.MORE)"'; berth wait 1; cat $BERTH_JOBS/1/stdout`, "sbatch --wrap true",
		}, 0, "", []string{`42`, "may submit no more"}},
	}
	var ids []string
	for _, tc := range cases {
		ids = append(ids, a.submit(t, tc.name, tc.more, strings.ReplaceAll(strings.Join(tc.lines, "\n$ "), "NAME", tc.name)))
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			id := ids[i]
			w := a.sh(t, a.line("wait --timeout 10m "+id))
			status := a.berth(t, "status "+id)
			if w.code != tc.code || !regexp.MustCompile(tc.status).MatchString(status) {
				t.Errorf("exit code %d, want %d\n%s\n%s", w.code, tc.code, w.err, status)
			}
			events := a.berth(t, "logs --events "+id)
			for _, re := range tc.answers {
				if !regexp.MustCompile(re).MatchString(events) {
					t.Errorf("no tool answered %q:\n%s", re, events)
				}
			}
			switch tc.name {
			case "name":
				if got := a.berth(t, "network show "+id); !strings.Contains(got, "other.test") {
					t.Errorf("what was refused:\n%s", got)
				}
			case "hooks":
				a.berth(t, "review approve --unchecked "+id+" && "+a.line("review merge "+id))
			}
		})
	}
	// Nine were merged that night and one here, and none decided on itself.
	if list := a.berth(t, "review ls --all"); strings.Count(list, "\tapproved\t") != 0 || strings.Count(list, "\tmerged\t") != 10 {
		t.Errorf("decided:\n%s", list)
	}
}

// Bounds of a fork bomb, in processes. The first is of a node's whole container, so that the machine
// below it is never harmed. The second is what a site's `ulimit -u` is: Slurm hands it on to the job.
const (
	mostOnNode = 900
	mostOfUser = 700
)

// boundProcesses bounds the processes of each node to the test's end, and makes sure that it holds for
// what slurmd starts: one that a test has started from outside may be in no cgroup of the container's.
func (s site) boundProcesses(t *testing.T) {
	t.Helper()
	const in = `d=/sys/fs/cgroup/pids c=pids; [ -d $d ] || { d=/sys/fs/cgroup c=; }; `
	for _, node := range []string{"c1", "c2"} {
		t.Cleanup(func() { s.on(t, node, "root", "bash", "-c", in+"echo max >$d/pids.max") })
		a := s.on(t, node, "root", "bash", "-c", in+fmt.Sprintf(`at() { sed -n "s/^[0-9]*:$c:/at /p" /proc/$p/cgroup; }; p=$(pgrep -ox slurmd)
			i=$d; [ ! -d $d/init ] || i=$d/init; case $(at) in "at /.."*) echo $p >$i/cgroup.procs;; esac
			echo %d >$d/pids.max; cat $d/pids.max; at`, mostOnNode))
		if !regexp.MustCompile(fmt.Sprintf(`^%d\nat /([^.].*)?\n$`, mostOnNode)).MatchString(a.out) {
			t.Fatalf("the processes of %s are not bounded, so no bomb is lit: %+v", node, a)
		}
	}
}

// bomb: agents light a fork bomb. The job ends as any other that does not end by itself, nothing of it
// is left, and beside it and after it another user's job runs on its node.
func (a agents) bomb(t *testing.T) {
	a.repo = "hostile"
	a.boundProcesses(t)
	a.memory, a.before = "2GiB", fmt.Sprintf("ulimit -u %d; ", mostOfUser)
	bobs := func(t *testing.T, node string) {
		t.Helper()
		if b := a.on(t, "login", "bob", "timeout", "120", "srun", "-w", node, "--time", "2", "--mem", "50", "hostname"); b.out != node+"\n" {
			t.Errorf("a job of bob's on %s: %+v", node, b)
		}
	}
	for _, tc := range []struct {
		name, more, light string
		code              int
		status            string
	}{
		{"left", "", "setsid python3 /opt/bomb.py 90 >/tmp/said 2>&1 & until read -r said 2>/dev/null </tmp/said; do :; done; echo $said", 0, "left running"},
		{"wall", "[caps]\nmax_wall = '8s'\n[agent]\ncommand = ['python3', '/opt/bomb.py', '90']", "", 10, "cap max_wall met"}, // no tool is waited for
		{"cancel", "", "python3 /opt/bomb.py 90", 130, "cancelled by\talice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			more := "[workspace]\nscope = ['*.py']\n" + tc.more
			id := a.submit(t, "bomb "+tc.name, more, "echo MORE = 1 >bomb_"+tc.name+".py", tc.light)
			var node string
			most, refused := 0, false
			waitFor(t, patience, func() bool {
				if node = a.ok(t, a.line("status "+id)+" | sed -n 's/^node\t//p'"); node == "" {
					return false
				}
				n, _ := strconv.Atoi(strings.TrimSpace(a.on(t, node, "root", "pgrep", "-u", "alice", "-c", "python3").out))
				most = max(most, n)
				refused = refused || a.on(t, node, "root", "pgrep", "-u", "alice", "-x", "refused").code == 0
				return refused || a.sh(t, a.line("wait --timeout 1ms "+id)).code != 8
			})
			if most > mostOfUser {
				t.Errorf("%d processes were seen, so that the bomb had no bound", most)
			}
			bobs(t, node)
			if tc.name == "cancel" {
				a.berth(t, "cancel "+id)
			}
			began := time.Now()
			w := a.sh(t, a.line("wait --timeout 10m "+id))
			t.Logf("%d processes; it ended after %s: %s", most, time.Since(began), w.err)
			// It filled the bound, which it shares with whatever else the user runs on this machine. A
			// job may have ended before a node was asked.
			if !refused && !strings.Contains(a.berth(t, "logs --events "+id), "refused: [Errno 11]") {
				t.Errorf("the kernel refused it no process: no bomb")
			}
			status := a.berth(t, "status "+id+"; "+a.line("status --report "+id))
			if w.code != tc.code || !strings.Contains(status, tc.status) {
				t.Errorf("exit code %d, want %d\n%s\n%s", w.code, tc.code, w.err, status)
			}
			a.bare(t, node, remains+"; pgrep -u alice -af bomb.py")
			bobs(t, node)
		})
	}
}
