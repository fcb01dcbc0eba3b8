package jobs

import (
	"slices"
	"testing"
	"time"
)

// What a meter shows is told in lines after a second, then each ten; another thing begins again.
func TestMeterLines(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	var told []string
	meter := meterLines(func() time.Time { return now }, func(line string) { told = append(told, line) })
	at := func(after time.Duration, what string, done, of int64) {
		now = now.Add(after)
		meter(what, done, of)
	}
	at(0, "copying a", 1<<20, 1<<30)
	at(999*time.Millisecond, "copying a", 2<<20, 1<<30)
	at(time.Millisecond, "copying a", 3<<20+5, 1<<30)
	at(9*time.Second, "copying a", 4<<20, 1<<30)
	at(time.Second, "copying a", 5<<20, 1<<30)
	at(time.Minute, "", 0, 0)
	at(time.Second, "unpacking b", 1<<20, 0)
	at(time.Second, "unpacking b", 7<<20, 0)
	if want := []string{"copying a: 3MiB of 1GiB", "copying a: 5MiB of 1GiB", "unpacking b: 7MiB so far"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
