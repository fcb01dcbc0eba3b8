package slurm

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// own are the options that berth sets itself or that change what a submission
// is; they cannot be given as extra options.
var own = []string{
	"job-name", "comment", "chdir", "output", "error", "input", "open-mode", "requeue", "no-requeue", "kill-on-invalid-dep",
	"export", "export-file", "get-user-env", "array", "wrap", "parsable", "signal", "test-only", "wait", "hold", "clusters", "cluster", "quiet", "help", "usage", "version",
}

var extraPattern = pattern.Lazy(`^--([a-z][a-z0-9-]*)(?:=(.*))?$`)

// extras splits the user's "--option=value" words. A dependency is handed back
// apart, to stand behind singleton.
func extras(words []string) (opts []option, dependency string, err error) {
	for _, w := range words {
		if err := jobs.CheckText("extra sbatch option", w); err != nil {
			return nil, "", err
		}
		m := extraPattern().FindStringSubmatch(w)
		switch {
		case m == nil:
			return nil, "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("extra sbatch option %q is not of the form --option=value", w)}
		case slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, m[1]) }): // getopt takes abbreviations
			return nil, "", &jobs.Error{Kind: jobs.KindUsage, Msg: "extra sbatch option --" + m[1] + " is berth's own", Hint: "remove it from the extra options"}
		case m[1] == "dependency" && strings.Contains(m[2], "?"):
			return nil, "", &jobs.Error{Kind: jobs.KindUsage, Msg: "alternatives (\"?\") in --dependency cannot be combined with berth's own singleton"}
		case m[1] == "dependency":
			dependency += "," + m[2]
		default:
			opts = append(opts, option{m[1], m[2]})
		}
	}
	return opts, dependency, nil
}
