package cli

import "time"

// SecondWithin has a second ctrl-C waited for so long.
func SecondWithin(d time.Duration) { second = d }

// CompleteFor is how long the search for completions may take.
func CompleteFor(d time.Duration) { completeFor = d }
