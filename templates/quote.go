package templates

import (
	"strings"

	"al.essio.dev/pkg/shellescape"
)

// Quote returns word as bash reads it back: unchanged when it is plain,
// single-quoted otherwise. The words that the runner fills in ([jobs.HoleImage]
// and its like) stay bare so that people can read them; bash expands braces
// only around a comma or "..", so such a word is itself (bash(1), "Brace
// Expansion").
func Quote(word string) string {
	if isHole(word) {
		return word
	}
	return shellescape.Quote(word)
}

// Directive returns value as sbatch reads it back from an "#SBATCH" line. That
// is not the shell's syntax: sbatch knows both kinds of quotes and lets a
// backslash take the next character literally everywhere, also inside single
// quotes (get_argument in sbatch's opt.c; tried with 22.05, 24.11 and 26.05).
func Directive(value string) string {
	if value != "" && strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

func plain(r rune) bool {
	return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-;&[]()*!", r))
}
