package keys

import (
	"berth/internal/config/strict"
	"berth/jobs"
)

// networkWords are the modes of a network, and the word that Hermes has for the open one.
var networkWords = append([]string{"host"}, jobs.NetworkModes...)

// NetworkMode reads a mode of a network; "host" is another word for open.
func NetworkMode(v strict.Value) string {
	if raw, _ := v.Raw(); raw == "host" {
		return jobs.NetworkOpen
	}
	return v.OneOf(jobs.NetworkModes...)
}

// reachable reads a list of what can be reached. An empty one is nothing, and not
// the same as none.
func reachable(v strict.Value) []string {
	out := []string{}
	for _, item := range v.Items("names") {
		if s := item.Text(); s != "" {
			out = append(out, s)
		}
	}
	return out
}
