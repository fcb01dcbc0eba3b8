package config

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"berth/backends/ssh"
	"berth/internal/config/profile"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/jobs"
	"berth/jobs/store"
	"berth/templates"
)

// The checks of single keys: each gets a value of the right type, complains
// about what is wrong with it and returns nil then.

// targetName reads the name of a target, which names environments too.
func targetName(v strict.Value, got any) any {
	s, _ := got.(string)
	if err := store.CheckEnvName(s); err != nil {
		v.Failf("", "is not the name of a target: %q (lower-case letters, digits, dots, dashes and underscores, at most 64)", s)
		return nil
	}
	return s
}

func templateName(v strict.Value, got any) any {
	s, _ := got.(string)
	if err := templates.CheckWorkspaceName(s); err != nil {
		v.Failf("", "is not the name of a template: %q (%s)", s, jobs.HintOf(err))
		return nil
	}
	return s
}

// profileName reads a name, or a path.
func profileName(v strict.Value, got any) any {
	s, _ := got.(string)
	if v.InFile() && strings.Contains(s, "/") || strings.HasPrefix(s, "~") {
		if s = v.Path(); s == "" {
			return nil
		}
	}
	return s
}

func noTilde(v strict.Value, got any) any {
	s, _ := got.(string)
	if strings.HasPrefix(s, "~") && s != "~" && !strings.HasPrefix(s, "~/") {
		v.Failf("", "begins with ~USER, which is not expanded: write the path in full")
		return nil
	}
	return s
}

func binds(v strict.Value, _ any) any {
	// Each is kept as a word, with its source resolved.
	list := task.Binds(v)
	out := []string{}
	for _, m := range list {
		word := m.Source + ":" + m.Destination
		if m.Writable {
			word += ":rw"
		}
		if strings.Count(word, ":") > 2 || strings.Count(word, ":") == 2 && !m.Writable {
			v.Failf("use --bind for it", "has a path with a colon: %q", m.Source)
			return nil
		}
		out = append(out, word)
	}
	if len(out) != len(v.Items("binds")) {
		return nil
	}
	return out
}

func variableNames(v strict.Value, got any) any {
	list, _ := got.([]string)
	for _, n := range list {
		if why := task.BadVariable(n); why != "" {
			v.Failf("", "names the variable %q, which %s", n, why)
			return nil
		}
	}
	return got
}

func autoBackends(v strict.Value, got any) any {
	list, _ := got.([]string)
	for _, w := range list {
		if !slices.Contains(contained, w) {
			v.Failf("the words are singularity, docker and bwrap", "names %q, which \"auto\" cannot try", w)
			return nil
		}
	}
	return got
}

func variablePairs(v strict.Value, got any) any {
	list, _ := got.([]string)
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		if why := task.BadVariable(name); why != "" {
			v.Failf("", "names the variable %q, which %s", name, why)
			return nil
		}
		if err := jobs.CheckText("the value of "+name, value); err != nil {
			v.Fail(err)
			return nil
		}
	}
	return got
}

func scratchDir(v strict.Value, _ any) any {
	if s := profile.Scratch(v); s != "" {
		return s
	}
	return nil
}

func dockerImage(v strict.Value, got any) any {
	s, _ := got.(string)
	s = strings.TrimPrefix(s, "docker://")
	switch {
	case strings.Contains(s, "://"):
		v.Failf("", "must be a name such as \"debian:12\", found %q", s)
	case strings.HasPrefix(s, "-") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~"):
		v.Failf("", "must be a name such as \"debian:12\" and not a path, found %q", s)
	default:
		return s
	}
	return nil
}

func volumes(v strict.Value, got any) any {
	list, _ := got.([]string)
	for _, s := range list {
		if strings.HasPrefix(s, "-") {
			v.Failf("", "must hold volumes without flags, found %q", s)
			return nil
		}
	}
	return got
}

func dockerFlags(v strict.Value, got any) any {
	list, _ := got.([]string)
	if len(list) > 0 && !strings.HasPrefix(list[0], "-") {
		v.Failf("", "must begin with a flag, found %q", list[0])
		return nil
	}
	return got
}

// dockerSize reads sizes as docker writes them, too.
func dockerSize(v strict.Value, got any) any {
	s, _ := got.(string)
	if n := len(s) - 1; n > 0 && strings.Trim(s[:n], "0123456789") == "" {
		switch s[n] {
		case 'b', 'B':
			s = s[:n] + "B"
		case 'k', 'K':
			s = s[:n] + "KiB"
		case 'm', 'M':
			s = s[:n] + "MiB"
		case 'g', 'G':
			s = s[:n] + "GiB"
		}
	}
	b, err := jobs.ParseBytes(s)
	if err != nil {
		v.Fail(err)
		return nil
	}
	return b
}

func sshHost(v strict.Value, got any) any {
	s, _ := got.(string)
	h, err := jobs.ParseHost(s)
	if err == nil {
		err = ssh.CheckSpec(h)
	}
	if err != nil {
		v.Fail(err)
		return nil
	}
	return s
}

func sshUser(v strict.Value, got any) any {
	s, _ := got.(string)
	if err := ssh.CheckSpec(jobs.SSHSpec{Host: "h", User: s}); err != nil {
		v.Fail(err)
		return nil
	}
	return s
}

// httpsURL is where a key goes: not in the clear, but on this machine.
func httpsURL(v strict.Value, got any) any {
	s, _ := got.(string)
	u, err := url.Parse(s)
	if err == nil && u.Host != "" && u.User == nil {
		ip := net.ParseIP(u.Hostname())
		here := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
		if u.Scheme == "https" || u.Scheme == "http" && here {
			return s
		}
	}
	v.Failf("", "must be an address that begins with https://, or http:// on this machine, and holds no password")
	return nil
}
