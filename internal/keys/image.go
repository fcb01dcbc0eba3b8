package keys

import (
	"regexp"

	"berth/internal/strict"
)

var uri = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// Image reads the path of a SIF. Pulling is not built yet, and a URI would
// otherwise be taken for a path.
func Image(v strict.Value) string {
	if v.Is(strict.String) {
		if s, _ := v.Raw(); uri.MatchString(s) {
			v.Failf("apptainer pull image.sif "+shown(s), "is a URI, which is not supported by this version of berth: pull it first and name the SIF file")
			return ""
		}
	}
	return v.Path()
}

// shown is a URI that may stand in a command of a hint, or a placeholder.
func shown(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9+.:/@_-]+$`).MatchString(s) {
		return s
	}
	return "URI"
}
