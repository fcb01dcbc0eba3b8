// Package inside is Slurm as a process in one of its jobs sees it: the job's
// variables, and what Slurm's programs on a node tell and do. It stands apart
// from the scheduler, so that the program for the nodes is small.
package inside

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm/site"
	"berth/slurm/stubs"
)

// Slurm implements [jobs.NodeScheduler].
type Slurm struct{}

var _ jobs.NodeScheduler = Slurm{}

// Name returns "slurm".
func (Slurm) Name() string { return jobs.SchedulerSlurm }

// Job reads the variables of a batch process or of a step's (sbatch(1) and
// srun(1), output environment). Both times are of newer versions: 22.05 sets
// neither.
func (Slurm) Job(getenv func(string) string) (jobs.NodeJob, bool) {
	restart, _ := strconv.Atoi(getenv("SLURM_RESTART_COUNT"))
	job := jobs.NodeJob{
		ID:      getenv("SLURM_JOB_ID"),
		Name:    getenv("SLURM_JOB_NAME"),
		Node:    getenv("SLURMD_NODENAME"),
		Rank:    getenv("SLURM_PROCID"),
		Restart: restart,
		Began:   epoch(getenv("SLURM_JOB_START_TIME")),
		Ends:    epoch(getenv("SLURM_JOB_END_TIME")),
	}
	return job, job.ID != ""
}

// epoch reads seconds of Unix time; zero is none.
func epoch(text string) time.Time {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return time.Unix(n, 0)
	}
	return time.Time{}
}

// Remaining asks squeue.
func (Slurm) Remaining(ctx context.Context, on jobs.Starter, id string) (time.Duration, bool) {
	env := append(site.Environ(os.Environ()), "SLURM_TIME_FORMAT=standard")
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"squeue", "-h", "-j", id, "-o", "%L"}, Env: env})
	if err != nil {
		return 0, false
	}
	return timeLeft(strings.TrimSpace(string(out)))
}

// timeLeft reads what squeue prints of a time, [DAYS-][[HOURS:]MINUTES:]SECONDS,
// and not "UNLIMITED", "NOT_SET" or "INVALID".
func timeLeft(text string) (time.Duration, bool) {
	days, rest, has := strings.Cut(text, "-")
	if !has {
		days, rest = "0", text
	}
	total, err := strconv.ParseUint(days, 10, 16)
	parts := strings.Split(rest, ":")
	if err != nil || len(parts) > 3 {
		return 0, false
	}
	hours := total * 24
	var seconds uint64
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return 0, false
		}
		seconds = seconds*60 + n
	}
	return time.Duration(hours)*time.Hour + time.Duration(seconds)*time.Second, true
}

var killWaitLine = pattern.Lazy(`(?m)^KillWait\s*=\s*(\d+) sec`)

// KillWait asks scontrol (slurm.conf(5), KillWait). Where it cannot be asked, a
// short one is assumed.
func (Slurm) KillWait(ctx context.Context, on jobs.Starter) time.Duration {
	const cautious = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"scontrol", "show", "config"}})
	if err != nil {
		return cautious
	}
	m := killWaitLine().FindSubmatch(out)
	if m == nil {
		return cautious
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return cautious
	}
	return time.Duration(n) * time.Second
}

// Version asks sbatch.
func (Slurm) Version(ctx context.Context, on jobs.Starter) string {
	out, _ := run.Output(ctx, on, jobs.Cmd{Argv: []string{"sbatch", "--version"}, Env: site.Environ(os.Environ())})
	return site.Version(string(out))
}

// Cancel runs scancel.
func (Slurm) Cancel(ctx context.Context, on jobs.Starter, ids []string) error {
	_, err := run.Output(ctx, on, jobs.Cmd{Argv: append([]string{"scancel"}, ids...)})
	return err
}

// programs are those that ask or order something.
var programs = []string{"sbatch", "squeue", "sacct", "scancel", "scontrol", "srun", "sinfo", "sacctmgr"}

// Program implements [jobs.NodeScheduler].
func (Slurm) Program(name string) bool { return slices.Contains(programs, filepath.Base(name)) }

// passed are the variables of a job that commands see: what they were given, and
// their place among others. The rest of SLURM_* stays out: some of them hold
// addresses and names of the submit host and of Slurm's own servers.
var passed = []string{
	"SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
	"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID",
	"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT",
}

// Passed implements [jobs.NodeScheduler].
func (Slurm) Passed(name string) bool {
	return slices.Contains(passed, name) || strings.HasPrefix(name, "SLURM_GPUS") || strings.HasPrefix(name, "SLURM_ARRAY_")
}

// JobVariable implements [jobs.NodeScheduler].
func (Slurm) JobVariable(name string) bool { return strings.HasPrefix(name, "SLURM_JOB_") }

// HasCgroup knows the directory that slurmstepd makes for a job.
func (Slurm) HasCgroup(path, id string) bool {
	return id != "" && slices.Contains(strings.Split(path, "/"), "job_"+id)
}

// EndHint implements [jobs.NodeScheduler].
func (Slurm) EndHint(id string) string {
	return "squeue and sacct say which: sacct -X -j " + id
}

// RankEnviron leaves out what would send srun's streams elsewhere or have it
// start something else (srun(1), INPUT ENVIRONMENT VARIABLES).
func (Slurm) RankEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "SRUN_") || slices.Contains(rankUnset, name)
	})
}

var rankUnset = []string{
	"SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_MULTI_PROG", "SLURM_UNBUFFEREDIO", "SLURM_CONTAINER", "SLURM_CONTAINER_ID",
	"SLURM_PROLOG", "SLURM_EPILOG", "SLURM_TASK_PROLOG", "SLURM_TASK_EPILOG", "SLURM_BCAST", "SLURM_BCAST_EXCLUDE", "SLURM_SEND_LIBS",
	"SLURM_WORKING_DIR", "SLURM_IMMEDIATE", "SLURM_QUIET", "SLURM_DEBUG", "SLURM_SRUN_MULTI",
}

// RankPassed are the variables by which a PMIx client finds Slurm's server on
// its node, which it reaches over the loopback of the host's network. What the
// two would share in files of the host is not here: the client is told to keep
// the job's data itself.
func (Slurm) RankPassed(o jobs.SlurmOptions, environ []string) []string {
	if o.MPI != "pmix" {
		return nil
	}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "PMIX_") && name != "PMIX_SERVER_TMPDIR" && name != "PMIX_SYSTEM_TMPDIR" && name != "PMIX_GDS_MODULE" {
			out = append(out, e)
		}
	}
	return append(out, "PMIX_GDS_MODULE=hash")
}

// rankEnded is how srun tells that tasks have ended other than with 0, such as
// "srun: error: c2: tasks 1,4-6: Killed".
var rankEnded = pattern.Lazy(`^srun: error: \S+: tasks? ([0-9,-]+): (.+)$`)

// RankEnded implements [jobs.NodeScheduler].
func (Slurm) RankEnded(line string) (func(int) bool, string, bool) {
	m := rankEnded().FindStringSubmatch(line)
	if m == nil {
		return nil, "", false
	}
	return func(rank int) bool { return among(m[1], rank) }, m[2], true
}

// among tells whether a list such as "1,4-6" names a task.
func among(list string, task int) bool {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil && a <= task && task <= b {
			return true
		}
	}
	return false
}

// Stubs implements [jobs.NodeScheduler].
func (Slurm) Stubs() jobs.Stubs { return stubs.Slurm{} }
