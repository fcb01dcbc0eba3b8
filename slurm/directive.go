package slurm

import (
	"fmt"
	"strings"

	"berth/jobs"
)

// directive is an option as it stands behind "#SBATCH".
func directive(o option) string {
	if o.value == "" {
		return "--" + o.name
	}
	return "--" + o.name + "=" + quoted(o.value)
}

// quoted returns value as sbatch reads it back from an "#SBATCH" line. That
// is not the shell's syntax: sbatch knows both kinds of quotes and lets a
// backslash take the next character literally everywhere, also inside single
// quotes (get_argument in sbatch's opt.c; tried with 22.05, 24.11 and 26.05).
func quoted(value string) string {
	if value != "" && strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

func plain(r rune) bool {
	return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-;&[]()*!", r))
}

// checkComments refuses a line for people that sbatch would take for a
// directive: it reads every "#SBATCH" and "#PBS" at the start of a line before
// the first command.
func checkComments(lines []string) error {
	for _, line := range lines {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "SBATCH") || strings.HasPrefix(text, "PBS") {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("comment %q reads like a directive", line)}
		}
	}
	return nil
}
