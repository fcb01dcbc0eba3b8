//go:build !failpoint

package failpoint

import "time"

// Hit is a point that a test may kill the process at.
func Hit(string) {}

// File is a point of the writing of a file: its name is that of the file, a
// colon, and the step.
func File(path, step string) {}

// Now is time.Now, which a test may put forward.
func Now() time.Time { return time.Now() }
