package config

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/config/strict"
	"berth/jobs"
	"berth/jobs/store"
)

// place is a key as it is named on a command line: one of the table, or one of
// a target's or a project's.
type place struct {
	key  *Key // nil is projects.DIR.allow
	path []string
}

// short keys of a target, and what each stands for.
var targetWords = map[string]string{
	"scheduler": "scheduler", "profile": "profile", "backend": "terminal.backend",
	"host": "terminal.ssh_host", "ssh_key": "terminal.ssh_key",
}

// locate finds a key by its dotted name; parts may stand in quotes.
func locate(name string) (place, error) {
	parts, ok := splitKey(name)
	if !ok {
		return place{}, &jobs.Error{Kind: jobs.KindUsage, Msg: literal(name) + " is not a key",
			Hint: `such as terminal.timeout, or projects."/home/ada/src".allow`}
	}
	switch {
	case parts[0] == "targets" && len(parts) >= 3:
		if store.CheckEnvName(parts[1]) != nil {
			return place{}, &jobs.Error{Kind: jobs.KindUsage, Msg: literal(parts[1]) + " is not the name of a target",
				Hint: "lower-case letters, digits, dots, dashes and underscores, at most 64"}
		}
		rest := strings.Join(parts[2:], ".")
		if len(parts) == 3 {
			if k := Find(targetWords[rest]); k != nil {
				return place{k, parts}, nil
			}
		} else if k := Find(rest); k != nil && !ofUser(parts[2]) {
			return place{k, parts}, nil
		}
		var have []string
		for w := range targetWords {
			have = append(have, w)
		}
		slices.Sort(have)
		for _, n := range names() {
			if top, _, ok := strings.Cut(n, "."); ok && !ofUser(top) {
				have = append(have, n)
			}
		}
		return place{}, unknownKey(name, "targets."+parts[1]+".", strict.Nearest(rest, have))
	case parts[0] == "targets" && len(parts) < 3:
		return place{}, &jobs.Error{Kind: jobs.KindUsage, Msg: literal(name) + " is no key, but a table of them",
			Hint: "such as targets.lake.scheduler or targets.lake.terminal.docker_image; berth config show --target NAME shows what holds there"}
	case parts[0] == "projects" && len(parts) == 3 && parts[2] == "allow":
		return place{nil, parts}, nil
	}
	if k := Find(name); k != nil {
		if k.Refused != "" && k.Only == "" {
			return place{}, &jobs.Error{Kind: jobs.KindUsage, Msg: name + " is not supported: " + k.Refused}
		}
		return place{k, parts}, nil
	}
	for _, p := range foreignPrefixes {
		if strings.HasPrefix(name, "terminal."+p[0]) {
			return place{}, &jobs.Error{Kind: jobs.KindUsage, Msg: name + " is not supported: " + p[1]}
		}
	}
	return place{}, unknownKey(name, "", nearestKey(name))
}

// nearestKey is the key that was most likely meant: of those whose last part
// is the word, else the nearest whole name, else the nearest last part.
func nearestKey(name string) string {
	all := names()
	if !strings.Contains(name, ".") {
		for _, n := range all {
			if strings.HasSuffix(n, "."+name) {
				return n
			}
		}
		var leaves []string
		for i := range Keys() {
			leaves = append(leaves, Keys()[i].leaf())
		}
		if leaf := strict.Nearest(name, leaves); leaf != "" {
			return all[slices.Index(leaves, leaf)]
		}
	}
	if near := strict.Slip(name, all, 2); near != "" {
		return near
	}
	return strict.Nearest(name, all)
}

func unknownKey(name, prefix, near string) error {
	e := &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown key " + literal(name), Hint: "berth config show lists the keys"}
	if near != "" {
		e.Msg += ": did you mean " + prefix + near + "?"
	}
	return e
}

// splitKey splits a dotted key whose parts may stand in double quotes.
func splitKey(name string) (parts []string, ok bool) {
	for rest := name; ; {
		part := ""
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, false
			}
			if part, err = strconv.Unquote(quoted); err != nil {
				return nil, false
			}
			rest = rest[len(quoted):]
		} else {
			i := strings.IndexByte(rest+".", '.')
			part, rest = rest[:i], rest[i:]
		}
		if part == "" || jobs.CheckText("", part) != nil {
			return nil, false
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, true
		}
		if !strings.HasPrefix(rest, ".") {
			return nil, false
		}
		rest = rest[1:]
	}
}

// Lookup returns what holds for a key by its dotted name, one of a target's
// too.
func (c *Config) Lookup(name string) (Value, error) {
	p, err := locate(name)
	if err != nil {
		return Value{}, err
	}
	if p.key != nil && len(p.path) > 2 && p.path[0] == "targets" {
		return c.ofTarget(p)
	}
	if p.key == nil {
		dir := p.path[1]
		return Value{Key: &Key{Name: name, Type: List}, V: c.allowed(dir), Origin: Origin{Layer: layerUser, Name: c.userPath()}}, nil
	}
	return c.Get(name), nil
}

func (c *Config) ofTarget(p place) (Value, error) {
	var t *target
	if c.user != nil {
		t = c.user.targets[p.path[1]]
	}
	if t == nil {
		return Value{}, c.noTarget(Value{}, p.path[1])
	}
	switch {
	case len(p.path) == 3 && p.path[2] == "host" && t.login != nil:
		return *t.login, nil
	case len(p.path) == 3 && p.path[2] == "ssh_key" && t.key != nil:
		return *t.key, nil
	}
	if v, ok := t.values[p.key.Name]; ok {
		return v, nil
	}
	return Value{Key: p.key}, nil
}

// JSON is the value for programs: in its own type, and a secret not at all.
func (v Value) JSON() any {
	switch got := v.V.(type) {
	case jobs.Bytes, time.Duration, jobs.USD:
		return shown(got)
	case nil:
		return nil
	}
	if v.Key.Secret || v.Key.Type == Pairs || v.Key.Type == Tables {
		return v.String()
	}
	if _, err := json.Marshal(v.V); err != nil {
		return v.String()
	}
	return v.V
}
