package sweep

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// Workers cost the time that they were there: one that was killed until its last beat, one
// that lives until now.
func TestSpent(t *testing.T) {
	s := &Sweep{Dir: t.TempDir(), Spec: Spec{Worker: &jobs.Place{Resources: jobs.Resources{CPUs: 4}}}}
	now := time.Now().UTC().Truncate(time.Second)
	began := now.Add(-2 * time.Hour)
	write := func(path string, v any) {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, ended := range map[uint32]time.Time{1: began.Add(time.Hour), 2: began.Add(30 * time.Minute), 3: now.Add(-time.Second)} {
		dir := s.WorkerDir(n)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		who := struct {
			lease.Process
			Began time.Time `json:"began"`
		}{lease.Self(), began}
		if n == 2 {
			who.PID = 1 << 30
		}
		write(filepath.Join(dir, claims.WorkerFile), who)
		if err := store.Beat(dir, 1, ended); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			write(filepath.Join(dir, claims.EndFile), map[string]any{"time": ended})
		}
	}
	if sum, err := s.CoreHours(now); err != nil || sum != 4*(1+0.5+2) {
		t.Errorf("%v core-hours: %v", sum, err)
	}
	all, ends, err := s.Spent(began.Add(50*time.Minute), now)
	if err != nil || len(all) != 2 || all[0].CoreHours != 4 || all[1].Running != 1 || !ends[1].Equal(now) {
		t.Errorf("%+v %v: %v", all, ends, err)
	}
}
