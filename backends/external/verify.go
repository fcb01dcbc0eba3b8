package external

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"berth/backends/external/protocol"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// The checks of what a program answers: each returns what it cannot mean.

var levels = []string{protocol.LevelNone, protocol.LevelFS, protocol.LevelEgress, protocol.LevelVM}

// tagForm is what a tag's value, or an owner, may be.
var tagForm = pattern.Lazy(`^[A-Za-z0-9._-]{1,63}$`)

// word checks a word of another program that goes into requests and tables.
func word(what, s string, needed bool) error {
	switch {
	case s == "" && needed:
		return fmt.Errorf("it gives no %s", what)
	case len(s) > protocol.MaxWord:
		return fmt.Errorf("its %s has more than %d bytes", what, protocol.MaxWord)
	case jobs.CheckText(what, s) != nil:
		return fmt.Errorf("its %s holds control characters: %.100q", what, s)
	case strings.HasPrefix(s, "-"):
		return fmt.Errorf("its %s begins with a dash: %.100q", what, s)
	}
	return nil
}

func (c *caller) checkChecked(k *protocol.Checked) error {
	bad := func(err error) error { return c.lied("its answer to check makes no sense", err) }
	if !slices.Contains(levels, k.Level) {
		return bad(fmt.Errorf("the level %.100q is none of %s", k.Level, strings.Join(levels, ", ")))
	}
	for _, w := range []struct {
		what  string
		words []string
		known []string
	}{
		{"limit", k.Limits, []string{protocol.LimitCPUs, protocol.LimitMemory, protocol.LimitDisk}},
		{"network", k.Network, []string{protocol.NetworkOpen, protocol.NetworkNone, protocol.NetworkAllow}},
		{"gpu", k.GPU, []string{"nvidia", "amd"}},
	} {
		for _, s := range w.words {
			if !slices.Contains(w.known, s) {
				return bad(fmt.Errorf("the %s %.100q is none of %s", w.what, s, strings.Join(w.known, ", ")))
			}
		}
	}
	for _, o := range k.Options {
		if err := word("option", o, true); err != nil {
			return bad(err)
		}
	}
	if k.MaxLifetimeSeconds < 0 {
		return bad(fmt.Errorf("the longest life is negative: %d", k.MaxLifetimeSeconds))
	}
	for _, q := range k.Quotas {
		if !sane(q.Used) || !sane(q.Limit) || word("quota", q.Name, true) != nil {
			return bad(fmt.Errorf("a quota is %.100q: %v of %v", q.Name, q.Used, q.Limit))
		}
	}
	k.Version, k.Service, k.Region = words(k.Version), words(k.Service), words(k.Region)
	k.Notes = lines(k.Notes)
	return nil
}

// sane tells whether an amount can be one.
func sane(f float64) bool { return f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

// lines makes printable lines of texts, and not too many.
func lines(list []string) []string {
	var out []string
	for _, s := range list[:min(len(list), 20)] {
		if s = words(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// checkOpened looks at an answer to the request r.
func (c *caller) checkOpened(o *protocol.Opened, r *protocol.Request) error {
	bad := func(err error) error { return c.lied("its answer to open makes no sense", err) }
	if err := word("ref", o.Ref, true); err != nil {
		return bad(err)
	}
	for _, p := range []struct {
		what, path string
		needed     bool
	}{{"guest", o.Guest, r.Guest != nil}, {"home", o.Home, false}} {
		if err := word(p.what, p.path, p.needed); err != nil {
			return bad(err)
		}
		if p.path != "" && !path.IsAbs(p.path) {
			return bad(fmt.Errorf("its %s is no absolute path: %.100q", p.what, p.path))
		}
	}
	states := []string{protocol.StateMade, protocol.StateFound, protocol.StateRestored, protocol.StateRebuilt}
	switch {
	case !slices.Contains(states, o.State):
		return bad(fmt.Errorf("the state %.100q is none of %s", o.State, strings.Join(states, ", ")))
	case o.Level != "" && !slices.Contains(levels, o.Level):
		return bad(fmt.Errorf("the level %.100q is none of %s", o.Level, strings.Join(levels, ", ")))
	case r.Guest != nil && o.Arch != r.Guest.Arch:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("the sandboxes of the backend %s have %.20s processors, and the guest of this machine is for %s",
				c.name, words(o.Arch), r.Guest.Arch),
			Hint: "use berth from a machine of that kind"}
	case o.Cost != nil && (!sane(o.Cost.PerHour) || !sane(o.Cost.StoppedPerHour)):
		return bad(fmt.Errorf("the cost is %v and %v an hour", o.Cost.PerHour, o.Cost.StoppedPerHour))
	}
	for _, d := range o.Dropped {
		if !slices.Contains(r.Spec.Soft, d) {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg:  fmt.Sprintf("the backend %s does not hold the limit %.20s, which was asked for", c.name, words(d)),
				Hint: "leave it out"}
		}
	}
	if o.Cost != nil {
		o.Cost.Currency, o.Cost.AsOf = words(o.Cost.Currency), words(o.Cost.AsOf)
	}
	o.Why, o.Notes = words(o.Why), lines(o.Notes)
	return nil
}

// checkFound looks at an answer to list, and leaves out what does not have the
// tags that were asked for: it is not ours.
func (c *caller) checkFound(list []protocol.Found, tags map[string]string) ([]protocol.Found, error) {
	if len(list) > protocol.MaxEntries {
		return nil, c.lied(fmt.Sprintf("its answer to list has %d entries", len(list)), nil)
	}
	if list == nil {
		return nil, c.lied("its answer to list makes no sense", errors.New("it gives nothing found"))
	}
	var out []protocol.Found
	for _, f := range list {
		for _, err := range []error{word("ref", f.Ref, true), word("name", f.Name, false)} {
			if err != nil {
				return nil, c.lied("its answer to list makes no sense", err)
			}
		}
		if ours(f.Tags, tags) && f.Tags[protocol.TagEnv] != "" {
			out = append(out, f)
		}
	}
	return out, nil
}

// ours tells whether something has all these tags.
func ours(has, tags map[string]string) bool {
	for k, v := range tags {
		if has[k] != v {
			return false
		}
	}
	return len(tags) > 0
}
