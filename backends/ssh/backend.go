package ssh

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
)

var _ jobs.Backend = Backend{}

// Name returns "ssh".
func (Backend) Name() string { return jobs.BackendSSH }

// Level returns that nothing is contained: a command has all the rights of the
// user on the host.
func (Backend) Level() jobs.Level { return jobs.LevelNone }

// Check tells whether there is an ssh program here. It looks at no host.
func (b Backend) Check(ctx context.Context) jobs.Checked {
	on, program := b.On, b.Program
	if on == nil {
		on = run.Local{}
	}
	if program == "" {
		program = "ssh"
	}
	var said bytes.Buffer
	if _, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{program, "-V"}, Env: b.Env, Stderr: &said}); err != nil {
		if isNotFound(err) {
			return jobs.Checked{Health: jobs.Undetected, Reason: "there is no program " + program,
				Hint: "install OpenSSH's client (Debian: apt-get install openssh-client)"}
		}
		hint := "does " + program + " -V work?"
		if strings.Contains(err.Error(), "No user exists for uid") { // ssh takes no name from USER
			hint = program + " runs only for users of the user database: getent passwd $(id -u) asks it; LDAP or sssd may be down"
		}
		return jobs.Checked{Health: jobs.Unhealthy, Reason: err.Error(), Hint: hint}
	}
	version, _, _ := strings.Cut(jobs.Printable(strings.TrimSpace(said.String())), ",")
	return jobs.Checked{Health: jobs.Healthy, Reason: "no containment: a command has all the rights of the user on the host", Version: version}
}

// Argv returns the command line that runs the guest of a job on the host of
// p.SSH; it never makes a shared connection, see Join. The base name of p.Guest is the program's there, in ~/.local/state/berth/bin,
// where [Host.Install] puts it.
func (b Backend) Argv(p jobs.Invocation, guestArgs []string) ([]string, error) {
	if p.SSH == nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the backend ssh needs a host",
			Hint: "--host HOST, or berth config set terminal.ssh_host HOST"}
	}
	b.Join = true
	h, err := b.Host(*p.SSH)
	if err != nil {
		return nil, err
	}
	line := "exec ~/" + binDir + "/" + anyShell(filepath.Base(p.Guest))
	for _, a := range guestArgs {
		if err := jobs.CheckText(fmt.Sprintf("a word for the guest on %s", h), a); err != nil {
			return nil, err
		}
		line += " " + anyShell(a)
	}
	return h.call(true, line), nil
}
