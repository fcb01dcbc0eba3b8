package container

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"berth/internal/lease"
	"berth/jobs/store"
)

// What a killed runner has left of the task's files comes into the attempt's
// directory, before its scratch directory goes.
func TestSweepKeepsWork(t *testing.T) {
	mine := lease.Self()
	gone := mine
	gone.PID, gone.Start = 1<<30, "1" // beyond the largest pid_max
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change        func(attempt, home string) error
		kept, removed bool
	}{
		"killed":     {nil, true, true},
		"ended":      {func(attempt, _ string) error { write(filepath.Join(attempt, store.FileExit), "{}"); return nil }, false, true},
		"job is rm":  {func(attempt, _ string) error { return os.RemoveAll(attempt) }, false, true},
		"state away": {func(_, home string) error { return os.Rename(home, home+"-away") }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			base, home := t.TempDir(), filepath.Join(t.TempDir(), "state")
			attempt := filepath.Join(home, "jobs", "ab", "id", "attempts", "0001")
			s, err := NewScratch(base, "0123456789ab", gone, attempt)
			if err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(attempt, "claim.json"), "{}")
			write(filepath.Join(s.Dir, "work", "a.txt"), "a")
			write(filepath.Join(s.Dir, "work", ".git", "config"), "[core]\n")
			if c.change != nil {
				if err := c.change(attempt, home); err != nil {
					t.Fatal(err)
				}
			}
			if removed := SweepScratch(base, mine); (len(removed) == 1) != c.removed {
				t.Errorf("removed %q", removed)
			}
			if _, err := os.Lstat(filepath.Join(s.Dir, "work", "a.txt")); (err != nil) != c.removed {
				t.Errorf("the scratch directory: %v", err)
			}
			b, err := os.ReadFile(filepath.Join(attempt, "work", "a.txt"))
			if c.kept != (err == nil && string(b) == "a") {
				t.Errorf("kept: %q, %v", b, err)
			}
			if _, err := os.Lstat(filepath.Join(attempt, "work", ".git")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its git directory: %v", err)
			}
		})
	}
}
