package cli

import (
	"slices"

	"berth/internal/config/strict"

	"github.com/spf13/cobra"
)

// keyFlag is a flag that stands for a key of a task file, with the same checks.
type keyFlag struct {
	name       string
	table, key string
	kind       strict.Kind
	help       string
	// env is the help where the flag describes an environment; "" is the same.
	env string
	// means is the value for which a flag without one stands.
	means string
}

// keyFlags are all of them, in the order of the keys in a task file.
var keyFlags = []keyFlag{
	{name: "name", key: "name", kind: strict.String, help: "`NAME` of the task, in lists and of the branch"},
	{name: "workspace", table: "workspace", key: "repo", kind: strict.String, help: "work on a clone of the git repository `DIR`; changes come back as a branch"},
	{name: "base", table: "workspace", key: "base", kind: strict.String, help: "start from this `COMMIT` of the repository (default HEAD)"},
	{name: "scope", table: "workspace", key: "scope", kind: strict.List, help: "only paths like `PATTERN` may change, such as src/**; repeatable (default: all)"},
	{name: "cpus", table: "resources", key: "cpus", kind: strict.Int, help: "`NUMBER` of CPUs (default: the site's)", env: "`NUMBER` of CPUs (default 1)"},
	{name: "memory", table: "resources", key: "memory", kind: strict.String,
		help: "memory, a `SIZE` such as 8GiB; a bare number is MiB (default: the site's)", env: "memory, a `SIZE` such as 8GiB; a bare number is MiB (default 5GiB)"},
	{name: "disk", table: "resources", key: "disk", kind: strict.String,
		help: "`SIZE` of the writable layer, such as 5GiB", env: "`SIZE` of the writable layer, such as 50GiB"},
	{name: "time", table: "resources", key: "time", kind: strict.String,
		help: "time limit, a `TIME` such as 30m or 2h; a bare number is seconds (default: the site's)",
		env:  "slurm: time limit of an allocation, a `TIME` such as 4h; another allocation follows it"},
	{name: "gpus", table: "resources", key: "gpus", kind: strict.String,
		help: "GPUs on each node, `N` or TYPE:N, such as 1 or a100:2", env: "slurm: GPUs on each node, `N` or TYPE:N, such as 1 or a100:2"},
	{name: "nodes", table: "resources", key: "nodes", kind: strict.Int,
		help: "`NUMBER` of nodes (default 1)", env: "slurm: `NUMBER` of nodes; commands run on the first (default 1)"},
	{name: "ntasks", table: "resources", key: "ntasks", kind: strict.Int,
		help: "run the command this `NUMBER` of times in parallel, each in its own container (default 1)"},
	{name: "backend", table: "terminal", key: "backend", kind: strict.String,
		help: "what makes the container, `NAME`: singularity, docker, ssh, local, modal, daytona, or a program berth-backend-NAME " +
			"(default auto: singularity, else docker)"},
	{name: "image", table: "terminal", key: "image", kind: strict.String, help: "container `IMAGE`: a SIF file, or a reference such as docker://debian:12"},
	{name: "template", table: "terminal", key: "template", kind: strict.String, help: "use the template `NAME` instead of an image (berth template ls)"},
	{name: "overlay", table: "terminal", key: "overlay", kind: strict.String,
		help: "keep changed files in the overlay `NAME` (default: they are removed at the end)"},
	{name: "overlay-wait", table: "terminal", key: "overlay_wait", kind: strict.String,
		help: "wait while the overlay is in use, at most `TIME`, such as 30m (default: fail with 75)"},
	{name: "overlay-snapshot", table: "terminal", key: "overlay_snapshot", kind: strict.String,
		help: "`WHEN` to work on a snapshot of the overlay and keep it only on success: auto, always or never (default auto)"},
	{name: "keep", table: "terminal", key: "keep", means: "always", help: "keep the writable layer as overlay kept/ID (berth overlay ls --all)"},
	{name: "keep-failed", table: "terminal", key: "keep", means: "failed", help: "keep the writable layer when the job fails"},
	{name: "stage", table: "terminal", key: "stage", kind: strict.String,
		help: "`WHEN` to copy the image to the node's own disk: auto (when it is faster), always or never (default auto)",
		env:  "singularity: `WHEN` to copy the image to the node's own disk: auto (when it is faster), always or never (default auto)"},
	{name: "host", table: "terminal", key: "host", kind: strict.String, help: "backend ssh: the host, `[USER@]HOST[:PORT]` ($TERMINAL_SSH_HOST, _USER, _PORT)"},
	{name: "bind", table: "terminal", key: "bind", kind: strict.List,
		help: "mount a path of the machine that the job runs on: `SRC[:DST[:rw]]`, read-only unless rw; repeatable",
		env:  "mount a path of the machine that it runs on: `SRC[:DST[:rw]]`, read-only unless rw; repeatable"},
	{name: "env", table: "terminal", key: "env", kind: strict.List, help: "set an environment variable: `NAME` (with its value here) or NAME=VALUE; repeatable"},
	{name: "retry", key: "retry", kind: strict.String,
		help: "retry after a failure of the site, or with more memory: `on|off` (default on, with --login off); [retry] in a task file says how often"},
	{name: "resume", key: "resume", kind: strict.String,
		help: "stop the task before its time limit and continue in another attempt: `on|off` (default off); [resume] in a task file says how"},
	{name: "after", key: "after", kind: strict.List,
		help: "start after other jobs: `JOB` (when it has succeeded), any:JOB (has ended) or notok:JOB (has failed); several separated by commas"},
	{name: "partition", table: "slurm", key: "partition", kind: strict.String, help: "partition, a `NAME` such as gpu (default: the site's)"},
	{name: "account", table: "slurm", key: "account", kind: strict.String, help: "account `NAME` to charge (default: yours)"},
	{name: "qos", table: "slurm", key: "qos", kind: strict.String, help: "quality of service, a `NAME` (default: the site's)"},
	{name: "constraint", table: "slurm", key: "constraint", kind: strict.String, help: "required node `FEATURES`, as for sbatch --constraint"},
	{name: "slurm", table: "slurm", key: "extra", kind: strict.List, help: "another option of sbatch, `--option=value`; repeatable"},
}

// Of these a verb that does not run a task has some.
var (
	placeKeys = []string{"cpus", "memory", "time", "partition", "account", "qos", "constraint", "slurm"}
	envKeys   = append([]string{"disk", "stage", "bind", "gpus", "nodes"}, placeKeys...)
)

// addKeyFlags adds those with these names; nil is all.
func addKeyFlags(c *cobra.Command, names []string, env bool) {
	fs := c.Flags()
	for _, k := range keyFlags {
		if names != nil && !slices.Contains(names, k.name) {
			continue
		}
		help := k.help
		if env && k.env != "" {
			help = k.env
		}
		switch {
		case k.means != "":
			fs.Bool(k.name, false, help)
		case k.kind == strict.List:
			fs.StringArray(k.name, nil, help)
		default:
			fs.String(k.name, "", help)
		}
	}
}

// keysGiven are the flags with these names that the caller has given; nil is all.
// Of several for one key the first one counts.
func keysGiven(cmd *cobra.Command, names []string) []strict.Flag {
	var set []strict.Flag
	fs := cmd.Flags()
	for _, k := range keyFlags {
		if names != nil && !slices.Contains(names, k.name) || !fs.Changed(k.name) {
			continue
		}
		f := strict.Flag{Name: k.name, Table: k.table, Key: k.key, Kind: k.kind, Values: []string{k.means}}
		switch {
		case k.means != "":
			f.Kind = strict.String
			if on, _ := fs.GetBool(k.name); !on || slices.ContainsFunc(set, func(o strict.Flag) bool { return o.Table == k.table && o.Key == k.key }) {
				continue
			}
		case k.kind == strict.List:
			f.Values, _ = fs.GetStringArray(k.name)
		default:
			f.Values[0], _ = fs.GetString(k.name)
		}
		set = append(set, f)
	}
	return set
}
