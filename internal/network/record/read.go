package record

import (
	"bytes"
	"slices"

	"berth/jobs"
)

// A File is what was recorded. What is in it is bounded and printable.
type File struct {
	Lines []Line
	sums  *sums
	sum   *jobs.NetworkUse
}

// Read reads a file. A last line that is not whole is left out; a file that is not there is an empty one.
func Read(path string) (*File, error) { return file(load(path)) }

// Parse reads what stood in one.
func Parse(b []byte) (*File, error) {
	o := newLoaded()
	return file(o, o.read(bytes.NewReader(b)))
}

func file(o *loaded, err error) (*File, error) {
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
		if u := line.Request; u != nil {
			for _, s := range []*string{&u.Credential, &u.Method, &u.Model, &u.Reason, &u.Usage.PricesOf} {
				*s = text(*s)
			}
			u.Seconds = max(u.Seconds, 0)
		}
		if t := line.Allow; t != nil {
			t.By, t.Host, t.Trouble, t.Words = text(t.By), text(t.Host), text(t.Trouble), texts(t.Words, jobs.MostAllowWords)
		}
		Clean(line.Sum)
	}
	return &File{Lines: o.lines, sums: o.sums, sum: o.sum}, nil
}

// Use sums it up; nil is that there is nothing in it.
func (f *File) Use() *jobs.NetworkUse {
	switch {
	case f.sum != nil:
		return f.sum
	case len(f.Lines) == 0:
		return nil
	}
	return f.sums.summary()
}

// Acknowledged finds the acknowledgement of an act of the user's; nil is that there is none yet.
func (f *File) Acknowledged(id string) *Taken {
	for _, line := range f.Lines {
		if line.Allow != nil && line.Allow.ID == id {
			return line.Allow
		}
	}
	return nil
}

// Clean bounds sums that were read from elsewhere, and makes them printable.
func Clean(u *jobs.NetworkUse) {
	if u == nil {
		return
	}
	u.Door = text(u.Door)
	if m := u.Models; m != nil {
		m.PricesOf = text(m.PricesOf)
	}
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
