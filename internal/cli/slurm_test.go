package cli_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	if len(args) > 2 && args[0] == "--test-only" {
		for _, a := range args[1 : len(args)-1] {
			if a == "--partition=main" {
				fmt.Fprintln(os.Stderr, "sbatch: Job 99 to start at 2030-01-01T10:00:00 using 1 processors on nodes c1 in partition main")
				return 0
			}
		}
		fmt.Fprintln(os.Stderr, "allocation failure: Requested node configuration is not available")
		return 1
	}
	if !strictly("sbatch", args, []string{"--parsable", "*"}, []string{"--test-only", "*"}) {
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
	if rules, ok := c.order("refuse-options"); ok && complaint == "" {
		complaint = refusedOptions(args[1], rules)
	}
	if args[0] == "--test-only" {
		if complaint != "" {
			fmt.Fprintln(os.Stderr, complaint+"\nallocation failure: Unspecified error")
			return refused()
		}
		fmt.Fprintln(os.Stderr, "sbatch: Job 99 to start at 2030-01-01T10:00:00 using 1 processors on nodes c1 in partition main")
		return 0
	}
	if complaint != "" {
		fmt.Fprintln(os.Stderr, complaint)
		if strings.Contains(complaint, "unrecognized option") {
			return 255
		}
		return refused()
	}
	if j.Elements > 0 {
		return c.array(j)
	}
	err := c.change(func(jobs map[string]*batchJob) {
		j.ID = nextID(jobs, j.Reason == "Dependency")
		if strings.HasPrefix(j.Name, "berth-next-") && j.held(jobs) {
			j.State, j.Reason = "PENDING", "Dependency"
		}
		jobs[j.ID] = j
	})
	if err == nil && j.State == "RUNNING" {
		err = c.begin(j.ID)
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

// array makes a job of each element, with ids of their own, or one for all that wait.
func (c cluster) array(j *batchJob) int {
	first, begins := "", []string{}
	err := c.change(func(jobs map[string]*batchJob) {
		for n := range j.Elements {
			one := *j
			one.ID, one.Element = nextID(jobs, false), n+1
			one.Output = strings.ReplaceAll(j.Output, "%a", strconv.Itoa(n+1))
			jobs[one.ID] = &one
			if n == 0 {
				first = one.ID
			}
			if j.State != "RUNNING" {
				return
			}
			begins = append(begins, one.ID)
		}
	})
	for _, id := range begins {
		err = errors.Join(err, c.begin(id))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAKE: sbatch:", err)
		return 112
	}
	if _, ok := c.order("silent"); ok {
		fmt.Fprintln(os.Stderr, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
		return refused()
	}
	fmt.Println(first)
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
		case "array":
			if _, err := fmt.Sscanf(value, "1-%d", &j.Elements); err != nil || j.Elements > 1000 {
				return nil, "sbatch: error: Batch job submission failed: Invalid job array specification"
			}
		case "partition":
			j.Partition = value
		case "account":
			if value != "physics" {
				return nil, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
			}
		case "dependency":
			if _, list, ok := strings.Cut(value, "afterany:"); ok {
				j.After = strings.Split(list, ":")
			}
		case "comment", "open-mode", "no-requeue", "requeue", "begin", "exclude", "signal", "kill-on-invalid-dep", "export",
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
	if strings.HasPrefix(j.Name, "berth-reap-") { // it waits until someone takes it away
		j.State, j.Reason = "PENDING", "Dependency"
	}
	if strings.HasPrefix(j.Name, "berth-tick-") { // the same
		j.State, j.Reason = "PENDING", "BeginTime"
	}
	return j, ""
}

// refusedOptions are the site's words where a script has one of the options of
// the rules, "NAME WORDS" on each line, or lacks it, "!NAME WORDS".
func refusedOptions(file, rules string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "sbatch: error: Unable to open file " + file
	}
	for rule := range strings.Lines(rules) {
		option, words, _ := strings.Cut(strings.TrimSpace(rule), " ")
		name, missing := strings.CutPrefix(option, "!")
		has := regexp.MustCompile(`(?m)^#SBATCH --` + name + `(=|$)`).Match(text)
		if option != "" && has != missing {
			return "sbatch: error: " + words
		}
	}
	return ""
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
	c := theCluster()
	if strictly("squeue", args, []string{"--me", "-h", "-O", "JobID:|,State:|,Name:|,WorkDir:|"}) {
		for _, j := range c.list() {
			if !final(j.State) {
				fmt.Println(strings.Join([]string{j.ID, j.State, j.Name, j.Dir, ""}, "|"))
			}
		}
		return 0
	}
	if !strictly("squeue", args, base, append(slices.Clone(base), "-n", "*")) {
		return unexpected("squeue", args)
	}
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
	lately := []string{"-X", "-P", "-n", "-S", "now-1minutes", "-o", "JobIDRaw"} // doctor: does it answer?
	if strictly("sacct", args, lately) {
		return 0
	}
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
	begins := false // a job whose batch process is not known yet
	cancel := func(jobs map[string]*batchJob) {
		begins, running = false, nil
		for _, id := range args {
			switch j := jobs[id]; {
			case j == nil:
				fmt.Fprintf(os.Stderr, "scancel: error: Kill job error on job id %s: Invalid job id specified\n", id)
				code = 1
			case j.State == "PENDING":
				j.State, j.Reason = "CANCELLED", "None"
			case j.State == "RUNNING" && j.PID == 0:
				begins = true
			case j.State == "RUNNING":
				running = append(running, j.PID)
			}
		}
	}
	err := c.change(cancel)
	for deadline := time.Now().Add(patience); err == nil && begins; err = c.change(cancel) {
		if time.Now().After(deadline) {
			return unexpected("scancel of a job that does not begin", args)
		}
		time.Sleep(20 * time.Millisecond)
	}
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
		fmt.Printf("Configuration data as of %s\nAccountingStorageType   = %s\nKillWait                = 5 sec\n", time.Now().UTC().Format("2006-01-02T15:04:05"), storage)
		fmt.Print("AccountingStorageEnforce = associations,limits\nClusterName             = lake\nSlurmctldHost[0]        = head\nSLURM_VERSION           = 24.11.5\nMaxJobCount             = 10000\nMaxArraySize            = 1001\nMinJobAge               = 300 sec\n" +
			"ProctrackType           = proctrack/cgroup\nTaskPlugin              = task/cgroup\nSelectTypeParameters    = CR_CPU_MEMORY\nConstrainRAMSpace       = yes\nJobRequeue              = 1\nGresTypes               = gpu\n")
		return 0
	case strictly("scontrol", args, []string{"show", "node", "-o"}):
		if down {
			return 1
		}
		fmt.Printf("NodeName=c1 CPUAlloc=0 CPUEfctv=4 CPUTot=4 RealMemory=8500 AllocMem=0 MemSpecLimit=500 State=IDLE Partitions=%s CfgTRES=cpu=4,mem=8000M,billing=4\n", strings.Join(partitions, ","))
		return 0
	case strictly("scontrol", args, []string{"show", "partition", "-o"}):
		if down {
			return 1
		}
		for i, name := range partitions {
			fmt.Printf("PartitionName=%s Default=%s State=UP MaxTime=1-00:00:00 DefaultTime=01:00:00 TotalNodes=2 OverSubscribe=NO\n", name, []string{"NO", "YES"}[max(0, 1-i)])
		}
		return 0
	}
	return unexpected("scontrol", args)
}

func sinfo(args []string) int {
	if strictly("sinfo", args, []string{"-h", "-o", "%G"}) {
		fmt.Println("gpu:a100:2")
		return 0
	}
	if !strictly("sinfo", args, []string{"-h", "-o", "%R"}) {
		return unexpected("sinfo", args)
	}
	fmt.Println(strings.Join(partitions, "\n"))
	return 0
}

func sacctmgr(args []string) int {
	c := theCluster()
	if strictly("sacctmgr", args, []string{"-nP", "show", "assoc", "*", "format=Account,Partition,MaxJobs,MaxSubmitJobs,QOS"}) {
		limit, _ := c.order("max-submit")
		fmt.Printf("physics|||%s|normal|\n", limit)
		return 0
	}
	if !strictly("sacctmgr", args, []string{"-nP", "show", "assoc", "*", "format=account"}) {
		return unexpected("sacctmgr", args)
	}
	fmt.Println("physics")
	return 0
}
