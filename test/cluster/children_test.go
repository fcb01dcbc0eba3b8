//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// asking writes a task file that may have jobs submitted, beside a repository, and
// submits it.
func (s site) asking(t *testing.T, flags, submit, command string) string {
	t.Helper()
	d := s.dir(t)
	s.ok(t, fmt.Sprintf("/mnt/share/examples/fix-the-test/make-repo %[1]s/repo && cat >%[1]s/t.md <<'E'\n+++\nname = 'asking'\n[agent]\ncommand = '''%[2]s'''\n"+
		"[workspace]\nrepo = 'repo'\n[network]\nmode = 'none'\n[submit]\nmax_jobs = 4\nmax_cpu_hours = 1\ntime = '2m'\n%[3]s\n+++\nE", d, command, submit))
	return s.ok(t, "berth submit --image "+s.image+" --time 5m --memory 200MiB "+flags+" "+d+"/t.md")
}

// childRow is a child as `berth ps` shows it below its parent: the state, and the id
// that Slurm has given it.
var childRow = regexp.MustCompile(`(?m)^[0-9a-f]{8}\t([a-z]+)[^\t]*\t\+ [^\t]*\tslurm (\d+)\t`)

// childrenOf are those of a job, as they stand below it.
func (s site) childrenOf(t *testing.T, id string) [][]string {
	t.Helper()
	_, below, found := strings.Cut(s.ok(t, "berth ps --all"), id+"\t")
	if !found {
		t.Fatalf("berth ps does not list %s", id)
	}
	lines := strings.Split(below, "\n")
	n := 1
	for n < len(lines) && strings.Contains(lines[n], "\t+ ") {
		n++
	}
	return childRow.FindAllStringSubmatch(strings.Join(lines[1:n], "\n"), -1)
}

// TestChildren has a task submit jobs: through Slurm, in its own image, from its work
// tree, within its bounds and its network; their results come back, and they end with it.
func TestChildren(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	id := s.asking(t, "--retry off", "end_with_parent = true", `
exec 2>&1
echo one >new.txt
cat >job.sh <<'J'
#!/bin/sh
#SBATCH --time=1 -c 1 --output=out-%j.txt
cat new.txt; echo $1; echo made >made.txt; tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '; [ -z "$BERTH_JOBS" ] || echo grandchild
exit 3
J
sbatch --parsable job.sh word; berth wait 1 2>/dev/null; echo "code $?"
cat out-1.txt; git apply $BERTH_JOBS/1/result.patch; cat made.txt
srun -t 1 sh -c 'cat made.txt; exit 4'; echo "code $?"
for o in --time=3 --partition=other --uid=0 --chdir=/ --mem=1T --gpus=1 --output=/etc/x; do sbatch $o --wrap true 2>&1 | head -1; done
sbatch --wrap 'sleep 319'; sbatch -d afterany:3 --wrap true; squeue -h | awk '{print $1}'
sbatch --wrap true 2>&1 | head -1
`)
	s.wait(t, id, 0)
	want := `1
code 1
one
word
lo
made
made
code 4
sbatch: error: a time of 3m0s is more than 2m0s
sbatch: error: the partition "other" is none of those that are allowed
sbatch: error: option "--uid" is not available inside a task: a job runs as the one who submits it
sbatch: error: option "--chdir" is not available inside a task: berth chooses the working directory
sbatch: error: 1TiB of memory are more than 200MiB
sbatch: error: 1 GPUs are more than 0
sbatch: error: option --output: "/etc/x" is not below the directory in which the task asks
Submitted batch job 3
Submitted batch job 4
3
4
sbatch: error: this task has submitted 4 jobs, and may submit no more`
	if out := s.ok(t, "berth logs "+id); out != want {
		t.Errorf("the task saw:\n%s", out)
	}
	// Its runner cancels them when it has recorded its end, and they have their grace.
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("its jobs: %s", got)
		}
	}()
	waitFor(t, patience, func() bool {
		var states []string
		for _, c := range s.childrenOf(t, id) {
			states = append(states, c[1])
		}
		got = strings.Join(states, " ")
		return got == "failed failed cancelled cancelled"
	})
}

// TestChildrenRequeued has Slurm requeue a task whose job runs: the next attempt
// finds that job, and what counts against its bounds.
func TestChildrenRequeued(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	id := s.asking(t, "--retry on", "", `
exec 2>&1
if [ $BERTH_ATTEMPT_NUMBER = 1 ]; then sbatch --wrap 'sleep 5; echo ended'; sleep 319; fi
berth wait 1 2>/dev/null; cat $BERTH_JOBS/1/stdout
sbatch --wrap true; berth wait 2 2>/dev/null; echo >new.txt
`)
	s.state(t, id, "running")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "batch job 1") })
	s.ok(t, "scontrol requeue "+s.status(t, id).NativeID)
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs "+id); out != "ended\nSubmitted batch job 2" {
		t.Errorf("the next attempt saw:\n%s", out)
	}
	got := s.childrenOf(t, id)
	if len(got) != 2 || got[0][1] != "completed" || got[1][1] != "completed" || got[0][2] == got[1][2] {
		t.Errorf("its jobs: %q", got)
	}
}

// TestChildrenImage has a task submit jobs in another image than its own: the one that was
// settled with it, and no other, whatever stands under its name later.
func TestChildrenImage(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	d := s.dir(t)
	built := s.ok(t, "cd "+d+"\n"+tiny+"berth image build tiny.def")
	t.Cleanup(func() { s.sh(t, "berth image rm "+built) })
	s.ok(t, fmt.Sprintf("cd %s; cp %s 1.sif; cp %s 2.sif; ln -s 1.sif py.sif; ln -s 1.sif gone.sif", d, built, s.image))
	id := s.asking(t, "--retry off", fmt.Sprintf("images = ['%[1]s/py.sif', '%[1]s/gone.sif']", d), fmt.Sprintf(`
exec 2>&1
cat /made
berth run --image %[1]s/py.sif -- cat /made; echo "code $?"
sbatch --image %[1]s/2.sif --wrap true
berth submit --image %[1]s/x/../py.sif -- true 2>&1 | head -1
until [ -e go ]; do sleep 1; done; rm go
sbatch --image %[1]s/gone.sif --wrap true 2>&1 | head -1
berth run --image %[1]s/py.sif -- cat /made; echo "code $?"
`, d))
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "code 0") })
	s.ok(t, fmt.Sprintf("cd %s; ln -sfn 2.sif py.sif; rm gone.sif; berth exec --job %s -- touch /work/go", d, id))
	s.wait(t, id, 7)
	want := fmt.Sprintf(`cat: /made: No such file or directory
built in a job
code 0
sbatch: error: the image "%[1]s/2.sif" is none of those that are allowed
sbatch: error: [submit] images of the task that submits names them: %[2]s, %[1]s/py.sif, %[1]s/gone.sif
berth: error: the image "%[1]s/x/../py.sif" is none of those that are allowed
sbatch: error: the image %[1]s/gone.sif is gone: %[1]s/gone.sif
`, d, s.image)
	out := s.ok(t, "berth logs "+id)
	if !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "code 78") {
		t.Errorf("the task saw:\n%s\nwant\n%s", out, want)
	}
	if all := s.childrenOf(t, id); len(all) != 2 || all[0][1] != "completed" || all[1][1] != "error" {
		t.Errorf("its jobs: %q", all)
	}
}
