package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// The cluster of the scripts is a directory, $HOME/.cluster: HOME is the one
// variable that reaches every program that berth starts. Scripts make files in
// it to give orders; the fakes keep jobs/ID.json.
//
//	down        nobody answers
//	queue-down  squeue and sacct alone do not answer
//	banner      sbatch is a site's wrapper that talks before and after
//	silent      sbatch takes the job and its answer is lost
//	garbage     sbatch takes the job and prints nonsense
//	no-dbd      there is no accounting
//	forget      squeue forgets ended jobs at once
//	end-in      seconds from the start of a job to its time limit
//	max-submit  how many jobs a user may have, for accounting to tell
//	refuse      what sbatch says when it refuses every job
const clusterDir = ".cluster"

type cluster struct{ dir string }

func theCluster() cluster { return cluster{filepath.Join(os.Getenv("HOME"), clusterDir)} }

// order tells whether the script has made a file, and what is in it.
func (c cluster) order(name string) (string, bool) {
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	return strings.TrimSpace(string(b)), err == nil
}

// batchJob is a job of the fake Slurm.
type batchJob struct {
	ID, Name, State, Reason, Partition string
	Script, Dir, Output                string
	Start                              time.Time
	Element, Elements                  int // of an array: its number, and how many there are; 0 is none
	PID                                int // of the batch process
	Code, Signal                       int
	// After are the jobs that must have ended first. Of all that name some, only
	// what was submitted ahead begins by itself then.
	After []string
}

// held tells whether a job waits for others.
func (j *batchJob) held(jobs map[string]*batchJob) bool {
	return slices.ContainsFunc(j.After, func(id string) bool {
		other := jobs[id]
		return other != nil && (other.State == "RUNNING" || other.State == "PENDING")
	})
}

// begin has a node run a job: as slurmd does, in no one's session.
func (c cluster) begin(id string) error {
	_, err := run.Detach([]string{"slurmstepd", c.dir, id}, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, "/", os.DevNull)
	return err
}

// release begins what was submitted ahead and need not wait any more.
func (c cluster) release() error {
	var free []string
	err := c.change(func(jobs map[string]*batchJob) {
		for _, j := range jobs {
			if j.State == "PENDING" && strings.HasPrefix(j.Name, "berth-next-") && !j.held(jobs) {
				j.State, j.Reason = "RUNNING", "None"
				free = append(free, j.ID)
			}
		}
	})
	for _, id := range free {
		err = errors.Join(err, c.begin(id))
	}
	return err
}

func (c cluster) path(id string) string { return filepath.Join(c.dir, "jobs", id+".json") }

// change reads, changes and writes the jobs under a lock: several fakes run at
// the same time.
func (c cluster) change(do func(jobs map[string]*batchJob)) error {
	if err := os.MkdirAll(filepath.Join(c.dir, "jobs"), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	files, err := filepath.Glob(c.path("*"))
	if err != nil {
		return err
	}
	jobs := map[string]*batchJob{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		var j batchJob
		if err := json.Unmarshal(b, &j); err != nil {
			return err
		}
		jobs[j.ID] = &j
	}
	do(jobs)
	for id, j := range jobs {
		b, err := json.Marshal(j)
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.path(id), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// list returns the jobs in the order of their ids.
func (c cluster) list() []*batchJob {
	var all []*batchJob
	err := c.change(func(jobs map[string]*batchJob) {
		for _, j := range jobs {
			all = append(all, j)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake slurm:", err)
	}
	slices.SortFunc(all, func(a, b *batchJob) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// nextID numbers the jobs from 101 on, and apart from them those that wait for
// others.
func nextID(jobs map[string]*batchJob, behind bool) string {
	n := 100
	if behind {
		n = 900
	}
	for id := range jobs {
		if i, err := strconv.Atoi(id); err == nil && (i > 900) == behind {
			n = max(n, i)
		}
	}
	return strconv.Itoa(n + 1)
}

// down says that the controller does not answer, in the words of Slurm.
func (c cluster) down(program string) bool {
	_, all := c.order("down")
	_, queue := c.order("queue-down")
	switch {
	case program == "sbatch" && all:
		fmt.Fprintln(os.Stderr, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)")
	case all, queue && (program == "squeue" || program == "sacct"):
		fmt.Fprintln(os.Stderr, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
	default:
		return false
	}
	return true
}

// unexpected is how a fake answers to words that berth should never use.
func unexpected(program string, args []string) int {
	fmt.Fprintf(os.Stderr, "FAKE: unexpected command line: %s %q\n", program, args)
	f, err := os.OpenFile(filepath.Join(theCluster().dir, "unexpected"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, _ = fmt.Fprintf(f, "%s %q\n", program, args)
		_ = f.Close()
	}
	return 111
}

// final tells whether a word of Slurm's is an end.
func final(state string) bool {
	return state != "PENDING" && state != "RUNNING" && state != "COMPLETING"
}
