package cli

import (
	"slices"
	"strconv"
	"sync"

	"berth/internal/config/keys"
	"berth/internal/config/strict"

	"github.com/spf13/cobra"
)

// keyFlag is a flag that stands for a key of a task file, with the same checks.
type keyFlag struct {
	name       string
	table, key string
	kind       strict.Kind
	help       string
	// means is the value for which a flag without one stands.
	means string
}

// keyFlags are all of them: those that are not of a place, and those that are.
var keyFlags = sync.OnceValue(func() []keyFlag {
	return slices.Concat(taskKeyFlags, placeFlags(func(f *keys.Field) string { return f.Help }))
})

// envKeyFlags are those of an environment.
var envKeyFlags = sync.OnceValue(func() []keyFlag {
	return placeFlags(func(f *keys.Field) string { return f.Env })
})

// taskKeyFlags are those that are not of a place.
var taskKeyFlags = []keyFlag{
	{name: "name", key: "name", kind: strict.String, help: "`NAME` of the task, in lists and of the branch"},
	{name: "label", key: "labels", kind: strict.List, help: "mark the job with the word `NAME`, for berth ps --label and notices; repeatable"},
	{name: "workspace", table: "workspace", key: "repo", kind: strict.String,
		help: "work on a clone of the git repository `DIR`; changes come back as a branch"},
	{name: "base", table: "workspace", key: "base", kind: strict.String, help: "start from this `COMMIT` of the repository (default HEAD)"},
	{name: "scope", table: "workspace", key: "scope", kind: strict.List,
		help: "only paths like `PATTERN` may change, such as src/**; repeatable (default: all)"},
	{name: "template", table: "terminal", key: "template", kind: strict.String, help: "use the template `NAME` instead of an image (berth template ls)"},
	{name: "keep", table: "terminal", key: "keep", means: "always",
		help: "keep what the job leaves: its layer as overlay kept/ID; with docker and bwrap, as environment kept-ID"},
	{name: "keep-failed", table: "terminal", key: "keep", means: "failed", help: "the same, when the job fails"},
	{name: "credential", key: "credentials", kind: strict.List,
		help: "use the key `NAME` of the configuration, which the task never sees: anthropic, openai, github and others; repeatable"},
	{name: "retry", key: "retry", kind: strict.String,
		help: "retry after a failure of the site, or with more memory: `on|off` (default on, with --login off); [retry] in a task file says how often"},
	{name: "resume", key: "resume", kind: strict.String,
		help: "stop the task before its time limit and continue in another attempt: `on|off` (default off); [resume] in a task file says how"},
	{name: "after", key: "after", kind: strict.List,
		help: "start after other jobs: `JOB` (when it has succeeded), any:JOB (has ended) or notok:JOB (has failed); several separated by commas"},
}

// placeFlags are the flags of the fields of a place for which help has words.
func placeFlags(help func(*keys.Field) string) (out []keyFlag) {
	out = make([]keyFlag, 0, len(keys.Fields))
	for i := range keys.Fields {
		if f := &keys.Fields[i]; help(f) != "" {
			out = append(out, keyFlag{name: f.Flag, table: f.Table(), key: f.Key(), kind: f.Kind(), help: help(f)})
		}
	}
	return out
}

// placeKeys are those of them that a verb has that does not run a task.
var placeKeys = []string{"cpus", "memory", "time", "partition", "account", "qos", "constraint", "slurm"}

// addKeyFlags adds those of a list with these names; nil is all.
func addKeyFlags(c *cobra.Command, flags []keyFlag, names []string) {
	fs := c.Flags()
	for _, k := range flags {
		if names != nil && !slices.Contains(names, k.name) {
			continue
		}
		switch {
		case k.means != "" || k.kind == strict.Bool:
			fs.Bool(k.name, false, k.help)
		case k.kind == strict.List:
			fs.StringArray(k.name, nil, k.help)
		default:
			fs.String(k.name, "", k.help)
		}
	}
}

// keysGiven are those of them that the caller has given. Of several for one key the
// first one counts.
func keysGiven(cmd *cobra.Command, flags []keyFlag, names []string) []strict.Flag {
	var set []strict.Flag
	fs := cmd.Flags()
	for _, k := range flags {
		if names != nil && !slices.Contains(names, k.name) || !fs.Changed(k.name) {
			continue
		}
		f := strict.Flag{Name: k.name, Table: k.table, Key: k.key, Kind: k.kind, Values: []string{k.means}}
		switch {
		case k.means != "":
			f.Kind = strict.String
			if on, _ := fs.GetBool(k.name); !on ||
				slices.ContainsFunc(set, func(o strict.Flag) bool { return o.Table == k.table && o.Key == k.key }) {
				continue
			}
		case k.kind == strict.Bool:
			on, _ := fs.GetBool(k.name)
			f.Values[0] = strconv.FormatBool(on)
		case k.kind == strict.List:
			f.Values, _ = fs.GetStringArray(k.name)
		default:
			f.Values[0], _ = fs.GetString(k.name)
		}
		set = append(set, f)
	}
	return set
}
