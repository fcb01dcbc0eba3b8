package task

import (
	"berth/internal/config/strict"
	"berth/jobs"
)

// Binds reads a list of "SOURCE:DESTINATION".
func Binds(v strict.Value) []jobs.Mount { return binds(v) }

// BadVariable tells why a word cannot name a variable of a task; "" is that it
// can.
func BadVariable(name string) string {
	switch owner := envOwner(name); {
	case !envName().MatchString(name):
		return "is not made of letters, digits and underscores, a digit not first"
	case owner != "":
		return "begins with " + owner + ": such names belong to berth and its container program"
	}
	return ""
}
