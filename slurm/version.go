package slurm

import (
	"strconv"
	"strings"
)

// atLeast compares "MAJOR.MINOR..." with a wanted release; an unknown version
// is never enough.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	maj, err1 := strconv.Atoi(parts[0])
	mnr, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (maj > major || maj == major && mnr >= minor)
}

// exportValue is what keeps the submitter's environment out of the job. NIL
// (23.02 and newer, sbatch(1), --export) adds nothing; NONE first starts a
// login shell of the user on the node, which can be slow. An sbatch that is
// too old for NIL takes it for the name of a variable to export, and then does
// what NONE does (tried with 22.05); so NIL is right for an unknown version.
func exportValue(version string) string {
	if version != "" && !atLeast(version, 23, 2) {
		return "NONE"
	}
	return "NIL"
}

// parseVersion reads "slurm 24.11.5" or, from Debian, "slurm-wlm 24.11.5", on
// a line of its own between a site's banners.
func parseVersion(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		w := strings.Fields(line)
		if len(w) == 2 && strings.HasPrefix(w[0], "slurm") && w[1][0] >= '0' && w[1][0] <= '9' {
			return w[1]
		}
	}
	return ""
}
