//go:build !linux

package overlay

import (
	"errors"
	"os"
	"time"
)

func exchange(_, _ string) error { return errors.ErrUnsupported }

func makeNode(*os.Root, string, uint32) error { return errors.ErrUnsupported }

func setLinkTime(*os.Root, string, time.Time) error { return nil }
