package ssh

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"berth/internal/sys/run"
	"berth/jobs"
)

// failed is ssh's exit code for its own failures, and for a command that a
// signal ended.
const failed = 255

// complaint is something that ssh says and what it means.
type complaint struct {
	re   *regexp.Regexp
	kind jobs.Kind
	msg  string // %s is the host
	hint func(h *Host, said string) string
}

// What ssh says, as of OpenSSH 7.4 to 10. The order counts: what is most
// telling comes first, because a jump host's complaints stand before those that
// follow from them.
//
// They are compiled when something has failed: this package is a part of the
// program for the nodes, which starts thousands of times.
var complaints = sync.OnceValue(func() []complaint {
	return []complaint{
		{regexp.MustCompile(`(?i)(?:bad|unsupported) (?:configuration )?option|bad owner or permissions on |configuration option: |` +
			`^command-line: |missing argument|(?:unsupported|bad|invalid) .* value`), jobs.KindConfig,
			"ssh does not accept its configuration for %s", func(*Host, string) string { return "correct ~/.ssh/config or the ssh options" }},
		{regexp.MustCompile(`HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed`), jobs.KindConfig,
			"the host key of %s has changed: another machine may be answering in its place", changedKey},
		{regexp.MustCompile(`Host key verification failed|No .* host key is known`), jobs.KindConfig,
			"the host key of %s is not known", func(h *Host, _ string) string {
				return "check its fingerprint once by hand: " + byHand(h.spec)
			}},
		{regexp.MustCompile(`UNPROTECTED PRIVATE KEY FILE|bad permissions`), jobs.KindAuth,
			"ssh refuses a key for %s that others can read", func(h *Host, _ string) string {
				if h.spec.Key != "" {
					return "chmod 600 " + anyShell(h.spec.Key)
				}
				return "chmod 600 the key file; " + byHand(h.spec, "-v") + " shows which"
			}},
		{regexp.MustCompile(`Permission denied \(|Too many authentication failures|` +
			`No (?:more )?supported authentication methods|Authentication failed`), jobs.KindAuth,
			"%s does not let us in", login},
		{regexp.MustCompile(`Could not resolve hostname|Name or service not known`), jobs.KindInfra,
			"the host name of %s cannot be resolved", func(h *Host, _ string) string { return "is it spelled right? " + byHand(h.spec) }},
		{regexp.MustCompile(`Connection refused`), jobs.KindInfra,
			"%s refuses connections", func(h *Host, _ string) string { return "does sshd run there, on that port? " + byHand(h.spec, "-v") }},
		{regexp.MustCompile(`(?i)(?:connection|operation) timed out|no route to host|network is unreachable|timed out during banner`), jobs.KindInfra,
			"%s cannot be reached", func(h *Host, _ string) string {
				return "is it up, and does the way there lead through a VPN or a jump host? " + byHand(h.spec, "-v")
			}},
	}
})

func changedKey(h *Host, said string) string {
	name := h.spec.Host
	// The name under which ssh knows it.
	if m := regexp.MustCompile(`Host key for (\S+) has changed`).FindStringSubmatch(said); m != nil && jobs.CheckText("", m[1]) == nil {
		name = m[1]
	}
	return "only if its administrators say that it has a new key: ssh-keygen -R " + anyShell(name) + ", then check the new fingerprint: " + byHand(h.spec)
}

// login says how a person lets us in.
func login(h *Host, said string) string {
	if k := h.spec.Key; k != "" && !strings.HasPrefix(k, "~") {
		if _, err := os.Stat(k); os.IsNotExist(err) {
			return "there is no key file " + k
		} else if err != nil && os.IsPermission(err) {
			return "the key file " + k + " cannot be read"
		}
	}
	if strings.Contains(said, "Too many authentication failures") {
		return "the agent offers too many keys; name one, with the ssh option IdentitiesOnly=yes"
	}
	return "a key with a passphrase: ssh-add; a password or a code: log in once by hand, and for five minutes berth uses that connection: " +
		byHand(h.spec, "-fN", "-oControlMaster=yes", "-oControlPersist=300", "-oControlPath="+h.socket())
}

// lost tells whether the server, or the way to it, ended before it had a word.
func lost(said string) bool {
	for _, words := range []string{"kex_exchange_identification", "UNKNOWN port 65535", "Connection closed by", "Connection reset by"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// explain turns what ssh said before anything began there into an error. What a
// jump host says is kept back by an ssh that means to hold the connection, so
// one that does not is asked in that case.
func (h *Host) explain(ctx context.Context, said string) error {
	said = strings.TrimSpace(said)
	if lost(said) {
		var again bytes.Buffer
		argv := append([]string{h.b.Program, "-oControlMaster=no", "-oControlPath=none", "-oBatchMode=yes"}, h.call(true, viaSh(":"))[1:]...)
		if _, err := run.Output(ctx, h.b.On, jobs.Cmd{Argv: argv, Env: h.b.Env, Stderr: &again}); err != nil && again.Len() > 0 {
			said = strings.TrimSpace(again.String())
		}
	}
	for _, c := range complaints() {
		if c.re.MatchString(said) {
			return &jobs.Error{Kind: c.kind, Msg: fmt.Sprintf(c.msg, h), Hint: c.hint(h, said), Err: quoted(said)}
		}
	}
	if lost(said) {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: h.String() + " ends connections before it greets", Err: quoted(said),
			Hint: "it may have too many at the moment, or be cross about failed attempts: try again in a minute; " + byHand(h.spec, "-v")}
	}
	if said == "" {
		said = "it ended without a word"
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "connect to " + h.String(), Err: quoted(said), Hint: "try by hand: " + byHand(h.spec, "-v")}
}

// notOurs is the end of a login shell that never ran our line.
func (h *Host) notOurs(exit jobs.Exit, said string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s lets us in, but its login shell runs no command for us (%s)", h, exit),
		Err: quoted(said),
		Hint: "it has to run: " + byHand(h.spec) + " 'exec /bin/sh -c true'; " +
			"if ~/.bashrc or ~/.profile there ends a shell that is not interactive (exit, exec), let it do so for interactive ones alone"}
}

// broke is a link that ended while something ran there.
func (h *Host) broke(said string) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the link to %s broke; what runs there goes on; what the command did is not known", h),
		Err:  quoted(said),
		Hint: "the next command finds it again"}
}

// startFailed is an ssh program that could not be started.
func (h *Host) startFailed(err error) error {
	if filepath.Base(h.b.Program) == h.b.Program && isNotFound(err) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no program " + h.b.Program + " here", Err: err,
			Hint: "install OpenSSH's client (Debian: apt-get install openssh-client)"}
	}
	return err
}

func isNotFound(err error) bool {
	return strings.Contains(err.Error(), "executable file not found") || os.IsNotExist(err) || strings.Contains(err.Error(), fs.ErrNotExist.Error())
}

// quoted makes a cause of what was said: its last words, on one line, without
// what a terminal would obey. Nil when nothing was said.
func quoted(said string) error {
	const most = 400
	said = strings.Join(strings.Fields(jobs.Printable(said)), " ")
	if said == "" {
		return nil
	}
	if r := []rune(said); len(r) > most {
		said = "..." + string(r[len(r)-most:])
	}
	return fmt.Errorf("ssh: %s", strings.TrimPrefix(said, "ssh: "))
}
