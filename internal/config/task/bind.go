package task

import (
	"path"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
)

// kept are the places inside an environment that a bind may not cover: the
// workspace, berth's own directory, and the kernel's.
var kept = []string{"/work", "/.berth", "/proc", "/sys", "/dev"}

func binds(v strict.Value) []jobs.Mount {
	var out []jobs.Mount
	seen := map[string]bool{}
	for _, item := range v.Items(`"SOURCE:DESTINATION"`) {
		m, ok := bind(item)
		if !ok {
			continue
		}
		if seen[m.Destination] {
			item.Failf("", "has the destination %q a second time", m.Destination)
			continue
		}
		seen[m.Destination] = true
		out = append(out, m)
	}
	return out
}

func bind(v strict.Value) (jobs.Mount, bool) {
	switch {
	case v.Is(strict.Table):
		return bindTable(v)
	case !v.Is(strict.String):
		v.MustBe(`a string such as "/data:/data:ro", or a table with source and destination`)
		return jobs.Mount{}, false
	}
	s := v.Text()
	if s == "" {
		return jobs.Mount{}, false
	}
	parts := strings.Split(s, ":")
	if len(parts) > 3 {
		v.Failf("", "has more than two colons, found %q: write a table with source and destination for a path with a colon", s)
		return jobs.Mount{}, false
	}
	if len(parts) == 2 && (parts[1] == "ro" || parts[1] == "rw") {
		v.Failf("", "has no destination, found %q: write %q", s, parts[0]+":"+parts[0]+":"+parts[1])
		return jobs.Mount{}, false
	}
	m := jobs.Mount{}
	if len(parts) == 3 {
		switch parts[2] {
		case "ro":
		case "rw":
			m.Writable = true
		default:
			v.Failf("", "must end in :ro or :rw, found %q", s)
			return m, false
		}
	}
	if parts[0] == "" {
		v.Failf("", "has no source, found %q", s)
		return m, false
	}
	if m.Source = v.Resolve(parts[0]); m.Source == "" {
		return m, false
	}
	m.Destination = m.Source
	if len(parts) > 1 {
		m.Destination = parts[1]
	}
	return m, destination(v, m.Destination)
}

func bindTable(v strict.Value) (jobs.Mount, bool) {
	t := v.Table()
	t.Need("source", `"/data"`)
	source, dest := t.Take("source"), t.Take("destination")
	m := jobs.Mount{Source: source.Path(), Destination: dest.Text(), Writable: t.Take("writable").Bool()}
	if m.Source == "" || (dest.Given() && m.Destination == "") {
		return m, false
	}
	if !dest.Given() {
		dest, m.Destination = source, m.Source
	}
	return m, destination(v.On(dest), m.Destination)
}

// destination complains about a place where nothing may be bound.
func destination(v strict.Value, d string) bool {
	switch {
	case !path.IsAbs(d):
		v.Failf("", "has the destination %q, which is not an absolute path", d)
		return false
	case path.Clean(d) != d:
		v.Failf("", "has the destination %q: write %q", d, path.Clean(d))
		return false
	case d == "/":
		v.Failf("", `has the destination "/", which would cover the image`)
		return false
	}
	for _, k := range kept {
		if d == k || strings.HasPrefix(d, k+"/") {
			v.Failf("", "has the destination %q, and %s inside is not for binds", d, k)
			return false
		}
	}
	return true
}
