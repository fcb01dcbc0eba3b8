package task

import (
	"time"

	"berth/internal/config/strict"
	"berth/jobs"
)

// Size reads a size such as "512MiB", or a whole number of MiB.
func Size(v strict.Value) jobs.Bytes { return size(v) }

// Duration reads a duration such as "2h", or a whole number of seconds.
func Duration(v strict.Value) time.Duration { return duration(v) }

// GPUs reads a number, or "TYPE:NUMBER".
func GPUs(v strict.Value) string { return gpus(v) }

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
