//go:build !linux

package overlay

import (
	"fmt"
	"io"

	"berth/jobs"
)

// MountMain says that only Linux has overlays.
func MountMain(_ []string, stderr io.Writer) int {
	_, _ = fmt.Fprintln(stderr, "overlays need Linux")
	return jobs.CodeConfig
}
