package keys

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"berth/internal/config/strict"
	"berth/jobs"
)

// Field is a part of a [jobs.Place] that people choose. What reads task files,
// flags and the configuration, puts one over the other, compares an environment
// with what is asked, and refuses what a backend does not have, goes through
// [Fields], so that a new field is one row.
type Field struct {
	// Name is its key in task files, and in the configuration where Meaning is set:
	// "terminal.network". It is "" for what only a flag of environments says.
	Name string
	// In is where it is in a place: a pointer to a string, bool, int, [jobs.Bytes],
	// [time.Duration] or list of strings, or to what has a reading of its own.
	In func(*jobs.Place) any

	// Apart says that it is not put over or under another one by itself.
	Apart bool

	// How its value is read, beside its type.
	Words []string                          // one of these
	Most  int                               // of an int, which is 1 or more
	Of    string                            // what the items of a list are; "" is strings
	Read  func(v strict.Value) any          // instead of the type's reading
	Check func(value string) string         // complains about a string, or an item of a list
	Over  func(low, high reflect.Value) any // what holds of two that are said; nil is the higher
	Adds  bool                              // of a list that both hold, and an environment may have more
	Text  func(p *jobs.Place) string        // as errors and lists show it, instead of the type's

	// Where it is said.
	Task bool   // it is a key of task files
	Flag string // the flag of jobs and environments, without dashes
	Help string // of the flag of jobs; "" is that they have none
	Env  string // of the flag of environments; "" is that they have none in this table

	// What the engine says of it.
	Noun    string                       // "a memory limit", where an environment's backend does not have it
	Jobs    func(jobs.Capabilities) bool // the backends that have it for jobs; nil is all
	Envs    func(jobs.Capabilities) bool // and for environments
	Differs string                       // "another memory limit", where an environment has another one; "" is not compared
	Promise bool                         // a backend that does not have it refuses it, wherever it is said
	Held    bool                         // it is of an allocation, and of an environment only there
	Any     string                       // the word that leaves the choice to berth: "auto"
	Usual   string                       // the word that is the same as none: "host"

	// What the configuration says of it; its page has this, too.
	Meaning  string // "" is that it has no such key
	Allow    string // with which word a project may set it; "" is freely
	JobsOnly bool   // it does not count for environments
}

// Find returns a part by its name, or nil.
func Find(name string) *Field {
	for i := range Fields {
		if Fields[i].Name == name {
			return &Fields[i]
		}
	}
	return nil
}

// Has reports whether a backend has what [Field.Jobs] or [Field.Envs] says.
func Has(which func(jobs.Capabilities) bool, backend string) bool {
	return which == nil || which(jobs.CapabilitiesOf(backend))
}

// Table and Key are the two parts of its name.
func (f *Field) Table() string { return f.Name[:max(strings.LastIndexByte(f.Name, '.'), 0)] }

// Key is the last part.
func (f *Field) Key() string { return f.Name[strings.LastIndexByte(f.Name, '.')+1:] }

// Kind is that of its value as a flag.
func (f *Field) Kind() strict.Kind {
	switch f.In(&jobs.Place{}).(type) {
	case *int:
		return strict.Int
	case *bool:
		return strict.Bool
	case *string, *jobs.Bytes, *time.Duration, *jobs.USD, **jobs.SSHSpec:
		return strict.String
	}
	return strict.List
}

// value is what a place has; the place stays as it is.
func (f *Field) value(p jobs.Place) reflect.Value { return reflect.ValueOf(f.In(&p)).Elem() }

// set gives a place a value.
func (f *Field) set(p *jobs.Place, v reflect.Value) { reflect.ValueOf(f.In(p)).Elem().Set(v) }

// Put gives a place a value of the type that it has.
func (f *Field) Put(p *jobs.Place, v any) {
	if v := reflect.ValueOf(v); v.IsValid() && !v.IsZero() {
		f.set(p, v)
	}
}

// Said is whether a place says it, and what is not the same as nothing.
func (f *Field) Said(p jobs.Place) bool {
	s := f.Shown(p)
	return s != "" && s != f.Any && s != f.Usual && s[0] != '-'
}

// Shown is the value as errors and lists show it; "" is that it is not said.
func (f *Field) Shown(p jobs.Place) string {
	said := ""
	switch v := f.In(&p).(type) {
	case *string:
		said = *v
	case *int:
		if *v != 0 {
			said = fmt.Sprint(*v)
		}
	case *jobs.Bytes:
		if *v != 0 {
			said = v.String()
		}
	case *time.Duration:
		if *v != 0 {
			said = v.String()
		}
	case *bool:
		if *v {
			said = "yes"
		}
	case *[]string:
		said = strings.Join(*v, " ")
	}
	if f.Text != nil {
		said = f.Text(&p)
	}
	return said
}

// Take reads the field's value into a place.
func (f *Field) Take(v strict.Value, p *jobs.Place) {
	if !v.Given() {
		return
	}
	if f.Read != nil {
		f.Put(p, f.Read(v))
		return
	}
	switch dst := f.In(p).(type) {
	case *string:
		if f.Words != nil {
			*dst = v.OneOf(f.Words...)
		} else if s := v.Text(); f.fits(v, s) {
			*dst = s
		}
	case *int:
		*dst = v.Count(f.Most)
	case *bool:
		*dst = v.Bool()
	case *jobs.Bytes:
		*dst = Size(v)
	case *time.Duration:
		*dst = Duration(v)
	case *[]string:
		*dst = nil
		for _, item := range v.Items(cmp.Or(f.Of, "strings")) {
			if s := item.Text(); s != "" && f.fits(item, s) {
				*dst = append(*dst, s)
			}
		}
	}
}

// Fits complains about a value that the type alone would take.
func (f *Field) Fits(v strict.Value) bool {
	if f.Check == nil {
		return true
	}
	if !v.Is(strict.List) {
		return f.fits(v, v.Text())
	}
	for _, item := range v.Items(f.Of) {
		if !f.fits(item, item.Text()) {
			return false
		}
	}
	return true
}

func (f *Field) fits(v strict.Value, s string) bool {
	why := ""
	if f.Check != nil && s != "" {
		why = f.Check(s)
	}
	if why != "" {
		v.Failf("", "%s", why)
	}
	return why == ""
}

// Under puts into a place what it does not say and low does; Over what high says.
// A table is all that counts then; "" is all of them.
func Under(p *jobs.Place, low jobs.Place, table string) { merge(p, low, *p, table) }

// Over puts a place's values over those of another one.
func Over(p *jobs.Place, high jobs.Place) { merge(p, *p, high, "") }

func merge(p *jobs.Place, low, high jobs.Place, table string) {
	low.Network, high.Network = low.Network.Said(), high.Network.Said()
	if high.Network.Mode == jobs.NetworkOpen {
		low.Network.Deny, p.Network.Deny = nil, high.Network.Deny // whoever opens it does not mean what is below
	}
	p.Docker, p.SSH, p.External = clone(p.Docker), clone(p.SSH), clone(p.External) // whoever else has these keeps them
	for i := range Fields {
		f := &Fields[i]
		if f.Apart || table != "" && f.Table() != table {
			continue
		}
		below, above := f.value(low), f.value(high)
		v := above
		switch {
		case above.IsZero():
			v = below
		case below.IsZero():
		case f.Adds:
			v = reflect.ValueOf(slices.Concat(below.Interface().([]string), above.Interface().([]string)))
		case f.Over != nil:
			v = reflect.ValueOf(f.Over(below, above))
		}
		if !v.IsZero() {
			f.set(p, v)
		}
	}
	if table == "" {
		p.Network.Bounds = slices.Concat(low.Network.Bounds, high.Network.Bounds)
		p.Network.Learn = low.Network.Learn || high.Network.Learn
	}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// variables puts variables over others of the same name.
func variables(low, high reflect.Value) any {
	name := func(kv string) string { n, _, _ := strings.Cut(kv, "="); return n }
	old, _ := low.Interface().([]string)
	over, _ := high.Interface().([]string)
	out := slices.DeleteFunc(slices.Clone(old), func(kv string) bool {
		return slices.ContainsFunc(over, func(o string) bool { return name(o) == name(kv) })
	})
	return append(out, over...)
}
