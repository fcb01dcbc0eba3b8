package docker

import (
	"context"
	"encoding/json"
)

// About is what a daemon, or podman, says about itself.
type About struct {
	Program  string // its path
	Version  string
	Runc     string // version of the runtime, or ""
	Podman   bool
	Rootless bool // root inside is the user
	Memory   bool // limits that are held
	CPUs     bool
	Why      string // for one that is missing
}

// About asks the daemon for its version and for what it can hold. It waits for
// some 10 s, and a minute more for a daemon that has told its version.
func (b *Backend) About(ctx context.Context) (About, error) {
	p, err := find(b.On, "")
	if err != nil {
		return About{}, err
	}
	out, err := p.ask(ctx, checkLimit, "version", "--format", "{{json .}}")
	if err != nil {
		return About{Program: p.path}, err
	}
	a := About{Program: p.path, Version: serverVersion(out), Runc: runcVersion(out)}
	c, err := p.probe(ctx)
	if err != nil {
		return a, err
	}
	a.Podman, a.Rootless, a.Memory, a.CPUs, a.Why = c.podman, c.rootless, c.memory, c.cpus, c.why
	return a, nil
}

// runcVersion finds runc among the components that "docker version" lists.
func runcVersion(out string) string {
	var v struct {
		Server struct {
			Components []struct{ Name, Version string }
		}
	}
	if json.Unmarshal([]byte(out), &v) != nil {
		return ""
	}
	for _, c := range v.Server.Components {
		if c.Name == "runc" {
			return c.Version
		}
	}
	return ""
}
