package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/images"
	"berth/jobs"
)

// Origin is where a value comes from.
type Origin struct {
	Layer string // "flag", "env", "project", "user", "profile", "default"
	// Target is the target whose table holds the value; the layer is then of
	// whoever chose it.
	Target string
	Name   string // a flag or a variable, the file, or the profile
	Line   int    // in the file; 0 is none
}

// String says it in a few words: "flag --target", "env TERMINAL_TIMEOUT",
// "/home/ada/.config/berth/config.toml:3".
func (o Origin) String() string {
	s := o.Name
	if o.Line > 0 {
		s += ":" + strconv.Itoa(o.Line)
	}
	switch {
	case o.Target != "":
		return "target " + o.Target + " (" + s + ")"
	case o.Layer == layerFlag:
		return "flag --" + o.Name
	case o.Layer == layerEnv:
		return "env " + o.Name
	case o.Layer == layerProfile:
		return "profile " + o.Name
	case o.Layer == layerDefault:
		return layerDefault
	}
	return s
}

// Names of the layers, strongest first.
const (
	layerFlag    = "flag"
	layerEnv     = "env"
	layerProject = "project"
	layerUser    = "user"
	layerProfile = "profile"
	layerDefault = "default"
)

// Value is what a key holds, and why. V is nil when the key is not set.
type Value struct {
	Key    *Key
	V      any
	Origin Origin
	line   int
}

// read takes the key's value out of a table. It returns nil when the key is not
// there, or after a complaint.
func (k *Key) read(t *strict.Reader) any {
	v := t.Take(k.leaf())
	if !v.Given() {
		return nil
	}
	return k.value(v)
}

func (k *Key) value(v strict.Value) any {
	got, ok := k.typed(v)
	if !ok {
		return nil
	}
	if k.Refused != "" {
		switch {
		case shown(got) == k.Only || empty(got):
		case k.Only != "":
			v.Failf("", "must be %s, found %s: %s", k.Only, shown(got), k.Refused)
		default:
			v.Failf("remove the key", "is not supported: %s", k.Refused)
		}
		return nil
	}
	if k.Check != nil {
		return k.Check(v, got)
	}
	return got
}

// otherBackends are what people name, and berth does not have by that name.
var otherBackends = map[string]string{
	"podman":         `did you mean "docker"?`,
	"vercel_sandbox": noVercel, "bubblewrap": noBubblewrap,
}

// typed reads a value of the key's type; ok is false after a complaint.
func (k *Key) typed(v strict.Value) (got any, ok bool) {
	switch k.Type {
	case Text:
		if k.Refused != "" { // its type is another program's affair
			return v.Source(), true
		}
		s := v.Text()
		return s, s != ""
	case Word:
		raw, _ := v.Raw()
		hint := otherBackends[raw]
		if meant := jobs.MeantBackend(raw); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		if k.Name == "terminal.backend" && hint != "" {
			v.Failf("", "must not be %q: %s", raw, hint)
			return nil, false
		} else if k.Name == "terminal.backend" && task.IsProgram(raw) {
			return raw, true
		}
		s := v.OneOf(k.Words...)
		return s, s != ""
	case Bool:
		if !v.Is(strict.Bool) {
			v.MustBe("true or false")
			return nil, false
		}
		return v.Bool(), true
	case Count:
		return k.count(v)
	case Size:
		return k.size(v)
	case Time:
		return k.time(v)
	case Path:
		s := v.Path()
		return s, s != ""
	case Image:
		s, _ := v.Raw()
		if images.IsTagged(s) {
			return "docker://" + s, true
		}
		if strings.Contains(s, "://") {
			s = v.Text()
			return s, s != ""
		}
		s = v.Path()
		return s, s != ""
	case List:
		return k.list(v)
	case Pairs:
		return pairs(v)
	case Tables:
		return tables(v)
	case Dollars:
		u := keys.USD(v)
		return u, u != 0
	case GPUs:
		s := keys.GPUs(v)
		return s, s != ""
	}
	v.MustBe("of a type that berth knows")
	return nil, false
}

func (k *Key) count(v strict.Value) (any, bool) {
	if k.Least == 0 && v.Is(strict.Int) && v.Whole() == 0 {
		return 0, true
	}
	n := v.Count(k.Most)
	return n, n != 0
}

// size reads a size, or 0 where that means no limit.
func (k *Key) size(v strict.Value) (any, bool) {
	if k.Least == 0 && zero(v) {
		return jobs.Bytes(0), true
	}
	b := keys.Size(v)
	return b, b != 0
}

// time reads a duration, or 0 where that means never.
func (k *Key) time(v strict.Value) (any, bool) {
	if k.Least == 0 && zero(v) {
		return time.Duration(0), true
	}
	d := keys.Duration(v)
	return d, d != 0
}

func zero(v strict.Value) bool {
	s := v.Source()
	return v.Is(strict.Int) && v.Whole() == 0 || v.Is(strict.String) && (s == "0" || s == "0s")
}

func (k *Key) list(v strict.Value) (any, bool) {
	if k.Refused != "" && !v.Is(strict.List) {
		return v.Source(), true
	}
	items := v.Items("strings")
	if items == nil && !v.Is(strict.List) {
		return nil, false
	}
	out := []string{}
	for _, item := range items {
		s := item.Text()
		if s == "" {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// pairs reads {NAME = "value"} or ["NAME=value"].
func pairs(v strict.Value) (any, bool) {
	out := []string{}
	if v.Is(strict.List) {
		for _, item := range v.Items(`"NAME=VALUE"`) {
			s, ok := item.Raw()
			if !ok {
				return nil, false
			}
			if !strings.Contains(s, "=") {
				item.Failf("", "has no =, found %q: write NAME=VALUE", s)
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	}
	if !v.Is(strict.Table) {
		v.MustBe(`a table such as {NAME = "value"}`)
		return nil, false
	}
	t := v.Table()
	for _, name := range t.Names() {
		item := t.Take(name)
		s, ok := item.Raw()
		if !ok {
			return nil, false
		}
		if strings.Contains(name, "=") {
			v.Failf("", "has the name %q, which holds a =", name)
			return nil, false
		}
		out = append(out, name+"="+s)
	}
	return out, true
}

// shown writes a value as people and flags do.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case jobs.USD:
		return v.String()
	case jobs.Bytes:
		if v == 0 {
			return "0"
		}
		return v.String()
	case time.Duration:
		if v == 0 {
			return "0"
		}
		return short(v)
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = literal(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return ""
}

// short writes a duration without the parts that are zero.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func empty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []string:
		return len(v) == 0
	}
	return v == nil
}

// String is the value as it is shown: a secret is not.
func (v Value) String() string {
	switch {
	case v.V == nil:
		return ""
	case v.Key.Secret:
		return "(secret)"
	case v.Key.Type == Pairs || v.Key.Type == Tables:
		// Only the names: values may be what people should not have put there.
		list, _ := v.V.([]string)
		out := make([]string, len(list))
		for i, kv := range list {
			name, _, _ := strings.Cut(kv, "=")
			out[i] = name + "=..."
		}
		return shown(out)
	}
	return shown(v.V)
}

// Get is the value in its own type; of nil it is the zero value.
func get[T any](v Value) T {
	got, _ := v.V.(T)
	return got
}

func isOneOf(s string, list []string) bool { return slices.Contains(list, s) }
