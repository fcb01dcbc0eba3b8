// Package pattern has regular expressions that are compiled when they are first
// used. Every command and every program inside a container is a new process, and
// would compile some fifty of them to use two.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that compiles the expression once. One that is wrong
// panics there, as regexp.MustCompile does.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
