//go:build !linux

package disk

import (
	"errors"
	"os"
)

// Clone is Linux's.
func Clone(_, _ *os.File) error { return errors.ErrUnsupported }
