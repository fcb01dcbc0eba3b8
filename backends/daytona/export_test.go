package daytona

import "time"

// Hurry shortens the waits that nobody has asked for.
func Hurry(d time.Duration) { unit = d }

// Unhurried gives what is taken back all the time that it needs, however slow the
// machine is.
func Unhurried() { takeBackTime = 2 * time.Minute }
