package docker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"berth/jobs"
)

// Backend makes containers with docker or podman. Its zero value is good for
// Argv only.
type Backend struct {
	// On starts the programs that [Backend.Check] asks.
	On jobs.Starter
}

var (
	_ jobs.Opener  = (*Backend)(nil)
	_ jobs.Fetcher = (*Backend)(nil)
)

// Name returns "docker".
func (*Backend) Name() string { return jobs.BackendDocker }

// Level returns the containment of a container with an open network.
func (*Backend) Level() jobs.Level { return jobs.LevelFS }

// Check asks the daemon for its version, and waits for 5 s at most.
func (b *Backend) Check(ctx context.Context) jobs.Checked {
	p, err := find(b.On, "")
	if err != nil {
		return jobs.Checked{Health: jobs.Undetected, Reason: err.Error(), Hint: jobs.HintOf(err)}
	}
	out, err := p.ask(ctx, checkLimit, "version", "--format", "{{json .}}")
	if err != nil {
		return jobs.Checked{Health: jobs.Unhealthy, Reason: cause(err), Hint: jobs.HintOf(err)}
	}
	c := jobs.Checked{Health: jobs.Healthy, Reason: p.path, Version: serverVersion(out)}
	if c.Version == "" {
		c.Health, c.Reason, c.Hint = jobs.Unhealthy, p.path+" version printed no version", "try: "+p.path+" version"
	}
	return c
}

// cause is what the program said, without its name.
func cause(err error) string {
	var e *jobs.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// serverVersion reads "docker version": podman has no server of its own and
// tells its version as the client's.
func serverVersion(out string) string {
	var v struct{ Server, Client struct{ Version string } }
	if json.Unmarshal([]byte(out), &v) != nil {
		return ""
	}
	if v.Server.Version == "" && !strings.Contains(out, `"Server"`) {
		return v.Client.Version
	}
	return v.Server.Version
}
