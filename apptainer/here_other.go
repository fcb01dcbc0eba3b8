//go:build !linux

package apptainer

import (
	"errors"

	"berth/jobs"
)

func scratchBase(string) (string, error) { return "", errors.New("containers need Linux") }

func jobMemory() (limit jobs.Bytes, ok bool) { return 0, false }
