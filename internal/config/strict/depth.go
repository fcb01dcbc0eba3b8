package strict

import (
	"berth/internal/sys/pattern"
)

// maxDepth is how many brackets may be open at once. The time of the YAML parser
// grows with the square of the depth, so a small hostile file could hold a
// client for a minute; and the readers of both languages call themselves for
// each level. Brackets in strings count too: no file that people write comes
// near.
const maxDepth = 200

// dotted is a TOML key of absurdly many parts, each of which is a level too. So
// large an expression is compiled when it is needed, and not at every start.
var dotted = pattern.Lazy(`(?:[A-Za-z0-9_"'-]+[ \t]*\.[ \t]*){200}`)

func checkDepth(file, s string) error {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > maxDepth {
			return refuse(file, lineAt(s, i), "", "more than %d brackets are open", maxDepth)
		}
	}
	if at := dotted().FindStringIndex(s); at != nil {
		return refuse(file, lineAt(s, at[0]), "", "a key has too many parts")
	}
	return nil
}
