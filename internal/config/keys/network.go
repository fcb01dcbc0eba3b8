package keys

import (
	"berth/internal/config/strict"
	"berth/jobs"
)

// networkMode reads a mode of a network; "host" is another word for open.
func networkMode(v strict.Value) string {
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
