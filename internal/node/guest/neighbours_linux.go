package guest

import (
	"path"
	"strings"
)

// neighbour is a kind of socket by which a task could leave its container: whoever
// listens there does things for the user, or for root, on the host.
type neighbour struct {
	what string
	// paths are where such sockets stand, by path.Match; UID is the user's. One
	// without a leading slash is below a user's home.
	paths []string
	// abstract are parts of the names of abstract ones. They have no mode; own
	// are those that check who connects, and so matter only when they are the
	// user's own.
	abstract, own []string
}

// neighbours are all that is looked for. /var/run is /run on every system of the
// last ten years, and is looked at where it is not.
var neighbours = []neighbour{
	// Whoever reaches munge has credentials for Slurm, in which nothing else is
	// needed to have jobs outside of every container.
	{what: "munge", paths: []string{"/run/munge/*"}, abstract: []string{"munge"}},
	// Those of its steps, by which its programs talk to them, and of its servers
	// that make credentials (auth/slurm).
	{what: "Slurm", paths: []string{"/var/spool/slurm*/*", "/var/spool/slurm*/*/*", "/run/slurm*/*", "/run/slurmctld.sock"}, abstract: []string{"slurm"}},
	{what: "an SSH agent", paths: []string{
		"/tmp/ssh-*/agent.*", "/run/user/UID/keyring/ssh", "/run/user/UID/keyring/.ssh",
		"/run/user/UID/ssh-agent*", "/run/user/UID/openssh_agent", ".ssh/agent/*",
	}, own: []string{"ssh"}},
	{what: "a GnuPG agent", paths: []string{"/run/user/UID/gnupg/S.gpg-agent*", ".gnupg/S.gpg-agent*"}, own: []string{"gpg-agent"}},
	{what: "Kerberos tickets", paths: []string{"/run/.heim_org.h5l.kcm-socket"}},
	// By the user's own bus systemd starts services outside of the container.
	{what: "D-Bus", paths: []string{"/run/dbus/system_bus_socket", "/run/user/UID/bus", "/run/user/UID/dbus-*"}, own: []string{"dbus"}},
	{what: "systemd", paths: []string{"/run/systemd/private", "/run/user/UID/systemd/private"}, own: []string{"systemd"}},
	{what: "a container daemon", paths: []string{
		"/run/docker.sock", "/run/user/UID/docker.sock", "/run/podman/podman.sock", "/run/user/UID/podman/podman.sock",
		"/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock",
		"/run/user/UID/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
		"/run/crio/crio.sock", "/run/cri-dockerd.sock", "/run/buildkit/*.sock", "/run/user/UID/buildkit/*.sock",
		"/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
	}, abstract: []string{"docker.sock", "podman.sock"}},
	{what: "Kubernetes", paths: []string{"/var/lib/kubelet/pod-resources/*.sock", "/var/lib/kubelet/device-plugins/*.sock"}},
	// Berth's keepers run commands as the user, on the host itself with the backend
	// local; a control socket is a login elsewhere.
	{what: "berth", paths: []string{"/tmp/berth-*/*.sock", "/tmp/berth-*/*.ssh", "/run/user/UID/berth/*.sock", "/run/user/UID/berth/*.ssh"}},
	// What is typed there runs as the user; see alsoHidden of package container.
	{what: "tmux", paths: []string{"/tmp/tmux-UID/*", "/run/tmux/UID/*"}},
	{what: "screen", paths: []string{"/run/screen/S-*/*", "/run/screens/S-*/*", "/tmp/screens/S-*/*", "/tmp/uscreens/S-*/*", ".screen/*"}},
	{what: "an editor", paths: []string{
		"/tmp/vscode-*", "/run/user/UID/vscode-*", "/tmp/emacsUID/*", "/run/user/UID/emacs/*",
		"/tmp/nvim.*/*/*", "/run/user/UID/nvim.*",
	}},
	{what: "a display", paths: []string{"/tmp/.X11-unix/X*", "/run/user/UID/wayland-*"}},
	{what: "a virtual machine's host", paths: []string{"/run/libvirt/libvirt-sock", "/run/user/UID/libvirt/*-sock"}},
}

// pattern is one of the paths of a neighbour: its parts from some directory on.
type pattern struct {
	what  string
	parts []string
}

// patterns are all of them, from the root on; those below a home are apart.
func patterns(uid string) (rooted, homes []pattern) {
	for _, n := range neighbours {
		for _, p := range n.paths {
			parts := strings.Split(strings.TrimPrefix(strings.ReplaceAll(p, "UID", uid), "/"), "/")
			if !strings.HasPrefix(p, "/") {
				homes = append(homes, pattern{n.what, parts})
				continue
			}
			rooted = append(rooted, pattern{n.what, parts})
			if parts[0] == "run" {
				rooted = append(rooted, pattern{n.what, append([]string{"var"}, parts...)})
			}
		}
	}
	return rooted, homes
}

// fromMount are the patterns as they are seen from a mount point at which the
// directory root of some file system stands. What that directory is called on
// the host is only partly known, so they begin wherever they may: with any
// directory that has a name of its own, and with a socket where the root's path
// or the lack of one allows it.
func fromMount(rooted, homes []pattern, root string) (out []pattern) {
	is := strings.Split(strings.Trim(root, "/"), "/")
	for _, p := range rooted {
		last := len(p.parts) - 1
		for k, part := range p.parts {
			wild := strings.Contains(part, "*")
			// A name that begins with some letters of its own is looked for as well.
			wild = wild && strings.IndexByte(part, '*') < 4
			if k == 0 || fits(is, p.parts[:k]) || k < last && part != "*" || k == last && root == "/" && !wild {
				out = append(out, pattern{p.what, p.parts[k:]})
			}
		}
	}
	for _, p := range homes {
		out = append(out, p)
		if fits(is, p.parts[:1]) {
			out = append(out, pattern{p.what, p.parts[1:]})
		}
	}
	return out
}

// fits tells whether a path can be what a pattern's first parts say: its end is
// the same, as far as both go, and not by a bare "*" alone.
func fits(is, want []string) (named bool) {
	for i := 1; i <= min(len(is), len(want)); i++ {
		part := want[len(want)-i]
		if ok, _ := path.Match(part, is[len(is)-i]); !ok {
			return false
		}
		named = named || part != "*"
	}
	return named
}

// whose tells what an abstract name is known for, and whether it matters only
// when it is the user's own.
func whose(name string) (what string, own bool) {
	for _, n := range neighbours {
		for _, part := range n.abstract {
			if strings.Contains(name, part) {
				return n.what, false
			}
		}
		for _, part := range n.own {
			if strings.Contains(name, part) {
				what, own = n.what, true
			}
		}
	}
	return what, own
}
