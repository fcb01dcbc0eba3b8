// Package site reads what the programs of a Slurm say about it: their version,
// slurmctld's configuration, partitions and associations. It starts nothing and
// stands below the scheduler, so that the program for the nodes can have it
// without the job scripts.
package site

import (
	"strconv"
	"strings"
	"time"
)

// scrubbed are the prefixes of variables that change what the Slurm commands
// do or print: each has its own, and all read SLURM_*. The caller's may be those
// of a job that berth was called in, of a login file, or set by an attacker.
var scrubbed = []string{
	"SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_",
	"SACCTMGR_", "SSTAT_", "SPRIO_", "SSHARE_", "SREPORT_", "SCRONTAB_",
	"LC_", "LANG=",
}

// kept are the few of them that every Slurm command gets: they say which cluster
// is meant, and who the user is. They are the user's own word; a job that they
// lead elsewhere is found nowhere else.
var kept = []string{
	"SLURM_CONF=",        // where slurm.conf is (all commands)
	"SLURM_CONF_SERVER=", // or who has it: clusters whose nodes have no such file
	"SLURM_CLUSTERS=",    // which of several clusters
	"SLURM_JWT=",         // who the user is, where there is no munge (auth/jwt)
}

// Environ returns the environment for a Slurm command, out of environ.
func Environ(environ []string) []string {
	env := make([]string, 0, len(environ)+3)
	for _, e := range environ {
		if hasAnyPrefix(e, kept) || !hasAnyPrefix(e, scrubbed) {
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C")
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// Version reads "slurm 24.11.5" or, from Debian, "slurm-wlm 24.11.5", on a line
// of its own between a site's banners; "" is that there is none.
func Version(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		w := strings.Fields(line)
		if len(w) == 2 && strings.HasPrefix(w[0], "slurm") && w[1][0] >= '0' && w[1][0] <= '9' {
			return w[1]
		}
	}
	return ""
}

// Config reads the "Name = value" lines of scontrol show config.
func Config(out string) map[string]string {
	config := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); ok && name != "" && !strings.Contains(name, " ") {
			config[name] = strings.TrimSpace(value)
		}
	}
	return config
}

// Seconds reads "30 sec", as scontrol show config writes a time.
func Seconds(s string) (time.Duration, bool) {
	number, _, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

// Limit reads a time limit as Slurm prints it ("[D-]HH:MM:SS", "MM:SS", minutes);
// UNLIMITED, and what is none, is not one.
func Limit(s string) (time.Duration, bool) {
	days, clock, split := strings.Cut(s, "-")
	if !split {
		days, clock = "0", s
	}
	d, err := strconv.ParseInt(days, 10, 32)
	if err != nil || d < 0 {
		return 0, false
	}
	parts := strings.Split(clock, ":")
	unit := []time.Duration{time.Hour, time.Minute, time.Second}
	switch {
	case len(parts) > 3:
		return 0, false
	case !split && len(parts) < 3: // without days or hours minutes come first
		unit = unit[1:]
	}
	limit := time.Duration(d) * 24 * time.Hour
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 {
			return 0, false
		}
		limit += time.Duration(n) * unit[i]
	}
	return limit, limit > 0
}

// Partition is a line of scontrol show partition -o: its Key=Value words.
type Partition map[string]string

// Partitions reads scontrol show partition -o.
func Partitions(out string) []Partition {
	var all []Partition
	for line := range strings.SplitSeq(out, "\n") {
		p := Partition{}
		for _, w := range strings.Fields(line) {
			if name, value, ok := strings.Cut(w, "="); ok {
				p[name] = value
			}
		}
		if p["PartitionName"] != "" {
			all = append(all, p)
		}
	}
	return all
}

// Association is where a user may submit, from sacctmgr.
type Association struct {
	Account, Partition string
	MaxJobs, MaxSubmit string // "" is no limit
	QOS                []string
}

// AssociationFormat is what sacctmgr -nP show assoc is asked for.
const AssociationFormat = "format=Account,Partition,MaxJobs,MaxSubmitJobs,QOS"

// Associations reads sacctmgr -nP show assoc with [AssociationFormat].
func Associations(out string) []Association {
	var all []Association
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 5 || f[0] == "" {
			continue
		}
		a := Association{Account: f[0], Partition: f[1], MaxJobs: f[2], MaxSubmit: f[3]}
		for q := range strings.SplitSeq(f[4], ",") {
			if q != "" {
				a.QOS = append(a.QOS, q)
			}
		}
		all = append(all, a)
	}
	return all
}
