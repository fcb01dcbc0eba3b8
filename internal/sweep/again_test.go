package sweep

import (
	"math"
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
		{journal.Record{State: journal.TimedOut, Tries: journal.Tries{Time: 1}}, true, 4 * jobs.GiB, 3*time.Hour - 2*time.Minute},
		{journal.Record{State: journal.TimedOut, Tries: journal.Tries{Time: 2}}, false, 4 * jobs.GiB, 3*time.Hour - 2*time.Minute},
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

// What a plan says at most counts each try, with the time that it may have.
func TestMostTime(t *testing.T) {
	worker := &jobs.Place{Resources: jobs.Resources{Time: 3*time.Hour + 2*time.Minute}} // of which it keeps two
	for _, c := range []struct {
		retry  *jobs.Retry
		memory string
		hours  float64
		tries  int
	}{
		{&jobs.Retry{}, "", 1, 1},
		{nil, "", 3, 3},
		{jobs.DefaultRetry(), "", 3, 3},                                         // node
		{jobs.DefaultRetry(), "1GiB", 5, 5},                                     // and memory
		{&jobs.Retry{Attempts: 6, Time: 5}, "", 1 + 2 + 3, 3},                   // no more than its worker has
		{&jobs.Retry{Attempts: 6, Time: 5, MaxTime: time.Hour}, "", 1, 1},       // no longer, and so not again
		{&jobs.Retry{Attempts: 6, Time: 1, Task: 2, Node: 1}, "", 1 + 2 + 6, 5}, // the others after the longer ones
		{&jobs.Retry{Attempts: 3, Time: 1, Task: 9, Node: 9}, "", 1 + 2 + 2, 3}, // no more than attempts
		{&jobs.Retry{Attempts: 100, Time: 99, Task: 99}, "", 1 + 2 + 97*3 + 3, 100},
	} {
		s := Spec{Limit: time.Hour, Worker: worker, Retry: c.retry, Request: command.Request{Memory: c.memory}}
		if hours, tries := s.MostTime(); math.Abs(hours-c.hours) > 1e-9 || tries != c.tries {
			t.Errorf("%+v: %v hours in %d tries", c.retry, hours, tries)
		}
	}
	s := Spec{Limit: time.Hour, Retry: &jobs.Retry{Attempts: 100, Time: 99}} // no bound but the number
	if hours, _ := s.MostTime(); hours < 1e6 {
		t.Errorf("%v hours", hours)
	}
}

// Where each task has a sandbox, what it asks for is that one's size, whatever a worker has.
func TestSandboxes(t *testing.T) {
	place := jobs.Place{Backend: "modal", External: &jobs.ExternalSpec{}, Resources: jobs.Resources{CPUs: 2, Memory: 4 * jobs.GiB}}
	spec := Spec{Own: command.OwnContainer, Slots: 10, Worker: &place, Request: command.Request{Memory: "4GiB"}}
	if more := spec.ShareOf(command.Task{}, journal.Tries{Memory: 1}).Memory; !spec.Sandboxes() || spec.Bounds() != (jobs.Resources{}) ||
		spec.Cores() != 20 || more != 6*jobs.GiB {
		t.Errorf("%v %+v %d %v", spec.Sandboxes(), spec.Bounds(), spec.Cores(), more)
	}
	spec.Own = command.OwnNothing // all of them in one
	if more := spec.ShareOf(command.Task{}, journal.Tries{Memory: 1}).Memory; spec.Sandboxes() || spec.Bounds() != place.Resources ||
		spec.Cores() != 2 || more != 4*jobs.GiB {
		t.Errorf("%v %+v %d %v", spec.Sandboxes(), spec.Bounds(), spec.Cores(), more)
	}
	spec.Own, place.Backend, place.External = command.OwnContainer, jobs.BackendDocker, nil
	if spec.Sandboxes() {
		t.Error("a container of docker's is taken for a sandbox of a service")
	}
}
