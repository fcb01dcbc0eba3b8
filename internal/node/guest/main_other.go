//go:build !linux

package guest

import (
	"fmt"
	"io"
	"os"
)

// Main says that there is no guest for this system.
func Main(_ []string, _, _ *os.File, stderr io.Writer) int {
	_, _ = fmt.Fprintln(stderr, "berth guest: runs on Linux only")
	return 2
}

// IsScript is false: nothing is built on this system.
func IsScript([]string) bool { return false }

// ScriptMain says that there are no builds on this system.
func ScriptMain(_ []string, stderr io.Writer) int { return Main(nil, nil, nil, stderr) }
