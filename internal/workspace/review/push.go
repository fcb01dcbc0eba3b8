package review

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/internal/workspace"
)

// CheckRemote refuses what cannot name a remote of a git repository: 1 to 100 letters,
// digits, ".", "_" and "-", beginning with a letter or a digit. An address is none.
func CheckRemote(name string) error {
	const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if name == "" || len(name) > 100 || !strings.Contains(first, name[:1]) || strings.Trim(name, first+"._-") != "" {
		return fmt.Errorf("%q is no name of a remote, such as origin", name)
	}
	return nil
}

// ErrNoRemote is that the repository has no remote of a name.
var ErrNoRemote = errors.New("there is no such remote")

// pushPassed are the variables by which the user's own git reaches a remote.
var pushPassed = []string{"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "KRB5CCNAME",
	"DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", // of helpers that have credentials
	"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"}

// Push gives a commit to a branch, by its full name, of the remote that the repository has
// by this name. It does so with the user's own configuration and credentials: a task's are
// not in its environment. It asks for nothing, runs no hook of the repository, pushes
// nothing else, and never by force. The context bounds its time.
func (r *Repo) Push(ctx context.Context, remote, commit, ref string) error {
	if err := CheckRemote(remote); err != nil {
		return &workspace.Error{Kind: workspace.ErrInvalid, Msg: err.Error()}
	}
	// An address that is a relative path is one from the top of the work tree.
	call := workspace.Call{GitDir: r.Src.Repo, Dir: r.Src.Top, User: r.User, Args: []string{"remote", "get-url", "--push", remote}}
	// ssh would ask on the terminal, where this process may not read (OpenSSH 8.4).
	call.Env = append(call.Env, "SSH_ASKPASS_REQUIRE=force", "SSH_ASKPASS=/bin/false")
	for _, name := range pushPassed {
		if v, ok := r.User(name); ok {
			call.Env = append(call.Env, name+"="+v)
		}
	}
	if _, err := r.Git.Line(ctx, call); err != nil {
		if workspace.ExitCode(err) > 0 {
			return &workspace.Error{Kind: ErrNoRemote, Msg: fmt.Sprintf("%q has no remote %s", r.Src.Repo, remote), Err: err}
		}
		return err
	}
	call.Args = []string{"push", "--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no", "--", remote, commit + ":" + ref}
	return r.Git.Do(ctx, call)
}
