//go:build cluster

package ssh

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/backends/ssh"
	"berth/jobs"
)

// label marks what these tests make.
const label = "berth.test=ssh"

// host runs a program of this machine.
func host(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := tryHost(t, argv...)
	if err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return out
}

func tryHost(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	// Not ended with the test: clean-up runs programs too.
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer stop()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// site is a network with one or more servers, and a user here who knows them.
type site struct {
	t       *testing.T
	name    string
	image   string
	key     string // of alice
	known   string // known_hosts
	config  string // ssh_config
	program string // ssh with that configuration
	control string
	hostKey string // all servers have this one
}

// newSite makes the network and the keys.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, name: fmt.Sprintf("berth-test-ssh-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)}
	s.image = host(t, "docker", "inspect", "-f", "{{.Config.Image}}", cmp.Or(os.Getenv("BERTH_TESTBED"), "berth-tb")+"-24.11-login")
	dir, err := os.MkdirTemp("", "bssh") //nolint:usetesting // short: the paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.key, s.known, s.config, s.control, s.hostKey = dir+"/id", dir+"/known_hosts", dir+"/config", dir+"/c", dir+"/host"
	host(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "alice", "-f", s.key)
	host(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "host", "-f", s.hostKey)
	s.program = dir + "/ssh"
	s.write(s.config, "UserKnownHostsFile "+s.known+"\nGlobalKnownHostsFile /dev/null\nIdentityFile "+s.key+"\nIdentitiesOnly yes\nUser alice\n")
	// The user's own configuration is found through the home in the password
	// file, so a test has to name another one.
	s.write(s.program, "#!/bin/sh\nexec ssh -F "+s.config+" \"$@\"\n")
	if err := os.Chmod(s.program, 0o700); err != nil {
		t.Fatal(err)
	}
	host(t, "docker", "network", "create", "--label", label, s.name)
	t.Cleanup(func() {
		if _, err := tryHost(t, "docker", "network", "rm", s.name); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// server is one container with sshd.
type server struct {
	s             *site
	id, name, ip4 string
}

// setup makes a server of the testbed's bare image.
const setup = `set -e
install -d -o alice -g alice -m 700 /home/alice /home/alice/.ssh
install -m 600 /keys/host /etc/ssh/ssh_host_ed25519_key
install -o alice -g alice -m 600 /keys/id.pub /home/alice/.ssh/authorized_keys
mkdir -p /run/sshd
exec /usr/sbin/sshd -D -e -o UseDNS=no -o PerSourcePenalties=no -o PasswordAuthentication=no -o HostKey=/etc/ssh/ssh_host_ed25519_key "$@"`

// server starts a server; args are of docker run, and of sshd after "--".
func (s *site) server(name string, args ...string) *server {
	s.t.Helper()
	argv := []string{"docker", "run", "-d", "--init", "--cap-add", "NET_ADMIN", "--label", label, "--network", s.name, "--network-alias", name,
		"--hostname", name, "-v", filepath.Dir(s.key) + ":/keys:ro", "--entrypoint", "/bin/bash"}
	var sshd []string
	for i, a := range args {
		if a == "--" {
			args, sshd = args[:i], args[i+1:]
			break
		}
	}
	argv = append(append(argv, args...), s.image, "-c", setup, "sshd")
	id := host(s.t, append(argv, sshd...)...)
	v := &server{s: s, id: id, name: name}
	s.t.Cleanup(func() {
		if _, err := tryHost(s.t, "docker", "rm", "-f", "-v", id); err != nil {
			s.t.Error(err)
		}
	})
	v.ip4 = host(s.t, "docker", "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
	s.eventually("sshd on "+name, func() bool {
		out, _ := tryHost(s.t, "docker", "logs", id)
		return strings.Contains(out, "Server listening") || v.listens()
	})
	return v
}

// ended waits until no program of berth runs on a server, and none that it has
// begun: what has been told to end, and has said so, is there for a moment more.
func (v *server) ended() {
	v.s.t.Helper()
	v.s.eventually("the end of berth's programs", func() bool { return v.in("root", "pgrep -fc 'berth-nod[e]|slee[p]' || true") == "0" })
}

// listens tells whether a server says its first word.
func (v *server) listens() bool {
	out, _ := tryHost(v.s.t, "bash", "-c", "exec 3<>/dev/tcp/"+v.ip4+"/22 && head -c 4 <&3")
	return strings.Contains(out, "SSH-")
}

// in runs a shell text on a server, as root or another user.
func (v *server) in(user, text string) string {
	v.s.t.Helper()
	return host(v.s.t, "docker", "exec", "-u", user, v.id, "sh", "-c", text)
}

func (s *site) eventually(what string, done func() bool) {
	s.t.Helper()
	s.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
		if time.Now().After(end) {
			s.t.Fatal("not after five minutes: " + what)
		}
	}
}

// know makes the user here know a server's key, under more names.
func (s *site) know(names ...string) {
	s.t.Helper()
	pub, err := os.ReadFile(s.hostKey + ".pub")
	if err != nil {
		s.t.Fatal(err)
	}
	f, err := os.OpenFile(s.known, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for _, n := range names {
		if _, err := fmt.Fprintf(f, "%s %s\n", n, bytes.TrimSpace(pub)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// backend is what the tests drive.
func (s *site) backend() ssh.Backend {
	b := ssh.Backend{Program: s.program, Control: s.control}
	s.t.Cleanup(s.endMasters)
	return b
}

// masters are the processes on this machine that hold connections of ours.
func (s *site) masters() []string {
	out, _ := tryHost(s.t, "pgrep", "-f", "^ssh: "+s.control+"/.*\\[mux\\]")
	return strings.Fields(out)
}

func (s *site) endMasters() {
	for _, pid := range s.masters() {
		_, _ = tryHost(s.t, "kill", pid)
	}
	s.eventually("the end of the masters", func() bool { return len(s.masters()) == 0 })
}

func (s *site) host(spec jobs.SSHSpec) *ssh.Host {
	s.t.Helper()
	h, err := s.backend().Host(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}
