package jobs

import (
	"fmt"
	"time"
)

// How soon and how often [MeterLines] tells.
const (
	meterAfter = time.Second
	meterEvery = 10 * time.Second
)

// MeterLines tells what a meter shows ([OpenPlace]) in lines of their own, to whom nothing can
// be written over: what takes more than a second, and again every 10 s. The meter is of one
// goroutine at a time.
func MeterLines(tell func(line string)) func(what string, done, of int64) {
	return meterLines(time.Now, tell)
}

func meterLines(now func() time.Time, tell func(line string)) func(what string, done, of int64) {
	var last string
	var next time.Time
	return func(what string, done, of int64) {
		t := now()
		if what != last {
			last, next = what, t.Add(meterAfter)
		}
		if what == "" || t.Before(next) {
			return
		}
		next = t.Add(meterEvery)
		whole := func(n int64) Bytes { return Bytes(n &^ (1<<20 - 1)) }
		if of > 0 {
			tell(fmt.Sprintf("%s: %v of %v", what, whole(done), whole(of)))
		} else {
			tell(fmt.Sprintf("%s: %v so far", what, whole(done)))
		}
	}
}
