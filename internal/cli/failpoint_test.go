//go:build failpoint

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/failpoint"
	"berth/jobs"
	"berth/jobs/store"
)

// TestFailpoints kills berth at every point that is passed by what a job can go
// through, and looks at what becomes of the job: with
//
//	go test -tags failpoint -run TestFailpoints ./internal/cli
//
// Each way is gone once to see which points it passes, and then once for each
// point that no way before it passes. With BERTH_FAILPOINTS=all it is gone for every
// point of every way, and with BERTH_FAILPOINTS=some for one in three of the points.
func TestFailpoints(t *testing.T) {
	passed, seen, choice := map[string]bool{}, 0, os.Getenv("BERTH_FAILPOINTS")
	turns := make(chan struct{}, 16) // most of the time they wait
	bin := t.TempDir()
	for _, w := range ways {
		first := newPlace(t, bin)
		first.log()
		first.run(w, "")
		first.converge(w)
		points := first.passed()
		first.check(w)
		keep(t, first, bin)
		for _, point := range points {
			if choice != "all" && passed[point] && !slices.Contains(w.also, point) {
				continue
			}
			passed[point] = true
			if seen++; choice == "some" && seen%3 != 0 {
				continue
			}
			t.Run(w.name+"/"+point, func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				p := newPlace(t, bin)
				p.run(w, point)
				p.converge(w)
				p.killed(point)
				p.check(w)
			})
		}
	}
	for _, name := range failpoint.Names {
		if !passed[name] {
			t.Errorf("no way passes the point %s", name)
		}
	}
}

// way is something that happens to a job. What before does is not disturbed.
type way struct {
	name   string
	before func(p *fpPlace)
	do     func(p *fpPlace)
	// after is done before the jobs must end: what was in the way goes.
	after func(p *fpPlace)
	// also are points of an earlier way, after which this one goes on otherwise.
	also []string
}

// task appends a line to "runs" and changes the repository. The first run of a
// task that is tried again fails.
const (
	fpTask = `+++
name = "x"
[terminal]
backend = "local"
env = ["TOKEN"]
[workspace]
repo = "%[1]s/repo"
[agent]
command = ["bash", "-c", "cat; echo run >>%[1]s/runs; echo x >new.txt; %[2]s"]
%[3]s+++
Do it.
`
	fpFirst = "test -e %[1]s/second || { %[2]s touch %[1]s/second; %[3]s exit 1; }"
	// fpGuarded waits for whoever submits the job's reaper, beside the job, unless
	// that one was to be killed and was: it comes too late to an attempt that is
	// over.
	fpGuarded = "until test -e %[1]s/state/jobs/*/*/attempts/0001/reaper.json || test -e %[1]s/armed -a ! -e %[1]s/home/" + failpoint.OrderFile + "; do sleep 0.05; done;"
	fpRetry   = "[retry]\nattempts = 3\ntask = 1\n"
	// fpResume has that first run stopped before it is over, to go on.
	fpResume = "[resources]\ntime = \"2s\"\n[resume]\nhook = \"true\"\n"
)

var ways = []way{
	{name: "keyed", do: func(p *fpPlace) { p.keyed() }, after: func(p *fpPlace) { p.keyed(); p.settle() }, also: []string{"create.renamed", "submit.answered"}},
	{name: "key", before: func(p *fpPlace) { p.keyed(); p.settle() }, do: func(p *fpPlace) {
		for _, id := range p.acknowledged {
			p.berth("rm", id)
		}
		p.acknowledged = nil
	}},
	{name: "local", do: func(p *fpPlace) { p.submit(p.text("true", ""), "--scheduler", "local") }},
	{name: "merge", before: func(p *fpPlace) { p.approved() }, do: func(p *fpPlace) { p.merge() }, after: func(p *fpPlace) { p.merge(); p.isMerged() }},
	{name: "merge of two", before: func(p *fpPlace) { p.approvedTwo() }, do: func(p *fpPlace) { p.merge() },
		after: func(p *fpPlace) { p.merge(); p.isMerged(); p.isMergedIn("lib") },
		also:  []string{"merge.ready", "merge.files", "merge.moved"}},
	{name: "again", do: func(p *fpPlace) {
		p.submit(p.again(fmt.Sprintf(fpGuarded, p.dir)), "--scheduler", "slurm")
		p.follow()
	}},
	// Before those where it depends on who is first whether a job goes on in itself.
	{name: "restarted", before: func(p *fpPlace) { p.kill("runner.begin"); p.submit(p.again(""), "--scheduler", "slurm"); p.settle() }, do: func(p *fpPlace) { p.restart() }},
	{name: "goes on", do: func(p *fpPlace) {
		p.submit(p.text(fmt.Sprintf(fpFirst, p.dir, "echo x >begun.txt;", "sleep 60;"), fpRetry+fpResume), "--scheduler", "slurm")
		p.follow()
	}, also: []string{"runner.executed", "runner.decided", "runner.promoted", "decision.json:linked", "follow.begun"}},
	{name: "cancel", do: func(p *fpPlace) {
		p.submit(p.text("true", ""), "--scheduler", "slurm", "--partition", "busy")
		for line := range strings.Lines(p.berth("ps")) {
			p.berth("cancel", strings.Fields(line)[0])
		}
	}},
	{name: "silent", before: func(p *fpPlace) { p.order("silent", "") }, do: func(p *fpPlace) { p.submit(p.text("true", ""), "--scheduler", "slurm") }},
	{name: "refused", before: func(p *fpPlace) {
		p.order("refuse", "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
	},
		do: func(p *fpPlace) { p.submit(p.text("true", ""), "--scheduler", "slurm") }},
	{name: "found", before: func(p *fpPlace) {
		p.kill("submit.answered")
		p.submit(p.text("true", ""), "--scheduler", "slurm", "--partition", "busy")
		p.late(1)
	}, do: func(p *fpPlace) { p.follow() }},
	{name: "silenced", before: func(p *fpPlace) {
		p.kill("runner.begin")
		p.submit(p.again(""), "--scheduler", "slurm")
		p.settle()
		p.late(1)
	}, do: func(p *fpPlace) { p.follow() }},
	{name: "later", do: func(p *fpPlace) {
		p.submit(p.again("touch $HOME/.cluster/down;"), "--scheduler", "slurm")
		p.settle()
		p.follow()
	}, after: func(p *fpPlace) { p.unorder("down") }},
	{name: "taken", before: func(p *fpPlace) { p.sh("git -C repo branch berth && git -C repo pack-refs --all") }, do: func(p *fpPlace) {
		p.submit(p.text("true", ""), "--scheduler", "local")
		p.follow()
		p.sh("git -C repo branch -D berth")
		p.follow()
	}, after: func(p *fpPlace) { p.sh("git -C repo branch -D berth 2>/dev/null || true") }},
}

// fpPlace is a user, a repository, a ledger and a cluster.
type fpPlace struct {
	t                *testing.T
	dir, home, state string
	acknowledged     []string
	lateBy           string
}

func newPlace(t *testing.T, bin string) *fpPlace {
	t.Helper()
	dir := t.TempDir()
	p := &fpPlace{t: t, dir: dir, home: filepath.Join(dir, "home"), state: filepath.Join(dir, "state")}
	for _, d := range []string{filepath.Join(p.home, clusterDir), filepath.Join(p.state, "bin"), filepath.Join(dir, "tmp"), filepath.Join(dir, "run"), filepath.Join(dir, "repo")} {
		p.must(os.MkdirAll(d, 0o700))
	}
	programs, err := os.ReadDir(bin)
	p.must(err)
	for _, e := range programs {
		p.must(os.Link(filepath.Join(bin, e.Name()), filepath.Join(p.state, "bin", e.Name())))
	}
	p.must(os.WriteFile(filepath.Join(p.home, ".gitconfig"), []byte("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"), 0o600))
	p.sh("cd repo && git init -q && echo one >old.txt && git add . && git commit -qm begin")
	t.Cleanup(func() {
		for pid := range processesOf(dir) {
			if proc, err := os.FindProcess(pid); err == nil {
				_ = proc.Kill()
			}
		}
	})
	return p
}

// keep has the programs that were installed once used by all.
func keep(t *testing.T, p *fpPlace, bin string) {
	t.Helper()
	programs, err := os.ReadDir(filepath.Join(p.state, "bin"))
	p.must(err)
	for _, e := range programs {
		if err := os.Link(filepath.Join(p.state, "bin", e.Name()), filepath.Join(bin, e.Name())); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
}

func (p *fpPlace) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *fpPlace) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), name, args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "BERTH_HOME=" + p.state, "TMPDIR=" + filepath.Join(p.dir, "tmp"), "XDG_RUNTIME_DIR=" + filepath.Join(p.dir, "run"),
		"XDG_CONFIG_HOME=" + filepath.Join(p.dir, "config"), "SHELL=/bin/bash", "TOKEN=canary-secret", "BERTH_FAILPOINT_LATER=" + p.lateBy}
	return cmd
}

// late puts the clock of the verbs forward, by hours: enough for whatever counts
// as silent, and for an attempt that begins later than the one before.
func (p *fpPlace) late(hours int) { p.lateBy = fmt.Sprintf("%dh", hours) }

func (p *fpPlace) sh(script string) {
	p.t.Helper()
	if out, err := p.command("bash", "-ec", script).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func (p *fpPlace) berth(args ...string) string {
	cmd := p.command("berth", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	p.t.Logf("berth %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	if s := errs.String(); strings.Contains(s, "panic:") || strings.Contains(s, "goroutine ") {
		p.t.Error("it panicked")
	}
	return strings.TrimSpace(string(out))
}

func (p *fpPlace) text(command, tables string) string {
	return fmt.Sprintf(fpTask, p.dir, command, tables)
}

// again is a task whose first run fails, after doing something.
func (p *fpPlace) again(first string) string {
	return p.text(fmt.Sprintf(fpFirst, p.dir, "", first), fpRetry)
}

func (p *fpPlace) submit(text string, args ...string) {
	p.t.Helper()
	p.must(os.WriteFile(filepath.Join(p.dir, "task.md"), []byte(text), 0o600))
	if id := p.berth(append(append([]string{"submit"}, args...), "task.md")...); id != "" {
		p.acknowledged = append(p.acknowledged, id)
	}
}

// keyed submits under a key.
func (p *fpPlace) keyed() {
	p.submit(p.text("true", ""), "--scheduler", "local", "--idempotency-key", "k")
}

// approved is a job whose result is approved for the branch that is checked out.
func (p *fpPlace) approved() {
	p.submit(p.text("true", ""), "--scheduler", "local")
	p.settle()
	for _, id := range p.acknowledged {
		p.berth("review", "approve", "--unchecked", id)
	}
}

// approvedTwo is the same of a task with two repositories.
func (p *fpPlace) approvedTwo() {
	p.sh("git clone -q repo lib")
	p.submit(p.text("echo x >.repos/lib/new.txt", fmt.Sprintf("[[workspaces]]\nname = \"lib\"\nrepo = %q\n", filepath.Join(p.dir, "lib"))), "--scheduler", "local")
	p.settle()
	for _, id := range p.acknowledged {
		p.berth("review", "approve", "--unchecked", id)
	}
}

func (p *fpPlace) merge() {
	for _, id := range p.acknowledged {
		p.berth("review", "merge", id)
	}
}

// isMerged makes sure that branch, index and files are those of the result, and that this
// is recorded.
func (p *fpPlace) isMerged() {
	p.t.Helper()
	p.isMergedIn("repo")
	p.sh("ls state/jobs/*/*/review/merged-0001.json")
	if out := p.berth("review", "ls"); out != "" {
		p.t.Errorf("still in the list: %s", out)
	}
}

func (p *fpPlace) isMergedIn(repo string) {
	p.t.Helper()
	p.sh("cd " + repo + " && git diff --exit-code main $(git for-each-ref --format='%(refname)' refs/heads/berth) && test -z \"$(git status --porcelain)\" && cat new.txt")
}

func (p *fpPlace) order(name, text string) {
	p.must(os.WriteFile(filepath.Join(p.home, clusterDir, name), []byte(text), 0o600))
}

func (p *fpPlace) unorder(name string) { _ = os.Remove(filepath.Join(p.home, clusterDir, name)) }

func (p *fpPlace) kill(point string) {
	p.must(os.WriteFile(filepath.Join(p.home, failpoint.OrderFile), []byte(point+":kill"), 0o600))
}

func (p *fpPlace) log() {
	p.must(os.WriteFile(filepath.Join(p.home, failpoint.LogFile), nil, 0o600))
}

// passed are the points of the log, each once, in order.
func (p *fpPlace) passed() (names []string) {
	b, err := os.ReadFile(filepath.Join(p.home, failpoint.LogFile))
	p.must(err)
	for _, name := range strings.Fields(string(b)) {
		if leaseName.MatchString(name) {
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// What is not of a record has tests of its own.
var leaseName = regexp.MustCompile(`^lease\.|\.free:`)

func (p *fpPlace) run(w way, point string) {
	if w.before != nil {
		log := filepath.Join(p.home, failpoint.LogFile)
		_ = os.Rename(log, log+".off")
		w.before(p)
		_ = os.Rename(log+".off", log)
	}
	if point != "" {
		p.kill(point)
		p.must(os.WriteFile(filepath.Join(p.dir, "armed"), nil, 0o600))
	}
	w.do(p)
}

// killed makes sure that someone was.
func (p *fpPlace) killed(point string) {
	p.t.Helper()
	if _, err := os.Stat(filepath.Join(p.home, failpoint.OrderFile)); !os.IsNotExist(err) {
		logs, _ := p.command("bash", "-c", "tail -n 40 state/jobs/*/*/attempts/*/runtime.log").Output()
		p.t.Errorf("nobody came to %s this time\n%s", point, logs)
	}
}

func (p *fpPlace) follow() { p.settle(); p.berth("follow") }

// settle waits until nothing of what was submitted runs. What stays behind a job
// of the local queue, to go on with it, is killed, and so is what was submitted
// ahead when it waits for the silence of a runner: the verbs do that then.
func (p *fpPlace) settle() {
	p.t.Helper()
	begun := time.Now()
	for calm := 0; calm < 2; time.Sleep(50 * time.Millisecond) {
		procs := processesOf(p.dir)
		for pid, line := range procs {
			if strings.Contains(line, " "+jobs.VerbWatch+" ") || strings.Contains(line, " --standby ") && time.Since(begun) > 10*time.Second {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if len(procs) == 0 {
			calm++
		} else {
			calm = 0
		}
		if time.Since(begun) > patience {
			p.t.Fatalf("still running: %v", procs)
		}
	}
}

// restart does what Slurm does with a job whose node was lost.
func (p *fpPlace) restart() {
	for _, j := range (cluster{filepath.Join(p.home, clusterDir)}).list() {
		cmd := p.command("bash", j.Script)
		cmd.Env = append(cmd.Env, "SLURM_JOB_ID="+j.ID, "SLURM_RESTART_COUNT=1")
		out, err := cmd.CombinedOutput()
		p.t.Logf("restarted: %v\n%s", err, out)
	}
}

// converge looks at the jobs, an hour later, until all have ended.
func (p *fpPlace) converge(w way) {
	p.t.Helper()
	p.settle()
	if w.after != nil {
		w.after(p)
	}
	st, err := store.Open(p.state)
	p.must(err)
	for n := range 12 {
		p.late(n + 1)
		p.berth("follow")
		p.settle()
		if n > 0 && !slices.ContainsFunc(p.list(st), func(r *jobs.Record) bool { return !jobs.StateOf(r).Final() && !waits(r) }) {
			return
		}
	}
	p.t.Errorf("not all jobs come to an end:\n%s", p.berth("ps", "--all"))
}

// waits tells a job in the partition that is busy.
func waits(r *jobs.Record) bool { return r.Spec.Slurm.Partition == "busy" && r.Cancel == nil }

func (p *fpPlace) list(st *store.Store) []*jobs.Record {
	p.t.Helper()
	recs, err := st.List()
	if err != nil {
		p.t.Fatalf("the ledger: %v", err)
	}
	return recs
}

// check holds what is left to what was promised.
func (p *fpPlace) check(w way) {
	p.t.Helper()
	st, err := store.Open(p.state)
	p.must(err)
	known := map[string]bool{}
	recs := p.list(st)
	for _, r := range recs {
		known[jobs.Short(r.Spec.ID)] = true
		accepted := 0
		for i := range r.Attempts {
			a := &r.Attempts[i]
			known[a.Info.Name], known[jobs.ReaperName(a.Info.ID)], known[jobs.StandbyName(a.Info.ID, 1)] = true, true, true
			if a.N != i+1 {
				p.t.Errorf("attempt %d stands as %d", i+1, a.N)
			}
			if a.Decision != nil && a.Decision.Verb == jobs.VerbAccept {
				accepted++
			}
		}
		if r.Spec.Retry != nil && accepted != 1 && !waits(r) {
			p.t.Errorf("%d results are accepted", accepted)
		}
		branches := strings.Fields(p.gitBranches())
		if has := slices.Contains(branches, r.Spec.Workspace.Branch); has != (jobs.StateOf(r) == jobs.StateCompleted) && !waits(r) && (r.Spec.Retry != nil || !has) {
			p.t.Errorf("it is %s, and branches are %q", jobs.StateOf(r), branches)
		}
		if from := r.Current().Info.Change.Resume; from != nil {
			p.sh("git -C repo cat-file -e " + r.Spec.Workspace.Branch + ":begun.txt")
		} else if slices.ContainsFunc(r.Attempts, func(a jobs.Attempt) bool { return a.Checkpoint != nil }) {
			p.t.Error("it began anew, though there was a point to go on from")
		}
		if !waits(r) {
			if _, err := os.Stat(filepath.Join(r.Attempts[0].Dir, "env")); err == nil {
				p.t.Error("values that were passed are left")
			}
		}
	}
	for _, id := range p.acknowledged {
		if !known[id] {
			p.t.Errorf("job %s was acknowledged and is gone", id)
		}
	}
	for _, j := range (cluster{filepath.Join(p.home, clusterDir)}).list() {
		if !known[j.Name] {
			p.t.Errorf("Slurm has %s, which no record knows", j.Name)
		}
	}
	if len(recs) > 1 {
		p.t.Errorf("%d jobs", len(recs))
	}
	b, _ := os.ReadFile(filepath.Join(p.dir, "runs"))
	runs := strings.Count(string(b), "\n")
	for _, r := range recs {
		if runs > len(r.Attempts) {
			p.t.Errorf("it ran %d times in %d attempts", runs, len(r.Attempts))
		}
	}
	// The next job is as if nothing had happened, and takes scratch away.
	for _, o := range []string{"silent", "refuse", "down"} {
		p.unorder(o)
	}
	if out, err := p.command("berth", "run", "--scheduler", "local", "--backend", "local", "--", "true").CombinedOutput(); err != nil {
		p.t.Errorf("the next job: %v\n%s", err, out)
	}
	p.settle()
	p.swept(st)
}

func (p *fpPlace) gitBranches() string {
	out, err := p.command("git", "-C", "repo", "for-each-ref", "--format=%(refname:short)").Output()
	p.must(err)
	return string(out)
}

// swept makes all that is left a day old, and then nothing is.
func (p *fpPlace) swept(st *store.Store) {
	p.t.Helper()
	left := func() (found []string) {
		for _, root := range []string{p.state, filepath.Join(p.dir, "tmp")} {
			p.must(filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
				name := filepath.Base(path)
				if strings.HasPrefix(name, ".new-") || strings.HasPrefix(name, ".gone-") || strings.HasPrefix(name, "berth-") && root != p.state || strings.HasPrefix(name, "quarantine-") {
					found = append(found, path)
				}
				return err
			}))
		}
		return found
	}
	old := time.Now().Add(-48 * time.Hour)
	for _, path := range left() {
		p.must(os.Chtimes(path, old, old))
	}
	p.must(st.SweepAll())
	if found := left(); len(found) > 0 {
		p.t.Errorf("left: %q", found)
	}
}
