//go:build linux

package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// Whoever comes to a job is led to its current attempt.
func TestReachCurrentAttempt(t *testing.T) {
	f := newFixture(t)
	r := f.submit(at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	me := lease.Self()
	v := &View{Record: r}
	for n := 1; n <= 2; n++ {
		dir := store.AttemptDir(r.Dir, n)
		v.Attempts = append(v.Attempts[:n-1:n-1], jobs.Attempt{Dir: dir, Info: jobs.AttemptInfo{Number: n}, Claim: &jobs.Claim{Host: me.Host, BootID: me.BootID}})
		_, c, err := f.reach(t.Context(), v, time.Second)
		must(t, err)
		if !slices.Contains(c.Argv, dir) || !strings.HasPrefix(dir, filepath.Join(f.Store.JobDir(r.Spec.ID), "attempts")) {
			t.Errorf("attempt %d, in %s: %q", n, dir, c.Argv)
		}
	}
}
