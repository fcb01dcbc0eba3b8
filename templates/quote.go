package templates

import "al.essio.dev/pkg/shellescape"

// Quote returns word as bash reads it back: unchanged when it is plain,
// single-quoted otherwise. The words that the runner fills in ([jobs.PlaceholderImage]
// and its like) stay bare so that people can read them; bash expands braces
// only around a comma or "..", so such a word is itself (bash(1), "Brace
// Expansion").
func Quote(word string) string {
	if isHole(word) {
		return word
	}
	return shellescape.Quote(word)
}
