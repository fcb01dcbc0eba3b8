package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
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
		"killed":    {nil, true, true},
		"ended":     {func(attempt, _ string) error { write(filepath.Join(attempt, store.FileExit), "{}"); return nil }, false, true},
		"job is rm": {func(attempt, _ string) error { return os.RemoveAll(attempt) }, false, true},
		"another's": {func(attempt, _ string) error {
			write(filepath.Join(attempt, "claim.json"), "{\"version\": 1, \"pid\": 1}")
			return nil
		}, false, false},
		"state away": {func(_, home string) error { return os.Rename(home, home+"-away") }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			base, home := t.TempDir(), filepath.Join(t.TempDir(), "state")
			attempt := filepath.Join(home, "jobs", "ab", "id", "attempts", "0001")
			s, err := NewScratch(base, "0123456789ab", gone, attempt)
			if err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(attempt, "work", "part of it.txt"), "of a runner killed while it kept this")
			if _, err := store.SetClaim(attempt, jobs.Claim{Version: 1, Host: gone.Host, BootID: gone.BootID, PID: gone.PID, Start: gone.Start}); err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(s.Dir, "work", "a.txt"), "a")
			write(filepath.Join(s.Dir, "work", ".git", "config"), "[core]\n")
			if c.change != nil {
				if err := c.change(attempt, home); err != nil {
					t.Fatal(err)
				}
			}
			if removed := SweepScratch(t.Context(), base, mine); (len(removed) == 1) != c.removed {
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

// What cannot be copied whole stays, is not tried again by everybody who begins
// something there, and does not pass for a tree that was kept.
func TestSweepKeepsWhatItCannotCopy(t *testing.T) {
	mine := lease.Self()
	gone := mine
	gone.PID, gone.Start = 1<<30, "1"
	base, err := os.MkdirTemp("/dev/shm", "test-berth-") //nolint:usetesting // another file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	attempt := filepath.Join(t.TempDir(), "state", "jobs", "ab", "id", "attempts", "0001")
	s, err := NewScratch(base, "0123456789ab", gone, attempt)
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(s.Dir, "work")
	for range 205 {
		deep = filepath.Join(deep, "d")
	}
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.MkdirAll(attempt, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SetClaim(attempt, jobs.Claim{Version: 1, Host: gone.Host, BootID: gone.BootID, PID: gone.PID, Start: gone.Start}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if removed := SweepScratch(t.Context(), base, mine); len(removed) > 0 {
			t.Fatalf("removed %q", removed)
		}
	}
	if _, err := os.Lstat(deep); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(attempt, "work")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half of it passes for all: %v", err)
	}
	if err := RemoveAbandoned(t.Context(), s.Dir); err == nil || !strings.Contains(err.Error(), "could not be copied") {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(filepath.Join(s.Dir, "work", "d")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "work", "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := RemoveAbandoned(t.Context(), s.Dir); err == nil {
		t.Error("two at once")
	}
	_ = f.Close()
	if err := RemoveAbandoned(t.Context(), s.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(attempt, "work", "a")); err != nil {
		t.Error(err)
	}
}
