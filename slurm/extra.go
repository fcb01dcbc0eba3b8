package slurm

import (
	"fmt"
	"strings"

	"berth/jobs"
	"berth/slurm/options"
)

// extras splits the user's "--option=value" words. A dependency is handed back
// apart, to stand behind singleton.
func extras(words []string) (opts []option, dependency string, err error) {
	for _, w := range words {
		if err := jobs.CheckText("extra sbatch option", w); err != nil {
			return nil, "", err
		}
		name, value, ok := options.Split(w)
		switch {
		case !ok:
			return nil, "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("extra sbatch option %q is not of the form --option=value", w)}
		case options.Own(name):
			return nil, "", &jobs.Error{Kind: jobs.KindUsage, Msg: "extra sbatch option --" + name + " is berth's own",
				Hint: "remove it from the extra options"}
		case name == "dependency" && strings.Contains(value, "?"):
			return nil, "", &jobs.Error{Kind: jobs.KindUsage,
				Msg: "alternatives (\"?\") in --dependency cannot be combined with berth's own singleton"}
		case name == "dependency":
			dependency += "," + value
		default:
			opts = append(opts, option{name, value})
		}
	}
	return opts, dependency, nil
}
