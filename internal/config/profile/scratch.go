package profile

import (
	"path"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
)

var (
	expansion   = pattern.Lazy(`\$([A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\})`)
	scratchForm = pattern.Lazy(`^[A-Za-z0-9._/+@=-]*$`)
)

// scratch reads a directory of the node. The runner expands its variables
// there, and nothing else that a shell would; so only what means the same to
// both is accepted: plain path characters and variables.
func scratch(v strict.Value) string {
	s := v.Text()
	if s == "" {
		return ""
	}
	plain := expansion().ReplaceAllString(s, "")
	switch {
	case strings.Contains(plain, "$"):
		v.Failf("", "may hold only $NAME and ${NAME} with an upper-case name, found %q", s)
	case !scratchForm().MatchString(plain):
		v.Failf("", "may hold only letters, digits, . _ / + @ = - and variables, found %q", s)
	case s[0] != '/' && s[0] != '$':
		v.Failf("", "must begin with / or a variable, found %q", s)
	case path.Clean(s) == "/":
		v.Failf("", `is "/": name a directory that jobs may fill`)
	case hasDotDot(s):
		v.Failf("", "must not hold .., found %q", s)
	default:
		return s
	}
	return ""
}

func hasDotDot(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
