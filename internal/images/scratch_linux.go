package images

import (
	"context"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
)

func scratchBase(profile string, getenv func(string) string) (string, error) {
	return container.ScratchBase(profile, getenv)
}

// newScratch makes a directory with "w" and "program" in it, after what killed
// processes have left was removed.
func newScratch(base, tail, forDir string) (dir string, err error) {
	self := lease.Self()
	container.SweepScratch(context.Background(), base, self)
	s, err := container.NewScratch(base, tail, self, forDir)
	if err != nil {
		return "", err
	}
	return s.Dir, nil
}
