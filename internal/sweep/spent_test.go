package sweep

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
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

// What tasks have asked models for is counted once, whether their containers are there or were
// removed, and one whose count cannot be read hides no other.
func TestModels(t *testing.T) {
	s := &Sweep{Dir: t.TempDir(), Spec: Spec{Worker: &jobs.Place{Credentials: []jobs.Credential{{Name: "lab"}}}}}
	box := func(worker uint32, name string, requests int) string {
		dir := filepath.Join(s.WorkerDir(worker), name)
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = store.SetUsage(dir, jobs.Usage{Requests: requests})
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if err := os.MkdirAll(s.WorkerDir(1), 0o700); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Models(); u != nil || err != nil {
		t.Errorf("%v %v", u, err)
	}
	box(1, BoxDir, 1)
	one, two := box(2, BoxDir+".1", 2), box(2, BoxDir+".2", 4)
	sum := func(when string) {
		t.Helper()
		if u, err := s.Models(); err != nil || u.Requests != 7 {
			t.Errorf("%s: %+v %v", when, u, err)
		}
	}
	sum("all are there")
	for range 2 { // its worker was killed before it had removed it, or could not
		if err := KeepUsage(one); err != nil {
			t.Fatal(err)
		}
		sum("one is kept")
	}
	if err := os.RemoveAll(one); err != nil {
		t.Fatal(err)
	}
	sum("one was removed")
	if err := os.WriteFile(filepath.Join(two, "env.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, box := range []string{two, filepath.Join(s.WorkerDir(1), BoxDir), filepath.Join(s.WorkerDir(1), BoxDir+".9")} {
		if err := EndBox(box); err != nil {
			t.Error(err)
		}
		sum("after " + box)
	}
	if files, err := os.ReadDir(two); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
	torn := box(2, BoxDir+".3", 8)
	if err := os.WriteFile(filepath.Join(torn, store.FileUsage), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clean(torn); err != nil {
		t.Error(err)
	}
	if u, err := s.Models(); err == nil || u.Requests != 7 {
		t.Errorf("%+v %v", u, err)
	}
}

// The names that a worker's count has stay few, and those of containers that are there stay.
func TestSummed(t *testing.T) {
	worker := t.TempDir()
	box := func(n int) string {
		dir := filepath.Join(worker, BoxDir+"."+strconv.Itoa(n))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = store.SetUsage(dir, jobs.Usage{Requests: 1})
		}
		if err == nil {
			err = KeepUsage(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	box(0) // which could not be removed
	for n := 1; n < mostSummed+10; n++ {
		if err := os.RemoveAll(box(n)); err != nil {
			t.Fatal(err)
		}
	}
	u, names, err := store.LoadSum(worker)
	if err != nil || u.Requests != mostSummed+10 || len(names) != mostSummed || names[0] != BoxDir+".0" || names[1] != BoxDir+".11" {
		t.Errorf("%+v %d %q %v", u, len(names), names[:2], err)
	}
}
