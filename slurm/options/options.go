// Package options knows the options of sbatch: which of them berth writes
// itself, which have a key of their own, and what a user may pass through.
package options

import (
	"fmt"
	"slices"
	"strings"
)

// Program has the options, and What names them in a sentence.
const (
	Program = "sbatch"
	What    = Program + " options"
)

// owned are the options of sbatch that berth writes itself or that would take
// the job out of its hands, each with the reason.
var owned = map[string]string{
	"job-name":            "berth finds its jobs by their name",
	"output":              "berth writes the output into the job's record",
	"error":               "berth writes the output into the job's record",
	"input":               "the prompt is the input",
	"wrap":                "berth writes the job script",
	"array":               "one task is one job",
	"parsable":            "berth reads what sbatch prints",
	"quiet":               "berth reads what sbatch prints",
	"verbose":             "berth reads what sbatch prints",
	"test-only":           "nothing would be submitted; use `berth render`",
	"help":                "nothing would be submitted",
	"usage":               "nothing would be submitted",
	"version":             "nothing would be submitted",
	"wait":                "use `berth wait`",
	"export":              "berth sets the environment; use env in [terminal]",
	"export-file":         "berth sets the environment; use env in [terminal]",
	"open-mode":           "berth needs the log of every attempt",
	"requeue":             "berth decides what happens after a node failure",
	"no-requeue":          "berth decides what happens after a node failure",
	"chdir":               "berth chooses the working directory",
	"workdir":             "berth chooses the working directory",
	"uid":                 "a job runs as the one who submits it",
	"gid":                 "a job runs as the one who submits it",
	"signal":              "berth asks for the signal that it needs",
	"clusters":            "jobs on other clusters are not supported by this version of berth",
	"comment":             "berth writes the attempt's id there",
	"hold":                "a held job waits until its user releases it; use --begin for a later start",
	"kill-on-invalid-dep": "berth sets it, so that no attempt waits for ever",
	"get-user-env":        "berth sets the environment; use env in [terminal]",
	"container":           "berth starts the container; use image in [terminal]",
}

// keyed are the options that have a key.
var keyed = map[string]string{
	"cpus-per-task": "cpus in [resources]",
	"mem":           "memory in [resources]",
	"tmp":           "disk in [resources]",
	"time":          "time in [resources]",
	"gpus":          "gpus in [resources]",
	"nodes":         "nodes in [resources]",
	"ntasks":        "ntasks in [resources]",
	"partition":     "partition in [slurm]",
	"account":       "account in [slurm]",
	"qos":           "qos in [slurm]",
	"constraint":    "constraint in [slurm]",
}

// other are the rest of sbatch's long options up to Slurm 25.05 (sbatch(1)).
// An option that stands nowhere here may be a plugin's and passes.
var other = []string{
	"acctg-freq", "batch", "bb", "bbf", "begin", "cluster-constraint",
	"consolidate-segments", "container-id", "contiguous", "core-spec", "cores-per-socket",
	"cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "dependency", "distribution", "exclude", "exclusive",
	"extra", "extra-node-info", "gpu-bind", "gpu-freq", "gpus-per-node",
	"gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "ignore-pbs",
	"licenses", "mail-type", "mail-user", "mcs-label", "mem-bind",
	"mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "no-kill", "nodefile", "nodelist",
	"ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "overcommit",
	"oversubscribe", "power", "prefer", "priority", "profile", "propagate", "reboot", "reservation",
	"resv-ports", "segment", "sockets-per-node", "spread-job", "spank", "stepmgr", "switches",
	"thread-spec", "threads-per-core", "time-min", "tres-bind", "tres-per-task", "use-min-nodes",
	"wait-all-nodes", "wckey", "x11",
}

// short are sbatch's short options and the long ones for them.
var short = map[string]string{
	"-A": "account", "-a": "array", "-b": "begin", "-B": "extra-node-info", "-C": "constraint",
	"-c": "cpus-per-task", "-D": "chdir", "-d": "dependency", "-e": "error", "-F": "nodefile",
	"-G": "gpus", "-H": "hold", "-h": "help", "-i": "input", "-J": "job-name", "-k": "no-kill",
	"-L": "licenses", "-M": "clusters", "-m": "distribution", "-N": "nodes", "-n": "ntasks",
	"-O": "overcommit", "-o": "output", "-p": "partition", "-Q": "quiet", "-q": "qos",
	"-S": "core-spec", "-s": "oversubscribe", "-t": "time", "-v": "verbose", "-V": "version",
	"-W": "wait", "-w": "nodelist", "-x": "exclude",
}

// Names returns the long options of sbatch, sorted, without dashes.
func Names() []string {
	all := slices.Clone(other)
	for o := range owned {
		all = append(all, o)
	}
	for o := range keyed {
		all = append(all, o)
	}
	slices.Sort(all)
	return all
}

// Full returns the option that sbatch would take a name for: itself when it
// is one or begins none, and "" when it is an abbreviation, which getopt_long(3)
// accepts and which would let --outp past a check for --output.
func Full(name string) string {
	all := Names()
	if slices.Contains(all, name) {
		return name
	}
	if slices.ContainsFunc(all, func(o string) bool { return strings.HasPrefix(o, name) }) {
		return ""
	}
	return name
}

// Own tells whether sbatch could take a name for an option that berth writes
// itself, also where the name abbreviates it.
func Own(name string) bool {
	for o := range owned {
		if strings.HasPrefix(o, name) {
			return true
		}
	}
	return false
}

// Split reads "--option" or "--option=value"; ok is that it has that form.
func Split(word string) (name, value string, ok bool) {
	name, value, _ = strings.Cut(word, "=")
	name, ok = strings.CutPrefix(name, "--")
	ok = ok && name != "" && name[0] >= 'a' && name[0] <= 'z' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	return name, value, ok
}

// Complaint says why a user may not pass a word through; "" is that it may be.
func Complaint(word string) string {
	name, _, ok := Split(word)
	if !ok {
		return formComplaint(word)
	}
	full := Full(name)
	switch {
	case full == "":
		return fmt.Sprintf("must not abbreviate an option, found %q: write its name in full", word)
	case owned[full] != "":
		return fmt.Sprintf("must not set --%s: %s", full, owned[full])
	case keyed[full] != "":
		return fmt.Sprintf("must not set --%s: use %s", full, keyed[full])
	}
	return ""
}

// formComplaint says what is wrong with something that is not --option=value.
func formComplaint(word string) string {
	if strings.HasPrefix(word, "--") {
		first, value, spaced := strings.Cut(word, " ")
		if _, _, ok := Split(first); ok && spaced && !strings.Contains(first, "=") {
			return fmt.Sprintf("must have the form --option=value: write %q", first+"="+strings.TrimSpace(value))
		}
		return fmt.Sprintf("must have the form --option or --option=value, found %q", word)
	}
	switch long := short[word[:min(len(word), 2)]]; {
	case owned[long] != "":
		return fmt.Sprintf("must not set %s (--%s): %s", word[:2], long, owned[long])
	case keyed[long] != "":
		return fmt.Sprintf("must not set %s (--%s): use %s", word[:2], long, keyed[long])
	case long != "":
		return fmt.Sprintf("is a short option, found %q: write the long one, --%s", word, long)
	case strings.HasPrefix(word, "-"):
		return fmt.Sprintf("must have the form --option or --option=value, found %q", word)
	}
	return fmt.Sprintf("must begin with --, found %q", word)
}

// Long is the long option for a short one with its dash, without dashes; "" is none.
func Long(of string) string { return short[of] }

// Why says why a name, without dashes, is not for users; "" is that it is, or unknown.
func Why(name string) string { return owned[name] }
