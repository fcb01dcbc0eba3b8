package replica

import (
	"testing"

	"berth/jobs"
)

// The stream of the artifacts is bounded by what the record says that there are,
// however much that is, and for an earlier record by what its runner could collect.
func TestArtifactBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exit        jobs.ExitRecord
		least, most int64
	}{
		{jobs.ExitRecord{Artifacts: []string{"model"}}, 4 << 30, 5 << 30},
		{jobs.ExitRecord{ArtifactFiles: 1, ArtifactBytes: 800 << 30}, 800 << 30, 801 << 30},
		{jobs.ExitRecord{ArtifactFiles: 2, ArtifactBytes: 10}, 10 + 2*1024, 4 << 20},
	} {
		if got := artifactBytes(&c.exit); got < c.least || got > c.most {
			t.Errorf("%+v: %d bytes", c.exit, got)
		}
	}
}
