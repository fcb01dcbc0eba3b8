package local_test

import (
	"slices"
	"testing"

	"berth/backends/local"
	"berth/jobs"
)

func TestBackend(t *testing.T) {
	var b jobs.Backend = local.Backend{}
	if b.Name() != jobs.BackendLocal || b.Level() != jobs.LevelNone {
		t.Errorf("%s, %s", b.Name(), b.Level())
	}
	if c := b.Check(t.Context()); c.Health != jobs.Healthy || c.Reason == "" {
		t.Errorf("%+v", c)
	}
	argv, err := b.Argv(jobs.Invocation{Guest: "/bin/berth-node", Place: jobs.Place{Image: "/x.sif"}}, []string{"guest", "--x"})
	if err != nil || !slices.Equal(argv, []string{"/bin/berth-node", "guest", "--x"}) {
		t.Errorf("%q, %v", argv, err)
	}
}
