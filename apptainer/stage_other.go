//go:build !linux

package apptainer

import (
	"context"
	"errors"

	"berth/internal/images"
	"berth/jobs"
)

// Stage uses an image where it is: containers of this kind run on Linux alone.
func (s Stager) Stage(_ context.Context, path, _ string, _ Runs) (*Used, error) {
	return &Used{ImageUse: jobs.ImageUse{Way: jobs.ImageInPlace, Path: path, Node: images.Hostname(), Why: "this is no Linux"}}, nil
}

func (o *opener) unpackBase() (string, error) {
	return "", errors.New("this is no Linux")
}
