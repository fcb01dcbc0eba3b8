package cli_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/internal/run"
)

// partitions of the fake cluster; a job in "busy" waits.
var partitions = []string{"main", "gpu", "busy"}

var version = []string{"--version"}

func sbatch(args []string) int {
	c := theCluster()
	if strictly("sbatch", args, version) {
		fmt.Println("slurm 24.11.5")
		return 0
	}
	if !strictly("sbatch", args, []string{"--parsable", "*"}) {
		return unexpected("sbatch", args)
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "SBATCH_") || name == "SLURM_JOB_ID" {
			return unexpected("sbatch with "+name+" in its environment", args)
		}
	}
	if c.down("sbatch") {
		return refused()
	}
	j, complaint := readScript(args[1])
	if complaint == "" {
		complaint, _ = c.order("refuse")
	}
	if complaint != "" {
		fmt.Fprintln(os.Stderr, complaint)
		if strings.Contains(complaint, "unrecognized option") {
			return 255
		}
		return refused()
	}
	err := c.change(func(jobs map[string]*batchJob) {
		j.ID = nextID(jobs)
		jobs[j.ID] = j
	})
	if err == nil && j.State == "RUNNING" {
		// As slurmd does, in nobody's session.
		_, err = run.Detach([]string{"slurmstepd", c.dir, j.ID}, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, "/", os.DevNull)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAKE: sbatch:", err)
		return 112
	}
	answer := j.ID
	if _, ok := c.order("silent"); ok {
		fmt.Fprintln(os.Stderr, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
		return refused()
	}
	if _, ok := c.order("garbage"); ok {
		answer = "Have a nice day!"
	}
	if _, ok := c.order("banner"); ok {
		fmt.Println("*** Welcome to the cluster ***")
		defer fmt.Println("7 jobs of yours wait")
		fmt.Fprintln(os.Stderr, "sbatch: lua: your project has 1200 hours left")
	}
	fmt.Println(answer)
	return 0
}

// refused is sbatch's exit code for its own errors.
func refused() int {
	if os.Getenv("SLURM_EXIT_ERROR") == "94" {
		return 94
	}
	return 1
}

var directiveLine = regexp.MustCompile(`(?m)^#SBATCH --([a-z-]+)(?:=(.*))?$`)

// readScript reads the directives as strictly as sbatch does.
func readScript(file string) (*batchJob, string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, "sbatch: error: Unable to open file " + file
	}
	j := &batchJob{State: "RUNNING", Partition: "main", Reason: "None", Script: file}
	for _, m := range directiveLine.FindAllStringSubmatch(string(text), -1) {
		value := unquote(m[2])
		switch m[1] {
		case "job-name":
			j.Name = value
		case "chdir":
			j.Dir = value
		case "output":
			j.Output = strings.ReplaceAll(value, "%%", "%")
		case "partition":
			j.Partition = value
		case "account":
			if value != "physics" {
				return nil, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
			}
		case "comment", "open-mode", "no-requeue", "dependency", "kill-on-invalid-dep", "export",
			"nodes", "cpus-per-task", "mem", "tmp", "time", "gres", "qos", "constraint", "nice":
		default:
			return nil, "sbatch: unrecognized option '--" + m[1] + "'\nTry \"sbatch --help\" for more information"
		}
	}
	if !slices.Contains(partitions, j.Partition) {
		return nil, "sbatch: error: invalid partition specified: " + j.Partition + "\nsbatch: error: Batch job submission failed: Invalid partition name specified"
	}
	if j.Partition == "busy" {
		j.State, j.Reason = "PENDING", "Resources"
	}
	return j, ""
}

func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(s[1 : len(s)-1])
}

const (
	queueColumns = "JobID:|,State:|,exit_code:|,StartTime:|,NodeList:|,Name:|,Reason:|"
	acctColumns  = "JobIDRaw,State,ExitCode,Start,NodeList,JobName,Reason"
)

func squeue(args []string) int {
	base := []string{"--me", "-h", "-t", "all", "-O", queueColumns}
	if !strictly("squeue", args, base, append(slices.Clone(base), "-n", "*")) {
		return unexpected("squeue", args)
	}
	c := theCluster()
	if c.down("squeue") {
		return 1
	}
	var names []string
	if len(args) > len(base) {
		names = strings.Split(args[len(args)-1], ",")
	}
	_, forget := c.order("forget")
	for _, j := range c.list() {
		if (forget && final(j.State)) || (names != nil && !slices.Contains(names, j.Name)) {
			continue
		}
		fmt.Println(strings.Join(append(j.columns(), j.Name, j.Reason, ""), "|"))
	}
	return 0
}

func (j *batchJob) columns() []string {
	start, node := "N/A", ""
	if !j.Start.IsZero() {
		start, node = j.Start.UTC().Format("2006-01-02T15:04:05"), "c1"
	}
	return []string{j.ID, j.State, fmt.Sprintf("%d:%d", j.Code, j.Signal), start, node}
}

func sacct(args []string) int {
	byID := []string{"-X", "-P", "-n", "-S", "*", "-j", "*", "-o", acctColumns}
	byName := []string{"-X", "-P", "-n", "-S", "*", "*", "-o", acctColumns}
	if !strictly("sacct", args, byID, byName) {
		return unexpected("sacct", args)
	}
	c := theCluster()
	if c.down("sacct") {
		return 1
	}
	for _, j := range c.list() {
		if (len(args) == len(byID) && slices.Contains(strings.Split(args[6], ","), j.ID)) ||
			(len(args) == len(byName) && slices.Contains(strings.Split(strings.TrimPrefix(args[5], "--name="), ","), j.Name)) {
			fmt.Println(strings.Join(append(j.columns(), j.Name, j.Reason), "|"))
		}
	}
	return 0
}

func scancel(args []string) int {
	c := theCluster()
	if c.down("scancel") {
		return 1
	}
	code := 0
	var running []int
	err := c.change(func(jobs map[string]*batchJob) {
		for _, id := range args {
			switch j := jobs[id]; {
			case j == nil:
				fmt.Fprintf(os.Stderr, "scancel: error: Kill job error on job id %s: Invalid job id specified\n", id)
				code = 1
			case j.State == "PENDING":
				j.State, j.Reason = "CANCELLED", "None"
			case j.State == "RUNNING":
				running = append(running, j.PID)
			}
		}
	})
	if err != nil || len(args) == 0 {
		return unexpected("scancel", args)
	}
	// CONT, then TERM, to every process of the job, as the step's cgroup has them.
	for _, pid := range running {
		for _, p := range append(below(pid), pid) {
			_ = syscall.Kill(p, syscall.SIGCONT)
			_ = syscall.Kill(p, syscall.SIGTERM)
		}
	}
	return code
}

func scontrol(args []string) int {
	c := theCluster()
	_, down := c.order("down")
	switch {
	case strictly("scontrol", args, []string{"ping"}):
		if down {
			fmt.Println("Slurmctld(primary) at head is DOWN")
			return 1
		}
		fmt.Println("Slurmctld(primary) at head is UP")
		return 0
	case strictly("scontrol", args, []string{"show", "config"}):
		if down {
			fmt.Fprintln(os.Stderr, "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)")
			return 1
		}
		storage := "accounting_storage/slurmdbd"
		if _, ok := c.order("no-dbd"); ok {
			storage = "(null)"
		}
		fmt.Printf("Configuration data as of %s\nAccountingStorageType   = %s\nKillWait                = 5 sec\n", time.Now().Format(time.DateTime), storage)
		return 0
	}
	return unexpected("scontrol", args)
}

func sinfo(args []string) int {
	if !strictly("sinfo", args, []string{"-h", "-o", "%R"}) {
		return unexpected("sinfo", args)
	}
	fmt.Println(strings.Join(partitions, "\n"))
	return 0
}

func sacctmgr(args []string) int {
	if !strictly("sacctmgr", args, []string{"-nP", "show", "assoc", "*", "format=account"}) {
		return unexpected("sacctmgr", args)
	}
	fmt.Println("physics")
	return 0
}
