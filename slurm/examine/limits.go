package examine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs/finding"
	"berth/slurm/site"
)

// checkLimits lists what bounds the number of jobs.
func checkLimits(_ context.Context, _ *Site, c map[string]string) []finding.Finding {
	why := fmt.Sprintf("MaxJobCount %s on the whole cluster, MaxArraySize %s",
		cmp.Or(c["MaxJobCount"], "unknown"), cmp.Or(c["MaxArraySize"], "unknown"))
	f := finding.With(finding.Finding{Status: finding.OK, Why: why},
		"max_job_count", c["MaxJobCount"], "max_array_size", c["MaxArraySize"])
	if n, err := strconv.Atoi(c["MaxJobCount"]); err == nil && n < 1000 {
		f.Status, f.Why, f.Do = finding.Warn, f.Why+": a full queue refuses everybody's jobs", "submit few jobs at a time"
	}
	return []finding.Finding{f}
}

// checkAccount looks where this user may submit, and how much.
func checkAccount(ctx context.Context, s *Site, c map[string]string) []finding.Finding {
	enforce := c["AccountingStorageEnforce"]
	if !strings.HasSuffix(c["AccountingStorageType"], "slurmdbd") || s.Look("sacctmgr") == "" {
		return finding.One(finding.Skip, "accounts are not kept by slurmdbd, or sacctmgr is not here", "")
	}
	user := s.User()
	out, err := s.ask(ctx, "sacctmgr", "-nP", "show", "assoc", "user="+user, site.AssociationFormat)
	if err != nil {
		return finding.One(finding.Warn, "sacctmgr does not answer: "+err.Error(), "ask the site which account is yours")
	}
	all := site.Associations(out)
	var accounts, limits []string
	least := ""
	for _, a := range all {
		if !slices.Contains(accounts, a.Account) {
			accounts = append(accounts, a.Account)
		}
		if a.MaxSubmit != "" {
			limits = append(limits, a.Account+": "+a.MaxSubmit+" jobs submitted at a time")
			least = a.MaxSubmit
		}
		if a.MaxJobs != "" {
			limits = append(limits, a.Account+": "+a.MaxJobs+" jobs running at a time")
		}
	}
	enforced := strings.Contains(enforce, "associations") || strings.Contains(enforce, "limits") || strings.Contains(enforce, "safe")
	data := []string{"accounts", strings.Join(accounts, ","), "enforced", yes(enforced), "max_submit", least}
	want := s.Profile.Slurm.Account
	switch {
	case len(accounts) == 0 && enforced:
		return found(finding.Fail, "user "+user+" has no account on this cluster, and Slurm demands one", "ask the site for an account", data...)
	case len(accounts) == 0:
		return found(finding.OK, "user "+user+" has no account, and none is demanded", "", data...)
	case want != "" && !slices.Contains(accounts, want):
		status := finding.Warn
		if enforced {
			status = finding.Fail
		}
		return found(status, "the account "+want+" is none of yours: "+strings.Join(accounts, ", "),
			`correct account = "..." in [slurm] of the profile, or of the configuration`, data...)
	}
	f := finding.Finding{Status: finding.OK, Why: "accounts of " + user + ": " + strings.Join(accounts, ", ")}
	if len(limits) > 0 {
		f.Why += " (" + strings.Join(limits, "; ") + ")"
	}
	return []finding.Finding{finding.With(f, data...)}
}

// checkPartitions looks where jobs go that name no partition, or to that of the
// profile.
func checkPartitions(ctx context.Context, s *Site) []finding.Finding {
	if _, err := s.config(); err != nil {
		return nil // said elsewhere
	}
	out, err := s.ask(ctx, "scontrol", "show", "partition", "-o")
	if err != nil {
		return finding.One(finding.Warn, "the partitions cannot be listed: "+err.Error(), "")
	}
	all := site.Partitions(out)
	var names []string
	var chosen, def site.Partition
	want := s.Profile.Slurm.Partition
	for _, p := range all {
		names = append(names, p["PartitionName"])
		if p["Default"] == "YES" {
			def = p
		}
		if p["PartitionName"] == want {
			chosen = p
		}
	}
	data := []string{"partitions", strings.Join(names, ","), "default", def["PartitionName"]}
	switch {
	case len(all) == 0:
		return finding.One(finding.Fail, "there is no partition that this user sees", "ask the site which one is yours")
	case want != "" && chosen == nil:
		return found(finding.Fail, "the partition "+want+" does not exist: there are "+strings.Join(names, ", "),
			`correct partition = "..." in [slurm] of the profile, or of the configuration`, data...)
	case want == "" && def == nil:
		return found(finding.Warn, "no partition is the default: jobs must name one of "+strings.Join(names, ", "),
			`partition = "..." in [slurm] of a profile, or --partition`, data...)
	case want == "":
		chosen = def
	}
	why := fmt.Sprintf("%s: %s, limit %s, default time %s, %s nodes",
		chosen["PartitionName"], strings.ToLower(chosen["State"]), chosen["MaxTime"], chosen["DefaultTime"], chosen["TotalNodes"])
	mem := "none"
	for _, k := range []string{"DefMemPerCPU", "DefMemPerNode"} {
		if v := chosen[k]; v != "" && v != "UNLIMITED" {
			mem = v + " MiB " + map[string]string{"DefMemPerCPU": "a CPU", "DefMemPerNode": "a node"}[k]
		}
	}
	if mem == "none" {
		if c, _ := s.config(); c["DefMemPerCPU"] != "" && c["DefMemPerCPU"] != "UNLIMITED" {
			mem = c["DefMemPerCPU"] + " MiB a CPU"
		}
	}
	if mem != "none" {
		why += ", " + mem + " when a task names no memory"
	}
	f := finding.Finding{Status: finding.OK, Why: why}
	data = append(data, "max_time", chosen["MaxTime"], "whole_nodes", yes(chosen["OverSubscribe"] == "EXCLUSIVE"))
	switch {
	case chosen["State"] != "UP":
		f.Status, f.Do = finding.Fail, "nothing starts there now; others are: "+strings.Join(names, ", ")+" (sinfo)"
	case chosen["DefaultTime"] == "NONE" && chosen["MaxTime"] != "UNLIMITED":
		f.Why += "; a task without a time gets all of the limit, and waits longer for it"
		f.Do = "name a time: [resources] time"
	}
	if chosen["OverSubscribe"] == "EXCLUSIVE" {
		f.Why += "; a job gets whole nodes"
	}
	return []finding.Finding{finding.With(f, data...)}
}

// checkEnding says how Slurm ends jobs, and what it does with ended ones.
func checkEnding(_ context.Context, _ *Site, c map[string]string) []finding.Finding {
	var out []finding.Finding
	kill, known := site.Seconds(c["KillWait"])
	f := finding.With(finding.Finding{
		Subject: "time to end (KillWait)",
		Status:  finding.OK,
		Why:     kill.String() + " between TERM and KILL",
	}, "kill_wait", c["KillWait"])
	switch {
	case !known:
		f.Status, f.Why = finding.Warn, "KillWait is not known"
	case kill < 10*time.Second:
		f.Status, f.Do = finding.Warn, "ask the site for KillWait=30"
		f.Why = kill.String() + " between TERM and KILL is little for a task to end and its result to be brought back, " +
			"when a job is cancelled or preempted"
	}
	out = append(out, f)
	proc := c["ProctrackType"]
	f = finding.With(finding.Finding{
		Subject: "processes of a job (ProctrackType)",
		Status:  finding.OK,
		Why:     proc + ": when a job ends all its processes are found",
	}, "proctrack", proc)
	if proc != "proctrack/cgroup" {
		f.Status, f.Do = finding.Warn, "ask the site for proctrack/cgroup"
		f.Why = cmp.Or(proc, "unknown") + ": a process that detaches itself is not found by Slurm; berth ends those of its container itself"
	}
	out = append(out, f)
	if c["PreemptType"] != "" && c["PreemptType"] != "(null)" && !strings.HasSuffix(c["PreemptType"], "none") {
		out = append(out, finding.With(finding.Finding{
			Subject: "preemption",
			Status:  finding.OK,
			Why: c["PreemptType"] + ", mode " + c["PreemptMode"] + ": a job may be ended for another one; it gets TERM and " +
				kill.String(),
		}, "preempt", c["PreemptMode"]))
	}
	out = append(out, finding.With(finding.Finding{
		Subject: "jobs that have ended (MinJobAge)",
		Status:  finding.OK,
		Why:     "squeue knows them for " + age(c["MinJobAge"]) + "; JobRequeue=" + cmp.Or(c["JobRequeue"], "?") + ", which berth overrides",
	}, "min_job_age", c["MinJobAge"], "job_requeue", c["JobRequeue"]))
	return out
}

// checkMemory looks whether Slurm holds memory at all.
func checkMemory(_ context.Context, _ *Site, c map[string]string) []finding.Finding {
	counted := strings.Contains(strings.ToUpper(c["SelectTypeParameters"]), "MEMORY")
	ram := c["ConstrainRAMSpace"]
	f := finding.With(finding.Finding{
		Status: finding.OK,
		Why:    "a job that uses more memory than it asked for is ended (" + cmp.Or(c["CgroupPlugin"], "cgroup") + ")",
	}, "counted", yes(counted), "constrain_ram", ram)
	switch {
	case !counted:
		f.Status = finding.Warn
		f.Why = "Slurm does not hand out memory here (" + cmp.Or(c["SelectTypeParameters"], "SelectTypeParameters is not known") + "): " +
			"jobs share a node's; berth watches what a task asks for, advisory"
	case ram == "no" || !strings.Contains(c["TaskPlugin"], "cgroup"):
		f.Status = finding.Warn
		f.Why = "Slurm hands out memory and does not hold it (ConstrainRAMSpace=" + cmp.Or(ram, "?") + ", TaskPlugin=" + c["TaskPlugin"] + "): " +
			"berth watches what a task asks for, advisory"
	}
	return []finding.Finding{f}
}

// checkTmp tells whether each job has a /tmp of its own.
func checkTmp(_ context.Context, _ *Site, c map[string]string) []finding.Finding {
	kind := c["JobContainerType"]
	if kind == "" {
		kind = c["NamespaceType"] // 25.11 and newer
	}
	if strings.Contains(kind, "tmpfs") {
		return found(finding.OK, kind+": each job has a /tmp of its own, which ends with it", "", "private_tmp", "yes")
	}
	return found(finding.OK, "jobs share the node's /tmp; berth makes a private directory in it", "", "private_tmp", "no")
}

// checkGPUs reads which GPUs there are to ask for.
func checkGPUs(ctx context.Context, s *Site, c map[string]string) []finding.Finding {
	if !strings.Contains(c["GresTypes"], "gpu") {
		return finding.One(finding.Skip, "the cluster has no GPUs to ask for (GresTypes)", "")
	}
	if s.Look("sinfo") == "" {
		return finding.One(finding.Skip, "sinfo is not here", "")
	}
	out, err := s.ask(ctx, "sinfo", "-h", "-o", "%G")
	if err != nil {
		return finding.One(finding.Warn, "the GPUs cannot be listed: "+err.Error(), "")
	}
	types, untyped := gpuTypes(out)
	f := finding.With(finding.Finding{Status: finding.OK, Why: "types: " + strings.Join(types, ", ")}, "types", strings.Join(types, ","))
	want := s.Profile.GPUType
	switch {
	case len(types) == 0 && !untyped:
		f.Why = "none on the nodes that this user sees"
	case len(types) == 0:
		f.Why = "they have no types"
	}
	if want != "" && len(types) > 0 && !slices.Contains(types, want) {
		f.Status, f.Do = finding.Fail, `correct gpu_type = "..." in the profile`
		f.Why = "the profile's gpu_type " + want + " does not exist: there are " + strings.Join(types, ", ")
	}
	return []finding.Finding{f}
}

// gpuTypes reads "gpu:a100:4(S:0-1),shard:8" lines.
func gpuTypes(out string) (types []string, untyped bool) {
	for w := range strings.FieldsFuncSeq(out, func(r rune) bool { return r == '\n' || r == ',' || r == ' ' }) {
		parts := strings.Split(strings.TrimSpace(w), ":")
		switch {
		case parts[0] != "gpu" || len(parts) < 2:
		case len(parts) >= 3 && !strings.Contains(parts[1], "(") && (parts[1] == "" || parts[1][0] < '0' || parts[1][0] > '9'):
			if !slices.Contains(types, parts[1]) {
				types = append(types, parts[1])
			}
		default:
			untyped = true
		}
	}
	slices.Sort(types)
	return types, untyped
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
