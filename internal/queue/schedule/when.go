// Package schedule is when tasks are to be submitted, and what came of it: the records
// below schedules/ in the state directory (docs/schedules.md). It starts nothing.
package schedule

import (
	"fmt"
	"os"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"

	"github.com/netresearch/go-cron"
)

// least is the shortest interval: cron's own.
const least = time.Minute

// Times are the due times of a schedule.
type Times interface {
	// Next returns the first due time after t; the zero time is none.
	Next(t time.Time) time.Time
}

// TimesOf reads when a schedule is due.
func TimesOf(s *jobs.Schedule) (Times, error) {
	switch {
	case s.Cron != "":
		loc, err := Zone(s.Zone)
		if err != nil {
			return nil, err
		}
		return parseCron(s.Cron, loc)
	case s.Every != 0:
		if s.Every < least {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("an interval of %s is too short", s.Every),
				Hint: "the shortest one is 1m"}
		}
		return interval{s.Created, s.Every}, nil
	}
	return once(s.At), nil
}

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if at := time.Time(o); at.After(t) {
		return at
	}
	return time.Time{}
}

type interval struct {
	from  time.Time
	every time.Duration
}

// Next is in whole seconds, as runs are: one that was decided on would be due again for the rest of its second.
func (i interval) Next(t time.Time) time.Time {
	n := max(t.Sub(i.from)/i.every, 0)
	next := i.from.Add(n * i.every)
	for !next.Truncate(time.Second).After(t) || next.Equal(i.from) {
		next = next.Add(i.every)
	}
	return next.Truncate(time.Second)
}

// cronTimes are those of a cron expression in a time zone.
type cronTimes struct {
	spec *cron.SpecSchedule
	loc  *time.Location
	// eachHour says that the hours are a pattern such as * or */2: each hour that passes
	// counts, also the one that comes twice when clocks are set back. Hours that are
	// written out are a time of day, which comes once.
	eachHour bool
}

const cronHint = "five fields, minute hour day month weekday, such as '0 3 * * *'; or @hourly, @daily, @weekly, @monthly"

func parseCron(text string, loc *time.Location) (Times, error) {
	text = strings.TrimSpace(text)
	wrong := func(err error) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the cron expression %q is not valid", text), Err: err, Hint: cronHint}
	}
	if strings.Contains(text, "TZ=") || strings.HasPrefix(text, "@every") { // other ways to say --zone and --every
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the cron expression %q says more than times", text),
			Hint: "--zone Europe/Zurich names a time zone, --every 2h an interval"}
	}
	p, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return nil, wrong(err)
	}
	s, err := p.Parse(text)
	if err != nil {
		return nil, wrong(err)
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, wrong(nil)
	}
	spec.Location = loc
	fields := strings.Fields(text)
	c := cronTimes{spec, loc, text == "@hourly" || len(fields) == 5 && strings.HasPrefix(fields[1], "*")}
	if spec.Next(time.Unix(0, 0)).IsZero() {
		return nil, wrong(fmt.Errorf("there is no such day"))
	}
	return c, nil
}

func (c cronTimes) Next(t time.Time) time.Time {
	for {
		t = c.spec.Next(t.In(c.loc))
		if t.IsZero() || c.eachHour || !again(t) {
			return t
		}
	}
}

// again reports whether t is the second of two times that clocks show alike, because
// they were set back in between.
func again(t time.Time) bool {
	_, now := t.Zone()
	_, before := t.Add(-3 * time.Hour).Zone()
	if before <= now {
		return false
	}
	_, then := t.Add(-time.Duration(before-now) * time.Second).Zone()
	return then == before
}

// Zone loads a time zone by its IANA name.
func Zone(name string) (*time.Location, error) {
	if loc, err := time.LoadLocation(name); err == nil && name != "" && name != "Local" {
		return loc, nil
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("there is no time zone %q on this machine", name),
		Hint: "its name is one of those below /usr/share/zoneinfo, such as Europe/Zurich; UTC is there always"}
}

// Here is the IANA name of this machine's time zone. Compute nodes may have another.
func Here() (string, error) {
	names := []string{strings.TrimPrefix(os.Getenv("TZ"), ":")}
	if link, err := os.Readlink("/etc/localtime"); err == nil {
		_, name, _ := strings.Cut(link, "zoneinfo/")
		names = append(names, name)
	}
	if b, err := os.ReadFile("/etc/timezone"); err == nil {
		names = append(names, strings.TrimSpace(string(b)))
	}
	for _, name := range names {
		if _, err := Zone(name); err == nil {
			return name, nil
		}
	}
	if time.Local.String() == "UTC" {
		return "UTC", nil
	}
	if fi, err := os.Stat("/etc/localtime"); err != nil || fi.Size() < 200 { // without one, and in small containers, it is UTC
		return "UTC", nil
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the name of this machine's time zone is not known",
		Hint: "--zone Europe/Zurich names it; --zone UTC"}
}

// Form in which a person may write a time, the longest first; those without an offset
// are read in the schedule's zone.
var forms = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}

// ParseTime reads an ISO time such as 2026-12-01T03:00, "2026-12-01 03:00" or
// 2026-12-01T03:00:00+01:00.
func ParseTime(text string, loc *time.Location) (time.Time, error) {
	s := fraction().ReplaceAllString(strings.TrimSpace(text), "$1") // of a second, as Python writes times: a due time has none
	if len(s) > 10 && s[10] == ' ' {
		s = s[:10] + "T" + s[11:]
	}
	for _, form := range forms {
		t, err := time.ParseInLocation(form, s, loc)
		if err != nil {
			continue
		}
		if !strings.HasSuffix(form, "07:00") && t.Format(form) != s {
			return time.Time{}, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  fmt.Sprintf("the time %s does not exist in %s: clocks are put forward over it", text, loc),
				Hint: "write an hour later"}
		}
		return t.UTC(), nil
	}
	return time.Time{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no time", text),
		Hint: "write for example 2026-12-01T03:00, or with an offset 2026-12-01T03:00+01:00"}
}

var (
	fraction  = pattern.Lazy(`(:[0-9]{2}:[0-9]{2})[.,][0-9]+`)
	dayLength = pattern.Lazy(`^([0-9]{1,4})d$`)
	clockForm = pattern.Lazy(`^([0-9]{1,2})(?::([0-9]{2}))?\s*(am|pm)?$`)
	daysForm  = pattern.Lazy(`^(.*?)(?:\s+at)?\s+([0-9:]+\s*(?:am|pm)?)$`)
)

// length reads 30m, 2h or 1d.
func length(text string) (time.Duration, error) {
	if m := dayLength().FindStringSubmatch(strings.TrimSpace(text)); m != nil {
		var days int
		_, err := fmt.Sscan(m[1], &days)
		if err == nil && days > 0 {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	return jobs.ParseDuration(text)
}

// SetIn makes a schedule one that is due once, so long after it was made.
func SetIn(s *jobs.Schedule, text string) error {
	d, err := length(text)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Err: err}
	}
	s.At = s.Created.Add(d).Truncate(time.Second)
	return nil
}

// SetAt makes it one that is due at a time.
func SetAt(s *jobs.Schedule, text string) error {
	loc, err := Zone(s.Zone)
	if err != nil {
		return err
	}
	if s.At, err = ParseTime(text, loc); err == nil && !s.At.After(s.Created) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the time %s is past", text), Hint: "berth submit begins now"}
	}
	return err
}

// SetEvery makes it one that comes again: after an interval such as 2h, or on days at a
// time of day, such as "monday 9am", "weekdays at 9:30" or "day at 18:00".
func SetEvery(s *jobs.Schedule, text string) (err error) {
	if m := daysForm().FindStringSubmatch(strings.ToLower(strings.TrimSpace(text))); m != nil {
		days, err := weekdays(m[1])
		if err != nil {
			return err
		}
		clock, err := timeOfDay(m[2])
		if err != nil {
			return err
		}
		s.Cron = clock + " * * " + days
		return nil
	}
	if s.Every, err = length(text); err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no interval", text),
			Hint: "write for example 30m, 2h, 1d, 'monday 9am' or 'weekdays 18:00'"}
	}
	_, err = TimesOf(s)
	return err
}

// Set reads any of these, as Hermes writes a schedule: "in 30m", "30m", "every 2h",
// "every monday 9am", a cron expression or an ISO time.
func Set(s *jobs.Schedule, text string) error {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "in "); ok {
		return SetIn(s, rest)
	}
	if rest, ok := strings.CutPrefix(text, "every "); ok {
		return SetEvery(s, rest)
	}
	switch {
	case len(strings.Fields(text)) == 5 && !strings.ContainsAny(text[:1], "abcdefghijklmnopqrstuvwxyz") || strings.HasPrefix(text, "@"):
		s.Cron = text
		_, err := TimesOf(s)
		return err
	case len(text) >= 10 && text[4] == '-' && text[7] == '-':
		return SetAt(s, text)
	}
	return SetEvery(s, text)
}

func timeOfDay(text string) (string, error) {
	m := clockForm().FindStringSubmatch(strings.TrimSpace(text))
	var hour, minute int
	if m != nil {
		_, _ = fmt.Sscan(m[1], &hour)
		_, _ = fmt.Sscan(m[2], &minute) // "" is 0
	}
	switch {
	case m == nil || minute > 59 || m[3] != "" && (hour < 1 || hour > 12) || hour > 23:
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no time of day", text), Hint: "write for example 9am, 9:30 or 18:00"}
	case m[3] == "pm" && hour < 12:
		hour += 12
	case m[3] == "am" && hour == 12:
		hour = 0
	}
	return fmt.Sprintf("%d %d", minute, hour), nil
}

func weekdays(text string) (string, error) {
	known := map[string]string{"day": "*", "daily": "*", "weekday": "1-5", "weekdays": "1-5", "weekend": "0,6", "weekends": "0,6"}
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		for _, word := range []string{name, name + "s", name[:3]} {
			known[word] = fmt.Sprint(int(d))
		}
	}
	var out []string
	for _, word := range strings.FieldsFunc(strings.ReplaceAll(text, " and ", ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		day, ok := known[word]
		if !ok {
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no day of the week", word),
				Hint: "write for example 'monday 9am', 'monday, friday 9am', 'weekdays 18:00' or 'day 9am'"}
		}
		out = append(out, day)
	}
	if len(out) == 0 {
		out = []string{"*"}
	}
	return strings.Join(out, ","), nil
}
