// Package bwrap is the backend for places without an image: bubblewrap shows the
// host's programs read-only, and everything else inside is the place's own. It
// needs no root, no daemon and no image.
package bwrap

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Backend makes places with bubblewrap.
type Backend struct {
	// On starts the program that [Backend.Check] asks; nil is only good for Argv.
	On jobs.Starter
}

var _ jobs.Opener = (*Backend)(nil)

// program is bubblewrap's name on the PATH.
const program = "bwrap"

// Name returns "bwrap".
func (*Backend) Name() string { return jobs.BackendBwrap }

// Level returns the containment of own files with the host's network.
func (*Backend) Level() jobs.Level { return jobs.LevelFS }

// checkLimit bounds one question to the program.
const checkLimit = 10 * time.Second

// hintUser is what to do where the namespaces are refused.
const hintUser = "the machine must allow user namespaces to ordinary users " +
	"(kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor's kernel.apparmor_restrict_unprivileged_userns); or name another --backend"

// Check makes a place with the namespaces that every one has, and leaves it.
func (b *Backend) Check(ctx context.Context) jobs.Checked {
	path, err := find()
	if err != nil {
		return jobs.Checked{Health: jobs.Undetected, Reason: err.Error(), Hint: jobs.HintOf(err)}
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	argv := append([]string{path}, namespaces...)
	argv = append(append(argv, system(false, false)...), "--", "/bin/true")
	if _, err := run.Output(ctx, b.On, jobs.Cmd{Argv: argv, Dir: "/", Env: []string{}}); err != nil {
		return jobs.Checked{Health: jobs.Unhealthy, Reason: err.Error(), Hint: hintUser}
	}
	return jobs.Checked{Health: jobs.Healthy, Reason: path, Version: version(ctx, b.On, path)}
}

// find returns the program's path.
func find() (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	host, _ := os.Hostname()
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "bubblewrap (the program bwrap) is not on the PATH of " + host,
		Hint: "install it (Debian, Fedora: the package bubblewrap), or name another --backend"}
}

// version is what the program says of itself, or "".
func version(ctx context.Context, on jobs.Starter, path string) string {
	b, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{path, "--version"}, Dir: "/", Env: []string{}})
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(b)), "bubblewrap ")
}

// Remove removes the files that stay, or were kept; all else is in the scratch directory.
func (*Backend) Remove(ctx context.Context, s *jobs.EnvSpec, on jobs.Starter) error {
	dir, err := store.OwnEnvDir(s)
	if err != nil || dir == "" {
		return err
	}
	for _, name := range []string{dirHome, dirTmp, dirVarTmp} {
		err = errors.Join(err, run.RemoveFiles(ctx, on, filepath.Join(dir, name)))
	}
	return err
}

// List finds nothing: there is nothing but the environment's directory.
func (*Backend) List(context.Context, jobs.Starter) ([]jobs.Found, error) { return nil, nil }

// Reap is never asked for anything.
func (*Backend) Reap(context.Context, jobs.Starter, jobs.Found) error {
	return errors.New("the backend bwrap leaves nothing to remove")
}
