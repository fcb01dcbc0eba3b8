package slurm

import "strings"

// What shows the limits of an association and of a QOS.
const (
	assocHelp = "it starts when jobs of the account or yours have ended; the limits: " +
		"sacctmgr show assoc user=$USER format=account,user,partition,grptres,grpjobs,maxtres,maxjobs,maxwall"
	qosHelp = "it starts when other jobs of the QOS have ended; the limits: " +
		"sacctmgr show qos format=name,grptres,grpjobs,maxtres,maxtrespu,maxjobspu,maxwall"
)

// limitOf reads the name of a limit that holds a job back. Slurm has some
// hundred of them, and makes them of parts: whose limit it is (Assoc, QOS), of
// how many jobs together (Grp) or each (Max, Min), of what (Cpu, Mem, GRES),
// counted how (Minutes, RunMinutes) and for whom (PerJob, PerUser, PerAccount).
func limitOf(name string) (reason, bool) {
	whose, rest, help := "", name, assocHelp
	switch {
	case strings.HasPrefix(name, "Assoc"):
		whose, rest = "its association (account and user)", name[len("Assoc"):]
	case strings.HasPrefix(name, "QOS"):
		whose, rest, help = "its QOS", name[len("QOS"):], qosHelp
	case strings.HasPrefix(name, "Max") && strings.HasSuffix(name, "PerAccount"):
		whose, help = "its QOS", qosHelp
	default:
		return reason{}, false
	}
	rest = strings.TrimSuffix(rest, "Limit")
	var kind string
	for _, k := range []string{"Grp", "Max", "Min"} {
		if r, ok := strings.CutPrefix(rest, k); ok {
			kind, rest = k, r
		}
	}
	if kind == "" {
		return reason{}, false
	}
	per := ""
	for _, p := range []struct{ suffix, text string }{{"PerJob", "a job"}, {"PerUser", "a user"}, {"PerAccount", "an account"}, {"PerNode", "a node"}} {
		if r, ok := strings.CutSuffix(rest, p.suffix); ok {
			rest, per = r, p.text
		}
	}
	counted := ""
	for _, c := range []struct{ suffix, text string }{{"RunMinutes", "of those that run, in minutes"}, {"Minutes", "over time, in minutes"}} {
		if r, ok := strings.CutSuffix(rest, c.suffix); ok {
			rest, counted = r, c.text
			break
		}
	}
	what, known := limited[strings.ToLower(strings.TrimSuffix(rest, "Duration"))]
	if !known {
		what = strings.ToLower(rest)
	}
	if counted != "" {
		what += " " + counted
	}
	r := reason{help: help}
	one := per == "a job" || per == "a node"
	switch {
	case kind == "Min":
		r.plain, r.never = "it asks for less "+what+" than "+whose+" wants for a job", true
	case kind == "Grp":
		r.plain = "all jobs of " + whose + " together have reached its limit on " + what
	case per == "" && whose == "its QOS" || !one && per != "":
		r.plain = "the jobs of " + strings.TrimSpace(per+" in "+whose) + " have reached the limit on " + what
	case per == "":
		r.plain = "your jobs in " + whose + " have reached the limit on " + what
	default:
		r.plain = "it asks for more " + what + " than " + whose + " gives to " + per
		r.help = "berth cancel it and ask for less; " + help
		r.never = counted == ""
	}
	if per == "" && kind == "Max" && whose == "its QOS" {
		r.plain = "the jobs of " + whose + " have reached the limit on " + what
	}
	return r, true
}

// limited are the parts of the names that say of what, in lower case, because
// their spelling varies.
var limited = map[string]string{
	"cpu": "CPUs", "mem": "memory", "memory": "memory", "node": "nodes", "jobs": "running jobs", "job": "running jobs", "submitjobs": "submitted jobs",
	"submitjob": "submitted jobs", "wall": "wall time", "gres": "GPUs and other generic resources", "license": "licenses", "bb": "burst buffer",
	"energy": "energy", "billing": "billing units", "unknown": "some resource",
}
