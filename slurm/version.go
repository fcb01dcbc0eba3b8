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
