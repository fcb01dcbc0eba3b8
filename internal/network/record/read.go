package record

import (
	"slices"

	"berth/jobs"
)

// Read returns the lines of a file, with what is in them printable. A last line that is not whole
// is left out, and a file that is not there has none.
func Read(path string) ([]Line, error) {
	o, err := load(path)
	if err != nil {
		return nil, err
	}
	for i := range o.lines {
		line := &o.lines[i]
		line.Note, line.Door = text(line.Note), text(line.Door)
		if e := line.Entry; e != nil {
			for _, s := range []*string{&e.Phase, &e.Name, &e.Addr, &e.Decision, &e.Rule, &e.Origin, &e.Reason, &e.Hint, &e.Word, &e.After} {
				*s = text(*s)
			}
			e.Up, e.Down, e.Seconds = max(e.Up, 0), max(e.Down, 0), max(e.Seconds, 0)
		}
		if t := line.Allow; t != nil {
			t.By, t.Host, t.Trouble, t.Words = text(t.By), text(t.Host), text(t.Trouble), texts(t.Words, jobs.MostAllowWords)
		}
		Clean(line.Sum)
	}
	return o.lines, nil
}

// Use sums a file up; nil is that there is none, or nothing in it.
func Use(path string) (*jobs.NetworkUse, error) {
	o, err := load(path)
	switch {
	case err != nil:
		return nil, err
	case o.sum != nil:
		Clean(o.sum)
		return o.sum, nil
	case len(o.lines) == 0:
		return nil, nil
	}
	return o.sums.summary(), nil
}

// Clean bounds sums that were read from elsewhere, and makes them printable.
func Clean(u *jobs.NetworkUse) {
	if u == nil {
		return
	}
	u.Door = text(u.Door)
	u.Allowed, u.Refused = cleanNames(u.Allowed), cleanNames(u.Refused)
	u.Limits = u.Limits[:min(len(u.Limits), maxLimits)]
	for i := range u.Limits {
		u.Limits[i].What = text(u.Limits[i].What)
	}
	u.Added, u.Notes = texts(u.Added, maxAdded), texts(u.Notes, maxNotes)
}

func cleanNames(all []jobs.NetworkName) []jobs.NetworkName {
	all = all[:min(len(all), maxShown)]
	for i := range all {
		n := &all[i]
		for _, s := range []*string{&n.Phase, &n.Name, &n.Reason, &n.Rule, &n.Origin, &n.Hint, &n.Word, &n.After} {
			*s = text(*s)
		}
	}
	return all
}

func texts(all []string, most int) []string {
	all = slices.Clone(all[:min(len(all), most)])
	for i := range all {
		all[i] = text(all[i])
	}
	return all
}
