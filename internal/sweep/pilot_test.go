package sweep

import (
	"fmt"
	"testing"
	"time"

	"berth/jobs"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		tasks, n int
		want     string
	}{{10, 0, "[]"}, {10, 1, "[[1 1]]"}, {3, 5, "[[1 3]]"}, {101, 3, "[[1 1] [51 51] [101 101]]"}, {7, 4, "[[1 1] [3 3] [5 5] [7 7]]"}} {
		if got := fmt.Sprint(Spread(c.tasks, c.n)); got != c.want {
			t.Errorf("%d of %d: %s", c.n, c.tasks, got)
		}
	}
	for tasks := 1; tasks < 40; tasks++ {
		for n := range tasks + 2 {
			if s := Spread(tasks, n); !s.valid(tasks) || s.Len() != min(n, tasks) {
				t.Errorf("%d of %d: %v", n, tasks, s)
			}
		}
	}
}

func TestPlanned(t *testing.T) {
	m := Measured{OK: 5, Mean: time.Minute, Most: 2 * time.Minute, Memory: 3 * jobs.GiB}
	for _, c := range []struct {
		tasks, workers, slots int
		fewer                 bool
		most                  time.Duration
		want                  string
	}{
		{1000, 16, 4, true, 0, "16 30m0s"},            // 16 turns of a minute, and half as much again
		{100, 16, 4, true, 0, "3 20m0s"},              // 25 min of work
		{100, 16, 4, false, 0, "16 10m0s"},            // so many were asked for
		{3, 16, 4, false, 0, "1 10m0s"},               // no more than have something to do
		{1000, 2, 1, true, 2 * time.Hour, "2 2h0m0s"}, // as long as the partition allows
	} {
		p := m.Planned(c.tasks, c.workers, c.slots, c.fewer, c.most)
		if got := fmt.Sprint(p.Workers, " ", p.Time); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	spec := &Spec{Slots: 8, Worker: &jobs.Place{Resources: jobs.Resources{Memory: 16 * jobs.GiB}}}
	if n := m.SlotsOf(spec); n != 4 {
		t.Errorf("%d tasks of 3.75 GiB in 16", n)
	}
}
