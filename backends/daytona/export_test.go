package daytona

import "time"

// Hurry shortens the waits that no one has asked for.
func Hurry(d time.Duration) { unit = d }

// Unhurried gives what is taken back all the time that it needs, however slow the
// machine is.
func Unhurried() { cleanupTime = 2 * time.Minute }
