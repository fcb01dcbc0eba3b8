package keys

import (
	"strings"

	"berth/internal/config/strict"
	"berth/internal/images"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

var uri = pattern.Lazy(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// Image reads the path of a SIF, or a reference to an image in a registry or an
// archive.
func Image(v strict.Value) string {
	if v.Is(strict.String) {
		s, _ := v.Raw()
		// It says that the file is on this machine, wherever the job runs.
		if file, ok := strings.CutPrefix(s, "local:"); ok && file != "" {
			return v.Resolve(file)
		}
		if images.IsTagged(s) {
			return "docker://" + s
		}
		if images.IsReference(s) {
			ref, err := images.Settle(s)
			if err != nil {
				v.Fail(err)
				return ""
			}
			return ref
		}
		if uri().MatchString(s) {
			v.Failf("", "is no source of images that berth knows: docker://, oras://, library://, docker-archive:, or the path of a SIF")
			return ""
		}
	}
	return v.Path()
}

// Stage reads when a copy of the image is made on the node's own disk.
func Stage(v strict.Value) string {
	return v.OneOf(jobs.StageAuto, jobs.StageAlways, jobs.StageNever)
}
