package cli

import "time"

// SecondWithin has a second ctrl-C waited for so long.
func SecondWithin(d time.Duration) { second = d }
