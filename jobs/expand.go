package jobs

import (
	"regexp"
	"strings"
	"sync"
)

var variable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)
})

// Expand replaces $NAME and ${NAME} by what getenv says, and nothing else that
// a shell would. missing is a name that is not set, or "".
func Expand(word string, getenv func(string) string) (out, missing string) {
	out = variable().ReplaceAllStringFunc(word, func(w string) string {
		name := strings.Trim(w[1:], "{}")
		v := getenv(name)
		if v == "" && missing == "" {
			missing = name
		}
		return v
	})
	return out, missing
}
