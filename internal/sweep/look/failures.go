package look

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"berth/internal/sweep"
	"berth/internal/sweep/journal"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Bounds of what is looked at.
const (
	mostLooked   = 100_000 // tasks whose output is read
	mostGroups   = 1000
	mostExamples = 5
	mostLine     = 200 // of a last line, in bytes
	tailBytes    = 4096
)

// Group is tasks that failed alike: the same class and state, exit code and last line, in which
// numbers may differ.
type Group struct {
	Count    int           `json:"count"`
	State    string        `json:"class"`       // as it was first called there
	Class    jobs.Class    `json:"retry_class"` // what may repair it
	Exit     int           `json:"exit"`
	LastLine string        `json:"last_line"` // of the first of them
	Tasks    sweep.Numbers `json:"-"`         // that were looked at
	Examples []int         `json:"tasks"`
}

// Failures are the groups, the largest first.
type Failures struct {
	Failed int     // tasks that did not succeed
	Looked int     // of them, spread over all where there are too many
	Groups []Group // the last one may have those of all others, without a last line
}

var variable = pattern.Lazy(`0x[0-9a-fA-F]+|[0-9]+`)

// Failures puts failed tasks in groups.
func (l *Look) Failures() (Failures, error) {
	all := l.States(NotOK...)
	f := Failures{Failed: all.Len()}
	numbers := spread(all, mostLooked)
	type key struct {
		state journal.State
		exit  int
		line  string
	}
	groups := map[key]*Group{}
	var looked error
	numbers.Each(func(t int) {
		if looked != nil {
			return
		}
		_, rec, err := l.In.Record(l.Fold, uint32(t))
		if err != nil || rec == nil {
			looked = err
			return
		}
		line, err := l.LastLine(rec)
		if err != nil {
			line = "berth: its output cannot be read: " + err.Error()
		}
		f.Looked++
		k := key{l.Fold.State(uint32(t)), Exit(*rec), variable().ReplaceAllString(line, "#")}
		g := groups[k]
		if g == nil && len(groups) >= mostGroups {
			k = key{}
			g = groups[k]
		}
		if g == nil {
			g = &Group{Class: sweep.ClassOf(k.state), State: Word(k.state), Exit: k.exit, LastLine: line}
			if k == (key{}) {
				g.State, g.LastLine = "others", ""
			}
			groups[k] = g
		}
		g.Count++
		g.Tasks.Add(t)
		if len(g.Examples) < mostExamples {
			g.Examples = append(g.Examples, t)
		}
	})
	for _, g := range groups {
		f.Groups = append(f.Groups, *g)
	}
	slices.SortFunc(f.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Examples[0], b.Examples[0]))
	})
	return f, looked
}

// Classes are how many tasks failed of each class, in the order of the states.
func Classes(f *journal.Fold) (all []ClassCount) {
	for _, s := range NotOK {
		n, class := f.Count(s), sweep.ClassOf(s)
		if n == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(c ClassCount) bool { return c.Class == class })
		if i < 0 {
			i, all = len(all), append(all, ClassCount{Class: class})
		}
		all[i].Count += n
	}
	return all
}

// ClassCount is how many tasks failed of a class.
type ClassCount struct {
	Class jobs.Class
	Count int
}

// LastLine is the last line of what a task has written on its standard error, or, where
// it wrote nothing there, on its standard output.
func (l *Look) LastLine(rec *journal.Record) (string, error) {
	tail, err := l.In.Tail(rec, tailBytes, journal.Stderr, journal.Stdout)
	if err != nil {
		return "", err
	}
	for _, s := range []journal.Stream{journal.Stderr, journal.Stdout} {
		b := bytes.TrimSpace(tail[s])
		if i := bytes.LastIndexAny(b, "\n\r"); i >= 0 {
			b = b[i+1:]
		}
		if len(b) > 0 {
			line := jobs.Printable(strings.ToValidUTF8(string(b[:min(len(b), mostLine)]), ""))
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil
}
