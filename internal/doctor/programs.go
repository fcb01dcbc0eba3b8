package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"berth/backends/external"
	"berth/jobs"
)

// programLimit bounds what is asked of all of them, by the network.
const programLimit = 20 * time.Second

// subjectOf is what the line about a backend that is a program is called.
func subjectOf(name string) string { return "backend " + name }

// checkPrograms asks each backend that is a program: those that are installed,
// those that are in berth itself, and the one that is configured. One that is
// not configured need not work.
func checkPrograms(ctx context.Context, l *look) []Finding {
	if l.OnNode() {
		return nil // services are reached from where people are
	}
	names := append(external.Names(), slices.Collect(maps.Keys(l.Builtin))...)
	if jobs.IsProgram(l.Backend) {
		names = append(names, l.Backend)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var out []Finding
	for _, name := range names {
		out = append(out, checkProgram(ctx, l, name))
	}
	return out
}

func checkProgram(ctx context.Context, l *look, name string) Finding {
	b := &external.Backend{Word: name, On: l.On, Builtin: l.Builtin[name], Environ: func() []string { return append(os.Environ(), l.Keys...) }}
	if l.Options != nil {
		b.Options = func() map[string]string { return l.Options(name) }
	}
	got := b.Check(ctx)
	f := Finding{Subject: subjectOf(name), Configured: name == l.Backend, Why: got.Reason}
	if got.Health != jobs.Healthy {
		if f.Status, f.Do = Skip, got.Hint; f.Configured {
			f.Status = Fail
		}
		return f
	}
	f.Status, f.Why = OK, strings.TrimSpace(got.Version+" "+got.Reason)
	c, err := b.Checked(ctx)
	if err != nil {
		return f
	}
	f.Why += ", containment: " + c.Level
	for _, q := range c.Quotas {
		text := fmt.Sprintf("; %s: %g", q.Name, q.Used)
		if q.Limit > 0 {
			text += fmt.Sprintf(" of %g", q.Limit)
		}
		f.Why += text
	}
	return with(f, "version", c.Version, "level", c.Level, "region", c.Region)
}
