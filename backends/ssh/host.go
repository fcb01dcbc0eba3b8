package ssh

import (
	"os"
	"path/filepath"

	"berth/internal/node/nodebin"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Backend reaches hosts with the ssh program. Its zero value is usable.
type Backend struct {
	// On starts the ssh program; nil is this machine.
	On jobs.Starter
	// Program is ssh's name or path; "" is ssh.
	Program string
	// Env is the whole environment of the ssh program; nil is this process's.
	// It never reaches a command on the host. See [Environ].
	Env []string
	// Join uses a connection that stands and never makes a shared one. It is
	// for a job's runner, which ends all that it has started.
	Join bool
	// Control is a private directory for control sockets; "" is
	// $XDG_RUNTIME_DIR/berth or /tmp/berth-UID.
	Control string
	// Node gives the program for a host's system and architecture, as
	// [nodebin.For] does; nil is that.
	Node func(goos, goarch string) (nodebin.Program, bool)
}

// Host is one destination. It holds no connection and needs no closing; it is
// safe for concurrent use. As a [jobs.Starter] it runs commands there.
type Host struct {
	b       Backend
	spec    jobs.SSHSpec
	control string // directory, not yet made
	name    string // of the socket, without its end
}

var _ jobs.Starter = (*Host)(nil)

// Host returns a destination, when it is a well-formed one. It does not look
// whether it can be reached.
func (b Backend) Host(s jobs.SSHSpec) (*Host, error) {
	if err := CheckSpec(s); err != nil {
		return nil, err
	}
	if b.On == nil {
		b.On = run.Local{}
	}
	if b.Program == "" {
		b.Program = "ssh"
	}
	if b.Node == nil {
		b.Node = nodebin.For
	}
	h := &Host{b: b, spec: s, control: b.Control}
	if h.control == "" {
		h.control = controlDir(os.Getenv, "/tmp")
	}
	h.name = socketName(s, b.Program)
	return h, nil
}

// String names the destination for people: user@host:port.
func (h *Host) String() string { return where(h.spec) }

// fixed are the options of every call, after the user's own. What the user's
// ssh configuration says otherwise holds for host keys: by default ssh asks a
// person, and in batch mode that is a refusal of every host that is not known.
var fixed = []string{
	"-T", "-oRemoteCommand=none", // ours is the command; no terminal is wanted
	"-oClearAllForwardings=yes", // they are for the user's own logins, and their ports are taken
	"-oForwardAgent=no", "-oForwardX11=no", "-oPermitLocalCommand=no",
	"-oLogLevel=ERROR",
	"-oConnectTimeout=15", "-oServerAliveInterval=15", "-oServerAliveCountMax=3",
	"-oControlMaster=auto", "-oControlPersist=300",
}

// args is ssh's command line up to its words for the host. Pure.
func (h *Host) args(batch bool) []string {
	a := append([]string{h.b.Program}, own(h.spec)...)
	if h.b.Join {
		a = append(a, "-oControlMaster=no") // the first one counts
	}
	a = append(a, fixed...)
	a = append(a, "-oControlPath="+h.socket())
	if batch {
		a = append(a, "-oBatchMode=yes")
	}
	return a
}

// call is the whole command line that has the login shell read a line.
func (h *Host) call(batch bool, line string) []string {
	return append(h.args(batch), "--", h.spec.Host, line)
}

func (h *Host) socket() string { return filepath.Join(h.control, h.name+".ssh") }

// Environ picks from an environment what the ssh program may know in a job:
// enough to find its configuration, the agent and a Kerberos ticket.
func Environ(environ []string) []string {
	var out []string
	for _, v := range environ {
		for _, name := range []string{"PATH=", "HOME=", "USER=", "LOGNAME=", "LANG=", "SSH_AUTH_SOCK=", "KRB5CCNAME="} {
			if len(v) > len(name) && v[:len(name)] == name {
				out = append(out, v)
			}
		}
	}
	return out
}
