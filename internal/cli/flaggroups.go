package cli

import (
	"slices"
	"strings"

	"berth/internal/config/keys"

	"github.com/spf13/pflag"
)

type flagGroup struct {
	title string
	names []string
}

// flagGroups are the parts in which the help of a command with many flags lists
// them, whichever command it is. A flag in none comes first, under "Flags:", but one of
// a place's, which is in the first group.
var flagGroups = []flagGroup{
	{"The place it runs in", []string{
		"image", "from", "template", "overlay", "overlay-wait", "overlay-snapshot", "keep", "keep-failed", "discard", "discard-after",
		"per-task-workspace", "disk", "bind",
		"mount-cwd", "network", "fakeroot", "gpu", "user", "volume", "stage", "offline", "set", "forward", "credential", "lifetime",
	}},
	{"What it works on", []string{"workspace", "base", "scope"}},
	{"What it may use", []string{"cpus", "memory", "gpus", "nodes", "ntasks", "time", "pids", "limits"}},
	{"Where it is", []string{"backend", "scheduler", "target", "profile", "host", "login", "ssh-key", "ssh-option"}},
	{"Slurm", []string{"account", "partition", "qos", "constraint", "slurm", "immediate"}},
	{"When, and how often", []string{"after", "idempotency-key", "retry", "resume"}},
}

// manyFlags is from how many on they are listed in groups.
const manyFlags = 20

// listFlags is the part of a command's help about its own flags.
func listFlags(fs *pflag.FlagSet) string {
	count := 0
	fs.VisitAll(func(f *pflag.Flag) { count++ })
	if count < manyFlags {
		return "Flags:\n" + fs.FlagUsages()
	}
	parts := make([]*pflag.FlagSet, len(flagGroups)+1)
	for i := range parts {
		parts[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	fs.VisitAll(func(f *pflag.Flag) {
		i := slices.IndexFunc(flagGroups, func(g flagGroup) bool { return slices.Contains(g.names, f.Name) })
		if i < 0 && slices.ContainsFunc(keys.Fields, func(k keys.Field) bool { return k.Flag == f.Name }) {
			i = 0
		}
		parts[i+1].AddFlag(f)
	})
	var b strings.Builder
	for i, p := range parts {
		if !p.HasAvailableFlags() {
			continue
		}
		title := "Flags"
		if i > 0 {
			title = flagGroups[i-1].title
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(title + ":\n" + p.FlagUsages())
	}
	return b.String()
}
