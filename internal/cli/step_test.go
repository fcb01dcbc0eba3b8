package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// slurmstepd runs the batch process of one job in the environment that Slurm
// makes with --export=NIL, and records its end.
func slurmstepd(args []string) int {
	c, id := cluster{args[0]}, args[1]
	start := time.Now()
	limit := time.Hour
	if s, ok := c.order("end-in"); ok {
		if n, err := strconv.Atoi(s); err == nil {
			limit = time.Duration(n) * time.Second
		}
	}
	var j batchJob
	err := c.change(func(jobs map[string]*batchJob) {
		jobs[id].Start = start
		j = *jobs[id]
	})
	if err != nil {
		return 1
	}
	log, err := os.OpenFile(j.Output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 1
	}
	defer log.Close()
	cmd := exec.Command("bash", j.Script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.Getenv("TMPDIR"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR"),
		"SLURM_JOB_ID=" + id, "SLURM_JOB_NAME=" + j.Name, "SLURM_CPUS_ON_NODE=1", "SLURM_JOB_NUM_NODES=1", "SLURM_JOB_PARTITION=" + j.Partition,
		"SLURM_JOB_START_TIME=" + strconv.FormatInt(start.Unix(), 10), "SLURM_JOB_END_TIME=" + strconv.FormatInt(start.Add(limit).Unix(), 10),
		"SLURM_ARRAY_TASK_ID=" + strconv.Itoa(j.Element), "SLURM_EXIT_ERROR=94", "APPTAINER_BINDPATH=/site", "SINGULARITYENV_TOKEN=site",
	}
	if err := cmd.Start(); err != nil {
		return 1
	}
	_ = c.change(func(jobs map[string]*batchJob) { jobs[id].PID = cmd.Process.Pid })
	_ = cmd.Wait()
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	_ = c.change(func(jobs map[string]*batchJob) {
		j := jobs[id]
		j.State, j.Code = "COMPLETED", ws.ExitStatus()
		switch {
		case ws.Signaled():
			j.State, j.Code, j.Signal = "FAILED", 0, int(ws.Signal())
		case j.Code != 0:
			j.State = "FAILED"
		}
	})
	if c.release() != nil {
		return 1
	}
	return 0
}

// below lists the processes that descend from pid.
func below(pid int) []int {
	children := map[int][]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		s := string(b)
		fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		var child, parent int
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(f)), &child); err != nil || len(fields) < 2 {
			continue
		}
		if _, err := fmt.Sscan(fields[1], &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var out []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		out = append(out, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return out
}
