package store

import (
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
)

// A job that has often come too early has more attempts than may fail, and the
// copy of its record takes them all.
func TestReceiveAttempt(t *testing.T) {
	r := create(t, open(t))
	next := func(n int) jobs.AttemptInfo {
		id, err := ids.New()
		must(t, err)
		return jobs.AttemptInfo{Version: 1, ID: id, Number: n, Name: jobs.JobName("fix", id), Created: time.Now().UTC()}
	}
	for n := 2; n <= jobs.MostAttempts+1; n++ {
		won, err := SetDecision(AttemptDir(r.Dir, n-1), jobs.Decision{Version: 1, Verb: jobs.VerbRetry, Class: jobs.ClassWaiting})
		if err != nil || !won {
			t.Fatal(won, err)
		}
		if n <= jobs.MostAttempts {
			_, _, err = Begin(r.Dir, next(n), "")
			must(t, err)
		}
	}
	must(t, ReceiveAttempt(r.Dir, next(jobs.MostAttempts+1), ""))
	for _, n := range []int{1, jobs.MostAttempts + 1, jobs.MostAttempts + 2, jobs.MostAttempts + jobs.MostWaits + 1} {
		if err := ReceiveAttempt(r.Dir, next(n), ""); err == nil {
			t.Errorf("another attempt %d was taken", n)
		}
	}
}
