package sweep

import (
	"testing"
	"time"

	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// What is tried again: as often as its class allows, while attempts are left, and with
// more of what was too little, as long as there is more.
func TestAgain(t *testing.T) {
	spec := Spec{Request: command.Request{Memory: "4GiB"}, Limit: time.Hour,
		Worker: &jobs.Place{Resources: jobs.Resources{Memory: 8 * jobs.GiB, Time: 3 * time.Hour}},
		Retry:  &jobs.Retry{Attempts: 4, Task: 1, Codes: []int{75, 137}, Memory: 9, Time: 9, Node: 2}}
	for _, c := range []struct {
		r      journal.Record
		want   bool
		memory jobs.Bytes
		time   time.Duration
	}{
		{journal.Record{State: journal.Failed, Code: 75}, true, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.Failed, Code: 1}, false, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.Killed, Signal: 9}, true, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.Failed, Code: 75, Tries: journal.Tries{Task: 1}}, false, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.NoStart, Code: 127}, false, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.OK}, false, 4 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.OverMemory}, true, 6 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.OverMemory, Tries: journal.Tries{Memory: 1}}, true, 8 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.OverMemory, Tries: journal.Tries{Memory: 2}}, false, 8 * jobs.GiB, time.Hour},
		{journal.Record{State: journal.TimedOut}, true, 4 * jobs.GiB, 2 * time.Hour},
		{journal.Record{State: journal.TimedOut, Tries: journal.Tries{Time: 1}}, true, 4 * jobs.GiB, 3 * time.Hour},
		{journal.Record{State: journal.TimedOut, Tries: journal.Tries{Time: 2}}, false, 4 * jobs.GiB, 3 * time.Hour},
		{journal.Record{State: journal.TimedOut, Tries: journal.Tries{Task: 1, Memory: 1, Time: 1}}, false, 6 * jobs.GiB, 2 * time.Hour},
		{journal.Record{State: journal.TimedOut, Deaths: 3}, false, 4 * jobs.GiB, time.Hour},
	} {
		n, again := spec.Again(command.Task{Number: 1}, c.r)
		if again != c.want || spec.ShareOf(command.Task{}, n).Memory != c.memory || spec.LimitOf(n) != c.time {
			t.Errorf("%+v: %v %+v, %v, %v", c.r, again, n, spec.ShareOf(command.Task{}, n).Memory, spec.LimitOf(n))
		}
	}
	if _, again := (&Spec{}).Again(command.Task{}, journal.Record{State: journal.Failed}); again {
		t.Error("a sweep that says nothing tries again")
	}
	if n := (&Spec{}).MostDeaths(journal.Tries{}); n != 3 {
		t.Errorf("%d deaths", n)
	}
	if n := spec.MostDeaths(journal.Tries{Task: 2}); n != 2 {
		t.Errorf("%d deaths of one that was tried twice", n)
	}
	if n := (&Spec{Retry: &jobs.Retry{}}).MostDeaths(journal.Tries{}); n != 1 {
		t.Errorf("%d deaths without retries", n)
	}
}
