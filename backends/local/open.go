package local

import (
	"context"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

var _ jobs.Opener = Backend{}

// Environ is the environment of the guest on the bare host: an allow-list, so
// that tokens and agent sockets of whoever opened it do not reach commands.
func Environ(getenv func(string) string) []string {
	env := []string{}
	for _, n := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"} {
		if v := getenv(n); v != "" {
			env = append(env, n+"="+v)
		}
	}
	return env
}

// Open runs the guest itself, with the user's own HOME. Shells begin as login
// shells, which is where a host's modules and PATH come from.
func (b Backend) Open(_ context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if at.Attempt != nil {
		return &jobs.Opening{Env: Environ(os.Getenv), Home: jobs.HomeInside(os.Getenv, s.User), Level: b.Level(),
			Line: func(l jobs.LineAt) (argv, notes []string, err error) { return []string{l.Guest, "guest"}, nil, nil }}, nil
	}
	here, _ := b.Pipes(at.Dir)
	if err := disk.FreshDir(here); err != nil {
		return nil, err
	}
	return &jobs.Opening{
		Argv: []string{at.Guest, "guest"}, Env: Environ(os.Getenv), Login: true,
		Dir: s.Dir, Level: b.Level(), Memory: s.Resources.Memory,
	}, nil
}

// Pipes is a directory of the environment's, which the guest sees as it is.
func (Backend) Pipes(dir string) (here, inside string) {
	here = filepath.Join(dir, "io")
	return here, here
}

// Remove does nothing: all that was made is in the environment's directory.
func (Backend) Remove(context.Context, *jobs.EnvSpec, jobs.Starter) error { return nil }

// List finds nothing: there is nothing but the environment's directory.
func (Backend) List(context.Context, jobs.Starter) ([]jobs.Found, error) { return nil, nil }

// Reap is never asked for anything.
func (Backend) Reap(context.Context, jobs.Starter, jobs.Found) error { return nil }
