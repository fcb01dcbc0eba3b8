package strict

import (
	"fmt"
	"strings"
)

// Nearest returns the word that was most likely meant, or "".
func Nearest(word string, words []string) string {
	word = strings.ToLower(word)
	norm := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	best, least := "", 0
	for _, w := range words {
		if norm(w) == norm(word) {
			return w
		}
		d := distance(word, w)
		if len(word) >= 3 && strings.HasPrefix(w, word) {
			d = 1 // a cut-off word, such as mem
		}
		if d <= (max(len(word), len(w))+1)/3 && (best == "" || d < least) {
			best, least = w, d
		}
	}
	return best
}

// DidYouMean is ": did you mean "x"?", or "" when nothing is near.
func DidYouMean(word string, words []string) string {
	if near := Nearest(word, words); near != "" && near != word {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// Slip returns the word that differs from this one by no more than so many
// slips of the finger, or "": for words that most likely are no mistake at all.
func Slip(word string, words []string, most int) string {
	best := ""
	for _, w := range words {
		if d := distance(word, w); d <= most && d > 0 {
			best, most = w, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and exchanges of
// neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > maxShown || len(b) > maxShown {
		return len(a) + len(b)
	}
	var rows [3][]int
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		older, old, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = old, row, older
	}
	return rows[1][len(b)]
}

// orList joins words as people do: "a", "b" or "c".
func orList(words []string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", w)
	}
	return b.String()
}
