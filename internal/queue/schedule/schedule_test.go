package schedule

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation("Europe/Zurich")
	if err != nil {
		t.Skip("no time zones here: ", err)
	}
	got, err := ParseTime(text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func made(t *testing.T, d Dir, created, when string, change ...func(*jobs.Schedule)) *Entry {
	t.Helper()
	s := jobs.Schedule{ID: "018f0000-0000-7000-8000-000000000001", Name: "nightly", Zone: "Europe/Zurich", Created: at(t, created), Words: []string{"x.md"}, Dir: "/"}
	if err := Set(&s, when); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&s)
	}
	if err := d.Create(s, nil); err != nil {
		t.Fatal(err)
	}
	return load(t, d)
}

func load(t *testing.T, d Dir) *Entry {
	t.Helper()
	e, err := d.Find("nightly")
	if err != nil || e.Bad != nil {
		t.Fatal(err, e.Bad)
	}
	return e
}

// fire decides on what is due at now and returns the local due time, or "".
func fire(t *testing.T, d Dir, now string) string {
	t.Helper()
	e := load(t, d)
	due, missed, ok := e.Due(at(t, now))
	if !ok {
		return ""
	}
	r, err := e.Decide(jobs.ScheduleRun{Due: due.Truncate(time.Second), Missed: missed, Number: e.Submitted() + 1, Decided: at(t, now)})
	if err == nil {
		err = e.Conclude(&r, jobs.ScheduleOutcome{Job: "j" + r.Name})
	}
	if err != nil {
		t.Fatal(err)
	}
	loc, _ := time.LoadLocation("Europe/Zurich")
	return strings.TrimSuffix(fmt.Sprintf("%s+%d", due.In(loc).Format("2006-01-02T15:04Z07:00"), missed), "+0")
}

// TestClocks: whatever clocks do, a due time is decided on once, and due times that have
// passed are one run together.
func TestClocks(t *testing.T) {
	for name, c := range map[string]struct {
		when, created string
		looks         [][2]string // the time of a look, and the due time that is decided on then
	}{
		"daily": {"0 3 * * *", "2026-05-01T10:00", [][2]string{
			{"2026-05-01T10:00", ""}, {"2026-05-02T02:59", ""}, {"2026-05-02T03:00", "2026-05-02T03:00+02:00"}, {"2026-05-02T03:00", ""}, {"2026-05-03T01:00", ""}}},
		"missed runs fire once": {"0 3 * * *", "2026-05-01T10:00", [][2]string{
			{"2026-05-05T12:00", "2026-05-05T03:00+02:00+3"}, {"2026-05-05T12:01", ""}, {"2026-05-06T03:30", "2026-05-06T03:00+02:00"}}},
		"spring forward": {"30 2 * * *", "2026-03-27T10:00", [][2]string{
			{"2026-03-28T02:30", "2026-03-28T02:30+01:00"}, {"2026-03-29T01:59", ""}, {"2026-03-29T03:30", "2026-03-29T03:30+02:00"},
			{"2026-03-29T23:00", ""}, {"2026-03-30T02:30", "2026-03-30T02:30+02:00"}}},
		"fall back, a time of day": {"30 2 * * *", "2026-10-24T10:00", [][2]string{
			{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30+02:00"}, {"2026-10-25T02:30:00+01:00", ""}, {"2026-10-25T12:00", ""}, {"2026-10-26T02:30", "2026-10-26T02:30+01:00"}}},
		"fall back, looked at later": {"30 2 * * *", "2026-10-24T10:00", [][2]string{{"2026-10-25T12:00", "2026-10-25T02:30+02:00"}, {"2026-10-25T12:00", ""}}},
		"fall back, each hour": {"30 * * * *", "2026-10-25T00:45", [][2]string{
			{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30+02:00+1"}, {"2026-10-25T02:30:00+01:00", "2026-10-25T02:30+01:00"}, {"2026-10-25T03:29", ""}}},
		"clock back by a day": {"0 * * * *", "2026-05-01T10:30", [][2]string{
			{"2026-05-03T11:00", "2026-05-03T11:00+02:00+48"}, {"2026-05-03T12:00", "2026-05-03T12:00+02:00"},
			{"2026-05-02T11:59", "2026-05-02T11:00+02:00+24"}, {"2026-05-02T12:00", "2026-05-02T12:00+02:00"}, // not looked at before
			{"2026-05-03T11:00", ""}, {"2026-05-03T12:30", ""}, {"2026-05-03T13:00", "2026-05-03T13:00+02:00"}}},
		"clock forward by a year, and right again": {"0 3 * * *", "2026-05-01T10:00", [][2]string{
			{"2026-05-02T03:00", "2026-05-02T03:00+02:00"}, {"2027-05-02T12:00", "2027-05-02T03:00+02:00+364"}, {"2027-05-02T12:01", ""},
			{"2026-05-02T12:00", ""}, {"2026-05-03T03:00", "2026-05-03T03:00+02:00"}}},
		"an interval": {"every 2h", "2026-05-01T10:07", [][2]string{
			{"2026-05-01T12:06", ""}, {"2026-05-01T12:07", "2026-05-01T12:07+02:00"}, {"2026-05-01T19:00", "2026-05-01T18:07+02:00+2"}, {"2026-05-01T20:06", ""},
			{"2027-05-01T10:00", "2027-05-01T08:07+02:00+1000"}, {"2026-05-01T20:06", ""}, {"2026-05-01T20:08", "2026-05-01T20:07+02:00"}}},
		"an interval over the change of clocks": {"every 24h", "2026-03-28T10:00", [][2]string{{"2026-03-29T10:59", ""}, {"2026-03-29T11:00", "2026-03-29T11:00+02:00"}}},
		"once":                                  {"in 30m", "2026-05-01T10:00", [][2]string{{"2026-05-01T10:29", ""}, {"2026-05-04T10:00", "2026-05-01T10:30+02:00"}, {"2026-05-05T10:00", ""}}},
		"at a time":                             {"2026-10-25 02:30:00+01:00", "2026-05-01T10:00", [][2]string{{"2026-10-25T02:30:00+02:00", ""}, {"2026-10-25T02:30:00+01:00", "2026-10-25T02:30+01:00"}}},
		"weekdays":                              {"weekdays at 9:30", "2026-05-01T10:00", [][2]string{{"2026-05-03T12:00", ""}, {"2026-05-04T09:30", "2026-05-04T09:30+02:00"}}},
		"two days":                              {"monday, wednesday at 9am", "2026-05-01T10:00", [][2]string{{"2026-05-06T12:00", "2026-05-06T09:00+02:00+1"}}},
		"day of the month or of the week":       {"0 0 1 * mon", "2026-05-02T10:00", [][2]string{{"2026-05-04T00:00", "2026-05-04T00:00+02:00"}, {"2026-06-01T00:00", "2026-06-01T00:00+02:00+3"}}},
		"a minute's, after years":               {"* * * * *", "2020-05-02T10:00", [][2]string{{"2026-05-04T00:00", "2026-05-04T00:00+02:00+1000"}}},
		"a leap day":                            {"0 0 29 2 *", "2025-01-01T10:00", [][2]string{{"2028-02-28T23:00", ""}, {"2029-01-01T10:00", "2028-02-29T00:00+01:00"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := At(t.TempDir())
			made(t, d, c.created, c.when)
			for _, look := range c.looks {
				if got := fire(t, d, look[0]); got != look[1] {
					t.Fatalf("at %s: %q, want %q", look[0], got, look[1])
				}
			}
		})
	}
}

// TestOnce: of many who decide on one due time one does, and all are told what counts.
func TestOnce(t *testing.T) {
	d := At(t.TempDir())
	made(t, d, "2026-05-01T10:00", "0 3 * * *")
	first := jobs.ScheduleRun{Due: at(t, "2026-05-02T03:00"), Number: 1, Host: "one", Decided: at(t, "2026-05-02T03:00")}
	second := first
	second.Host, second.Skip = "two", "the last run still goes on"
	for _, r := range []jobs.ScheduleRun{first, second} {
		if got, err := load(t, d).Decide(r); err != nil || got.Host != "one" || got.Skip != "" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	e := load(t, d)
	if r := e.Open(); r == nil || r.Name != "20260502T010000Z" || e.Key(r) != "schedule "+e.ID+" 20260502T010000Z" {
		t.Fatalf("%+v", r)
	}
	if err := e.Conclude(e.Open(), jobs.ScheduleOutcome{Job: "j"}); err != nil {
		t.Fatal(err)
	}
	if e = load(t, d); e.Open() != nil || e.Last() == nil || e.Last().Outcome.Job != "j" || e.Submitted() != 1 {
		t.Errorf("%+v", e)
	}
}

// TestPause: what was due meanwhile is not made up for.
func TestPause(t *testing.T) {
	d := At(t.TempDir())
	e := made(t, d, "2026-05-01T10:00", "0 3 * * *", func(s *jobs.Schedule) { s.Repeat = 2 })
	for i, c := range []struct {
		paused bool
		at     string
	}{{true, "2026-05-01T12:00"}, {true, "2026-05-01T13:00"}, {false, "2026-05-03T12:00"}} {
		if changed, err := e.SetPaused(c.paused, at(t, c.at)); err != nil || changed != (i != 1) {
			t.Fatal(i, changed, err)
		}
		if e = load(t, d); e.Paused != c.paused {
			t.Fatal(i)
		}
		if due, _, ok := e.Due(at(t, "2026-05-03T12:00")); ok {
			t.Errorf("%d: due %s", i, due)
		}
	}
	for _, c := range [][2]string{{"2026-05-04T03:00", "2026-05-04T03:00+02:00"}, {"2026-05-05T03:00", "2026-05-05T03:00+02:00"}, {"2026-05-06T03:00", ""}} { // twice, as it is asked for
		if got := fire(t, d, c[0]); got != c[1] {
			t.Errorf("%s: %q", c[0], got)
		}
	}
	if e = load(t, d); !e.Over() || !e.Next(at(t, "2026-05-06T03:00")).IsZero() {
		t.Error("it goes on")
	}
}

// TestFraction: a schedule that was added within a second has due times of whole seconds, as its runs have: one
// that was decided on is neither due again nor missed.
func TestFraction(t *testing.T) {
	d := At(t.TempDir())
	made(t, d, "2026-05-01T10:00", "every 10m", func(s *jobs.Schedule) { s.Created = s.Created.Add(987654321 * time.Nanosecond) })
	for _, c := range [][2]string{
		{"2026-05-01T10:00", ""}, {"2026-05-01T10:11", "2026-05-01T10:10+02:00"}, {"2026-05-01T10:12", ""},
		{"2026-05-01T10:21", "2026-05-01T10:20+02:00"}, {"2026-05-01T10:41", "2026-05-01T10:40+02:00+1"},
	} {
		if got := fire(t, d, c[0]); got != c[1] {
			t.Errorf("%s: %q, not %q", c[0], got, c[1])
		}
	}
	for _, text := range []string{"2026-05-01T10:00:05.25+02:00", "2026-05-01 10:00:05.250000"} {
		if got, want := at(t, text), at(t, "2026-05-01T10:00:05"); !got.Equal(want) {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestForgotten: the files of a schedule stay few, and a due time that is forgotten is not decided on again.
func TestForgotten(t *testing.T) {
	d := At(t.TempDir())
	e := made(t, d, "2026-05-01T10:00", "every 1m")
	for n := range mostRuns + 20 {
		r := jobs.ScheduleRun{Due: e.Created.Add(time.Duration(n+1) * time.Minute), Number: n + 1}
		r, err := e.Decide(r)
		if err != nil {
			t.Fatal(err)
		}
		e.Runs = append(e.Runs, r)
	}
	if files, err := os.ReadDir(filepath.Join(d.path, "nightly", dirRuns)); err != nil || len(files) > 2*mostRuns {
		t.Error(len(files), err)
	}
	if got := fire(t, d, "2026-05-01T10:03"); got != "" {
		t.Error(got)
	}
}

func TestRefused(t *testing.T) {
	for when, want := range map[string]string{
		"":                     "no interval",
		"0 3 * *":              "no interval",
		"0 25 * * *":           "cron expression",
		"0 0 31 2 *":           "no such day",
		"TZ=UTC 0 3 * * *":     "interval",
		"@every 5m":            "says more than times",
		"every 30s":            "too short",
		"every funday 9am":     "no day of the week",
		"every monday 25:00":   "no time of day",
		"every monday 13pm":    "no time of day",
		"in -5m":               "duration",
		"2026-13-01":           "no time",
		"2025-05-01T03:00":     "is past",
		"2027-03-28T02:30":     "does not exist in Europe/Zurich",
		"0 3 * * *\n* * * * *": "no interval",
	} {
		s := jobs.Schedule{Zone: "Europe/Zurich", Created: at(t, "2026-05-01T10:00")}
		err := Set(&s, when)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Kind != jobs.KindUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", when, err)
		}
	}
	d := At(t.TempDir())
	made(t, d, "2026-05-01T10:00", "every 1m")
	for _, name := range []string{"nightly", "", ".x", "a/b", "..", strings.Repeat("a", 64), "a b"} {
		if err := d.Create(jobs.Schedule{Name: name, Every: time.Hour}, nil); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := d.Find("../nightly"); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
	// One that is damaged is told, and keeps the others from nothing.
	if err := os.WriteFile(filepath.Join(d.path, "nightly", fileSchedule), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := d.List(); err != nil || len(all) != 1 || all[0].Bad == nil || !strings.Contains(all[0].Bad.Error(), "cannot be read") {
		t.Error(all, err)
	}
	if e, err := d.Find("nightly"); err != nil || d.Remove(e) != nil {
		t.Error(err)
	}
	if all, err := d.List(); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}
