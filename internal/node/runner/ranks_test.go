package runner

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
	"berth/slurm/inside"
)

// fakeSrun is "srun N ARGV...": it runs ARGV in N tasks, gives its input to all of
// them and labels their output, in small pieces.
func fakeSrun(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "srun: error: "+args[0])
		return 1
	}
	var out sync.Mutex
	var wait sync.WaitGroup
	var inputs []io.WriteCloser
	codes := make([]int, n)
	for i := range n {
		c := exec.Command(args[1], args[2:]...)
		c.Env = append(os.Environ(), "SLURM_JOB_ID=17", "SLURM_PROCID="+strconv.Itoa(i))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a step is apart from its srun
		in, err := c.StdinPipe()
		if err != nil {
			panic(err)
		}
		inputs = append(inputs, in)
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		c.Stdout, c.Stderr = w, os.Stderr
		if err := c.Start(); err != nil {
			panic(err)
		}
		_ = w.Close()
		wait.Go(func() {
			buf := make([]byte, 100)
			for {
				k, err := r.Read(buf)
				out.Lock()
				for line := range bytes.Lines(buf[:k]) {
					fmt.Printf("%d: %s\n", i, bytes.TrimSuffix(line, []byte("\n")))
				}
				out.Unlock()
				if err != nil {
					break
				}
			}
			_ = c.Wait()
			codes[i] = c.ProcessState.ExitCode()
		})
	}
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			for _, w := range inputs {
				_, _ = w.Write(line)
				if err != nil {
					_ = w.Close()
				}
			}
			if err != nil {
				return
			}
		}
	}()
	wait.Wait()
	return slices.Max(codes)
}

// envSrun is the first argument of [fakeSrun], in place of the number of tasks.
const envSrun = "BERTH_TEST_SRUN"

// starter is Slurm with [fakeSrun].
type starter struct{ inside.Slurm }

func (starter) Ranks(r jobs.Resources, _ jobs.SlurmOptions, argv []string) []string {
	return append([]string{os.Args[0], "srun", cmp.Or(os.Getenv(envSrun), strconv.Itoa(r.Tasks))}, argv...)
}

// newRanked is a job of several ranks on this machine.
func newRanked(t *testing.T, ranks int, command string, change func(*store.New)) *job {
	t.Helper()
	j := newJob(t, command, func(n *store.New) {
		n.Spec.Scheduler, n.Spec.Resources.Tasks = jobs.SchedulerSlurm, ranks
		if change != nil {
			change(n)
		}
	})
	j.periods.Beat = time.Second // a rank that is slow is not silent
	return j
}

func sorted(text string) string {
	l := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(l)
	return strings.Join(l, "\n")
}

// Every rank gets the job's variables, secrets and prompt, and its own number.
func TestRanks(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 3, `read line; echo "$SLURM_PROCID $TOKEN $CUDA_VISIBLE_DEVICES $line"; echo "e$SLURM_PROCID" >&2; printf "last $SLURM_PROCID"; test -n "$BERTH_JOB_ID" -a -n "$BERTH_DEADLINE"`, func(n *store.New) {
		n.Prompt = []byte("the prompt\n")
		n.Secrets = []string{"TOKEN=secret"}
		n.Spec.Resources.Time = time.Hour
		n.Spec.Done = []jobs.Command{{Shell: `test -z "$SLURM_PROCID" -a "$CUDA_VISIBLE_DEVICES" = 7`}}
	})
	j.env = []string{"CUDA_VISIBLE_DEVICES=7", "SLURM_JWT=leak", "SLURM_STDOUTMODE=/dev/null"}
	code, rec := j.run()
	if code != 0 || rec.State != jobs.StateCompleted || len(rec.Notes) != 0 || len(rec.Done) != 1 {
		t.Fatalf("exit %d: %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	if got, want := sorted(j.read(store.FileStdout)), "0 secret 7 the prompt\n1 secret 7 the prompt\n2 secret 7 the prompt\nlast 0\nlast 1\nlast 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := sorted(j.read(store.FileStderr)); got != "e0\ne1\ne2" {
		t.Errorf("stderr %q", got)
	}
	if left := j.scratches(); len(left) > 0 {
		t.Errorf("left on the node: %q", left)
	}
	if line := strings.Join(strings.Fields(j.read(store.FileArgv)), ""); !strings.Contains(line, `"srun","3"`) || !strings.Contains(line, `"rank","--attempt","`+j.dir+`"]`) {
		t.Errorf("argv %s", line)
	}
}

// The first rank that fails ends the others, and the job with its own code.
func TestRankFails(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	j := newRanked(t, 3, `trap 'echo TERM; exit 99' TERM; : >'`+ready+`'$SLURM_PROCID
if [ $SLURM_PROCID = 1 ]; then until [ -e '`+ready+`'0 -a -e '`+ready+`'2 ]; do sleep 0.02; done; exit 7; fi
while :; do sleep 0.05; done`, nil)
	j.periods.Grace = patient
	code, rec := j.run()
	if code != 1 || rec.State != jobs.StateFailed || rec.Exit.Code != 7 || !strings.Contains(rec.Reason, "of rank 1 on ") || len(rec.Notes) != 1 || !strings.Contains(rec.Notes[0], "(2) were ended") {
		t.Errorf("exit %d: %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	if got := j.read(store.FileStdout); got != "TERM\nTERM\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestRanksTimeLimit(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, stubborn, func(n *store.New) { n.Spec.Resources.Time = slow })
	code, rec := j.run()
	if code != 124 || rec.State != jobs.StateTimeout || rec.Exit.Code != 137 || len(rec.Notes) != 0 {
		t.Errorf("exit %d: %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
	if left := j.scratches(); len(left) > 0 {
		t.Errorf("left on the node: %q", left)
	}
}

// A cancel ends the ranks politely, whoever hears of it first.
func TestRanksCancelled(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, `trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.05; done`, nil)
	j.periods.Grace = patient
	j.start()
	eventually(t, "both are ready", func() bool { return j.read(store.FileStdout) == "ready\nready\n" })
	if _, err := store.SetCancel(store.JobDirOf(j.dir), jobs.Cancel{Version: 1, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	j.signal(syscall.SIGTERM)
	code, rec := j.wait()
	if code != 130 || rec.State != jobs.StateCancelled || j.read(store.FileStdout) != "ready\nready\nTERM\nTERM\n" {
		t.Errorf("exit %d: %+v %q", code, rec, j.read(store.FileStdout))
	}
}

// A rank that is killed is missed by its pings; the others are ended.
func TestRankKilled(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, `if [ $SLURM_PROCID = 1 ]; then guest=$PPID; kill -KILL $(sed 's/.*) . \([0-9]*\) .*/\1/' /proc/$guest/stat); fi; while :; do sleep 0.05; done`, nil)
	j.periods.GuestWait = slow
	code, rec := j.run()
	if code != 5 || rec.State != jobs.StateError || !strings.Contains(rec.Reason, "rank 1 on ") || !strings.Contains(rec.Reason, "does not answer") {
		t.Errorf("exit %d: %+v\n%s", code, rec, j.read(store.FileRuntime))
	}
}

// A job that was requeued starts the ranks of its next attempt, though its script is
// that of the first.
func TestRanksRequeued(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, "true", func(n *store.New) { n.Spec.Retry = jobs.DefaultRetry() })
	if _, err := store.SetSubmitted(j.dir, jobs.Submitted{Version: 1, Handle: jobs.Handle{Scheduler: jobs.SchedulerSlurm, NativeID: "17", Name: "first"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SetClaim(j.dir, jobs.Claim{Version: 1, Attempt: j.rec.Current().Info.ID, NativeID: "17"}); err != nil {
		t.Fatal(err)
	}
	j.env = []string{"SLURM_JOB_ID=17", "SLURM_RESTART_COUNT=1"}
	j.run()
	r := reread(t, j.rec)
	a := r.Current()
	if len(r.Attempts) != 2 || a.Exit == nil || a.Exit.State != jobs.StateCompleted {
		t.Fatalf("%d attempts: %+v\n%s", len(r.Attempts), a.Exit, j.stderr)
	}
	j.dir = a.Dir
	if line := strings.Join(strings.Fields(j.read(store.FileArgv)), ""); !strings.Contains(line, `"rank","--attempt","`+a.Dir+`"]`) {
		t.Errorf("argv %s", line)
	}
}

// A runner that is killed leaves no rank behind: srun closes their input.
func TestRanksWithoutRunner(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, stubborn, nil).start()
	eventually(t, "both are ready", func() bool { return j.read(store.FileStdout) == "ready\nready\n" })
	if n := len(j.scratches()); n != 3 {
		t.Errorf("%d scratch directories, want the runner's and two ranks'", n)
	}
	j.signal(syscall.SIGKILL)
	eventually(t, "only the runner's scratch directory is left", func() bool { return len(j.scratches()) == 1 })
}

// What keeps srun or a rank from starting is told in its words.
func TestRanksDoNotStart(t *testing.T) {
	t.Parallel()
	j := newRanked(t, 2, "true", nil)
	j.env = []string{envSrun + "=invalid partition"}
	code, rec := j.run()
	if code != 5 || !strings.Contains(rec.Reason, " did not start it (exit code 1)") || !strings.Contains(rec.Reason, "srun: error: invalid partition") {
		t.Errorf("exit %d: %+v", code, rec)
	}
	j = newRanked(t, 2, "true", nil)
	j.argv = []string{"/no/such/program"}
	code, rec = j.run()
	if code != 5 || rec.State != jobs.StateError || !strings.Contains(rec.Reason, "rank ") || !strings.Contains(rec.Reason, "/no/such/program") {
		t.Errorf("exit %d: %+v", code, rec)
	}
}
