// Package local is the backend that contains nothing: the command runs on the
// host itself, with the user's rights. It is used only when it is named.
package local

import (
	"context"

	"berth/jobs"
)

// Backend runs the guest on the bare host.
type Backend struct{}

// Name returns "local".
func (Backend) Name() string { return jobs.BackendLocal }

// Level returns that nothing is contained.
func (Backend) Level() jobs.Level { return jobs.LevelNone }

// Check is always healthy: it needs nothing.
func (Backend) Check(context.Context) jobs.Checked {
	return jobs.Checked{Health: jobs.Healthy, Reason: "no containment"}
}

// Argv runs the guest itself.
func (Backend) Argv(p jobs.Invocation, guestArgs []string) ([]string, error) {
	return append([]string{p.Guest}, guestArgs...), nil
}
