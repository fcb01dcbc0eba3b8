package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/link/sshserver"
	"berth/internal/sys/disk"
	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
)

func (a *app) sshConfigCmd() *cobra.Command {
	var write bool
	c := &cobra.Command{
		Use: "ssh-config [flags] | ssh-config COMMAND",
		Long: `Print lines for OpenSSH's configuration: a host berth-NAME for each environment, and
berth-ID for each job that has not ended. With --write they go into a file of berth's own,
which ~/.ssh/config can include; berth never changes that one. Run it again when there are
others.

ssh then starts berth ssh-config proxy, which speaks SSH on its own standard input and
output: nothing listens, no key or account is needed, and the image needs no ssh server.
rsync needs rsync inside; scp, sftp and PyCharm need sftp-server inside (Debian:
openssh-sftp-server). Agents, X11 and ports of your machine are never forwarded inside.
` + exitHelp + `0 ok, 2 usage, 5 a record or a file is not readable or writable, 78 the state directory
is open to others, or its path cannot stand in such a file.`,
		Example: `  berth ssh-config --write       # once: it says what ~/.ssh/config needs
  ssh berth-train
  rsync -a data/ berth-train:data/
  ssh -L 8888:localhost:8888 berth-28fc56a4`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sshConfig(cmd, write) },
	}
	c.Flags().BoolVar(&write, "write", false, "write them to the file ssh-config/config in the state directory")
	c.AddCommand(a.sshProxyCmd())
	return c
}

func (a *app) sshProxyCmd() *cobra.Command {
	var f envFlags
	var j joinFlags
	c := &cobra.Command{
		Use: "proxy [flags] [JOB]", Short: "speak SSH on stdin and stdout: the ProxyCommand",
		Long: `Be the ssh server of an environment, or of the place of a running job, for one client on
stdin and stdout. Commands begin at HOME in an environment, with the variables of its
image, and beside a job in its task's directory; they run side by side. What one leaves
in the background goes on in an environment, and ends with the connection beside a job.
` + exitHelp + `0 the client has left, 2 usage, 3 no such job or environment, 5 the environment or the
connection failed, 75 the job does not run yet.`,
		Example: `  ssh -o ProxyCommand='berth ssh-config proxy --env train' train`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if cmd.Flags().Changed("env") {
					return usage("give a job or --env, not both")
				}
				j.job = args[0]
			} else if cmd.Flags().Changed("wait") {
				return usage("--wait goes with a job")
			}
			if isTerminal(a.stdin) {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "it speaks SSH with a program on stdin, and that is a terminal",
					Hint: "berth shell opens a terminal inside; berth ssh-config --write has ssh start this"}
			}
			return a.sshProxy(cmd, &f, &j)
		},
	}
	f.pick(c)
	j.add(c)
	return c
}

// sshFiles are what ssh reads of berth's, in a directory of the state directory.
type sshFiles struct{ dir string }

// sshFiles opens the engine, and returns these files and the host key, made where they are not.
func (a *app) sshFiles() (e *engine.Engine, f sshFiles, key ssh.Signer, err error) {
	if e, err = a.engine(); err != nil {
		return e, f, nil, err
	}
	f.dir = filepath.Join(e.Store.Home(), "ssh-config")
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return e, f, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make the directory for ssh's files", Err: err}
	}
	key, err = f.key()
	return e, f, key, err
}

func (f sshFiles) config() string     { return filepath.Join(f.dir, "config") }
func (f sshFiles) knownHosts() string { return filepath.Join(f.dir, "known_hosts") }

// key returns the host key, which is made once.
func (f sshFiles) key() (ssh.Signer, error) {
	path := filepath.Join(f.dir, "host_key")
	data, err := disk.ReadRegular(path, 1<<14)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostKey(path); err == nil || errors.Is(err, fs.ErrExist) {
			data, err = disk.ReadRegular(path, 1<<14)
		}
	}
	var signer ssh.Signer
	if err == nil {
		signer, err = ssh.ParsePrivateKey(data)
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the host key for ssh, " + path, Err: err,
			Hint: "if it is damaged: remove it, and berth ssh-config --write makes another"}
	}
	return signer, nil
}

func makeHostKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "berth")
	if err != nil {
		return err
	}
	return disk.Create(path, pem.EncodeToMemory(block), 0o600)
}

// sshHostAlias is the name under which ssh knows the host key of all places: berth itself
// is the server.
const sshHostAlias = "berth"

// sshHost is a host of ssh's, and the words of berth ssh-config proxy for it.
type sshHost struct {
	name  string
	words []string
}

// sshHosts are the environments, and the jobs that have not ended.
func (a *app) sshHosts(ctx context.Context, e *engine.Engine) ([]sshHost, error) {
	envs, err := e.Environments()
	if err != nil && len(envs) == 0 {
		return nil, err
	} else if err != nil {
		a.say("warning: %v", err)
	}
	var out []sshHost
	taken := map[string]bool{}
	for _, v := range envs {
		h := sshHost{"berth-" + v.Spec.Name, []string{"--env", v.Spec.Name}}
		taken[h.name] = true
		out = append(out, h)
	}
	recs, err := e.Store.ListOpen()
	if err != nil && recs == nil {
		return nil, err
	} else if err != nil {
		a.say("warning: %v", err)
	}
	for _, v := range e.Reconcile(ctx, recs) {
		id := v.Spec.ID
		h := sshHost{"berth-" + jobs.Short(id), []string{id}}
		if taken[h.name] {
			h.name = "berth-" + id
		}
		if !v.State.Final() && !taken[h.name] {
			taken[h.name] = true
			out = append(out, h)
		}
	}
	return out, nil
}

func (a *app) sshConfig(cmd *cobra.Command, write bool) error {
	e, files, key, err := a.sshFiles()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "find the path of berth", Err: err}
	}
	for what, path := range map[string]string{"the state directory": files.dir, "the path of berth": program} {
		if err := sshPath(what, path); err != nil {
			return err
		}
	}
	hosts, err := a.sshHosts(cmd.Context(), e)
	if err != nil {
		return err
	}
	known := append([]byte(sshHostAlias+" "), ssh.MarshalAuthorizedKey(key.PublicKey())...)
	if err := replaceOther(files.knownHosts(), known); err != nil {
		return err
	}
	text := sshText(hosts, []string{"env", "BERTH_HOME=" + e.Store.Home(), program, "ssh-config", "proxy"}, files.knownHosts())
	if !write {
		_, err = io.WriteString(a.stdout, text)
		return err
	}
	if err := replaceOther(files.config(), []byte(text)); err != nil {
		return err
	}
	for _, h := range hosts {
		if _, err := fmt.Fprintln(a.stdout, h.name); err != nil {
			return err
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		own, _ := os.ReadFile(filepath.Join(home, ".ssh", "config")) // it may not be there yet
		if bytes.Contains(own, []byte(files.config())) {
			return nil
		}
	}
	a.say("put this first in ~/.ssh/config, once: Include %s", sshQuote(files.config()))
	return nil
}

// replaceOther replaces a file that has other content.
func replaceOther(path string, data []byte) error {
	if old, err := disk.ReadRegular(path, 1<<24); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := disk.Replace(path, data, 0o600); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "write " + path, Err: err}
	}
	return nil
}

// sshPath refuses a path that ssh, or the shell of which it starts the ProxyCommand, would
// read as something else.
func sshPath(what, path string) error {
	if strings.ContainsAny(path, "\"'\\$`!*?[]") || jobs.CheckText(what, path) != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s, %q, cannot stand in a file of ssh's", what, path),
			Hint: "use one of letters, digits, spaces and ._-+=@~%/"}
	}
	return nil
}

// sshQuote is a path as a file of ssh's has it.
func sshQuote(path string) string { return `"` + path + `"` }

// sshPercent keeps ssh from seeing one of its tokens in a text.
func sshPercent(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// sshText is the file for ssh.
func sshText(hosts []sshHost, proxy []string, knownHosts string) string {
	var b strings.Builder
	b.WriteString("# Hosts of berth. Made by berth ssh-config, which replaces what is written here.\n")
	for _, h := range hosts {
		command := shellescape.QuoteCommand(append(proxy[:len(proxy):len(proxy)], h.words...))
		fmt.Fprintf(&b, "\nHost %s\n", h.name)
		for _, line := range []string{
			"ProxyCommand " + sshPercent(command),
			"HostKeyAlias " + sshHostAlias,
			"UserKnownHostsFile " + sshQuote(sshPercent(knownHosts)),
			"GlobalKnownHostsFile /dev/null",
			"StrictHostKeyChecking yes",
			"UpdateHostKeys no",
			"IdentitiesOnly yes",
			"IdentityAgent none",
			"PubkeyAuthentication no",
			"PasswordAuthentication no",
			"ForwardAgent no",
			"ForwardX11 no",
		} {
			b.WriteString("    " + line + "\n")
		}
	}
	return b.String()
}

// sshProxy serves the client on stdin and stdout.
func (a *app) sshProxy(cmd *cobra.Command, f *envFlags, j *joinFlags) error {
	_, _, key, err := a.sshFiles()
	if err != nil {
		return err
	}
	place := &sshPlace{app: a}
	if j.job != "" {
		joined, err := a.join(cmd, j)
		if err != nil {
			return err
		}
		defer joined.Close()
		a.notes(joined.Notes())
		place.commands, place.service = joined, joined
	} else {
		v, err := a.meant(cmd, jobs.EnvOptions{Name: f.name})
		if err != nil {
			return err
		}
		defer v.Close()
		if v.OneShot() != nil {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + v.Spec.Backend + " runs single commands, and has no connections",
				Hint: "berth exec --env " + v.Spec.Name + " -- COMMAND"}
		}
		notes, err := v.Open(cmd.Context())
		if err != nil {
			return err
		}
		a.notes(notes)
		s, err := v.Session("ssh")
		if err != nil {
			return err
		}
		place.commands, place.service, place.dir = s, v, "~"
	}
	err = sshserver.Serve(cmd.Context(), stdio{a.stdin, a.stdout}, key, place)
	if err != nil && cmd.Context().Err() == nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "ssh's client", Err: err, Hint: "berth ssh-config shows how ssh is to be called"}
	}
	return err
}

// stdio is the connection of a ProxyCommand.
type stdio struct {
	io.Reader
	io.Writer
}

func (s stdio) Close() error {
	for _, v := range []any{s.Reader, s.Writer} {
		if c, ok := v.(io.Closer); ok {
			_ = c.Close()
		}
	}
	return nil
}

// sshPlace is an environment, or the place of a job, for ssh.
type sshPlace struct {
	app      *app
	commands interface {
		executor
		Shell(context.Context, engine.ShellRequest) (*engine.ExecResult, error)
	}
	service service
	dir     string // in which commands begin; "" is the place's own
}

// sftpServer runs the program that a distribution has somewhere else than in PATH.
const sftpServer = `p=$(command -v sftp-server) || for p in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib/sftp-server ''; do
	p=${p:+$p/sftp-server}
	[ -n "$p" ] && [ -x "$p" ] && break
done
[ -n "$p" ] && exec "$p"
echo 'berth: error: there is no sftp-server inside, which scp and sftp need
berth: hint: install it (Debian: openssh-sftp-server, Alpine: openssh-sftp-server, Fedora: openssh-server), or copy by berth cp' >&2
exit 127`

// plainShell is a shell that reads commands from stdin.
const plainShell = `if command -v bash >/dev/null; then exec bash; fi; exec sh`

func (p *sshPlace) Run(ctx context.Context, c sshserver.Command) int {
	var res *engine.ExecResult
	var err error
	if c.Terminal != nil && !c.SFTP {
		req := engine.ShellRequest{Dir: p.dir, Env: c.Env, Size: *c.Terminal, Resized: c.Resized, Stdin: c.Stdin, Stdout: c.Stdout}
		req.Command.Shell = c.Line
		res, err = p.commands.Shell(ctx, req)
	} else {
		req := engine.ExecRequest{Dir: p.dir, Env: c.Env, Timeout: -1, Fork: true, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr}
		switch {
		case c.SFTP:
			req.Command.Shell = sftpServer
		case strings.TrimSpace(c.Line) == "":
			req.Command.Shell = plainShell
		default:
			req.Command.Shell = c.Line
		}
		res, err = p.commands.Exec(ctx, req)
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(c.Stderr, "berth: "+format+"\r\n", args...) }
	if res != nil {
		for _, n := range res.Notes {
			say("note: %s", n)
		}
	}
	if err != nil {
		say("error: %v", err)
		return codeExec
	}
	if res.Exit.Error != "" {
		say("error: %s", res.Exit.Error)
	}
	return res.Code
}

func (p *sshPlace) Connect(ctx context.Context, port int, conn io.ReadWriter) {
	if err := p.service.Connect(ctx, port, conn); err != nil && ctx.Err() == nil {
		p.app.say("warning: %v", err)
	}
}
