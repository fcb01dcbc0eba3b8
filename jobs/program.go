package jobs

import (
	"slices"
	"strings"
)

// IsProgram tells whether a word can name a backend that is a program of its
// own: it names a file, a table and variables then. Words that mean something
// else already cannot.
func IsProgram(word string) bool {
	if isBackendWord(word) || slices.Contains(Schedulers(), word) || word == "" ||
		len(word) > 31 || word[0] < 'a' || word[0] > 'z' || strings.HasSuffix(word, "-") {
		return false
	}
	return !strings.ContainsFunc(word, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}
