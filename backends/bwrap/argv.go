package bwrap

import (
	"path"
	"slices"

	"berth/internal/sys/private"
	"berth/jobs"
)

// Where berth's own files stand inside.
const (
	guestDir  = "/.berth"
	guestPath = guestDir + "/node"
)

// namespaces are the flags of every place.
//
//   - --unshare-*: user, PID, IPC, UTS and (always with bwrap) mount namespaces of its
//     own. The user keeps their id, and has no capability.
//   - --die-with-parent: what runs inside does not outlive the keeper or the runner.
//   - --new-session: no way to the terminal of whoever opened it.
//   - --clearenv: nothing of the caller's environment.
var namespaces = []string{
	"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
	"--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
}

// programs are the host's directories that are seen read-only, where they exist.
// Below /etc only what programs need to run and to reach the network: /etc/ssl as a
// whole has private keys in it.
var programs = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/ca-certificates.conf",
	"/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust", "/etc/crypto-policies",
	"/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf",
	"/etc/services", "/etc/protocols", "/etc/localtime", "/etc/mime.types", "/etc/os-release",
}

// searched is PATH inside.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// system are the flags for what every place has of the host. For root the kernel's
// settings below /proc/sys could be written without a capability; a room's /proc has
// covers of its own, and the kernel mounts none below one that is covered.
func system(isolated, bareProc bool) []string {
	var argv []string
	if isolated {
		argv = append(argv, "--unshare-net")
	}
	for _, dir := range programs {
		argv = append(argv, "--ro-bind-try", dir, dir)
	}
	argv = append(argv, "--proc", "/proc")
	if !bareProc {
		argv = append(argv, "--ro-bind-try", "/proc/sys", "/proc/sys")
	}
	return append(argv, "--dev", "/dev")
}

// own are the place's own directories on the host.
type own struct {
	home   string // HOME
	inside string // where that is inside
	tmp    string // /tmp and /var/tmp are directories in it
	etc    string // has passwd and group
	keys   bool   // the kernel has lists of keys in /proc
	mounts []jobs.Mount
}

// render is the command line of one container.
func render(bwrap string, in jobs.Invocation, o own, covers []jobs.Mount, guestArgs []string) ([]string, error) {
	if err := refuse(in.Place, in.GPU); err != nil {
		return nil, err
	}
	argv := append([]string{bwrap}, namespaces...)
	if in.Hostname != "" {
		argv = append(argv, "--hostname", in.Hostname)
	}
	isolated, err := in.Isolated()
	if err != nil {
		return nil, err
	}
	argv = append(argv, system(isolated, in.BareProc())...)
	if o.keys && !in.BareProc() {
		argv = append(argv, "--ro-bind", "/dev/null", "/proc/keys", "--ro-bind", "/dev/null", "/proc/key-users")
	}
	argv = append(argv, "--ro-bind", o.etc+"/passwd", "/etc/passwd", "--ro-bind", o.etc+"/group", "/etc/group",
		"--bind", o.tmp+"/"+dirTmp, "/tmp", "--bind", o.tmp+"/"+dirVarTmp, "/var/tmp", "--bind", o.home, o.inside)
	for _, m := range slices.Concat([]jobs.Mount{{Source: in.Guest, Destination: guestPath}}, o.mounts, in.Mounts, covers) {
		if _, err := m.Word(); err != nil { // its paths
			return nil, err
		}
		flag := "--ro-bind"
		if m.Writable {
			flag = "--bind"
		}
		argv = append(argv, flag, m.Source, m.Destination)
	}
	// What bwrap itself has made, mount points above all, is in memory.
	argv = append(argv, "--remount-ro", "/", "--setenv", "PATH", searched, "--setenv", "LANG", "C.UTF-8", "--chdir", "/tmp", "--", guestPath)
	return append(argv, in.GuestWords(guestArgs)...), nil
}

// refuse refuses what bubblewrap does not have, and destinations that are not a
// task's to take.
func refuse(p jobs.Place, gpu string) error {
	const hint = "leave it out, or use --backend singularity"
	for _, k := range []struct {
		what string
		set  bool
	}{
		{"an image", p.Image != ""},
		{"an overlay", p.Overlay.Name != "" || p.Overlay.Driver != "" || p.Overlay.Size != 0},
		{"a disk limit", p.Resources.Disk != 0},
		{"GPUs", gpu != ""},
		{"fakeroot", p.Fakeroot},
		{"what only docker has", p.Docker != nil},
	} {
		if k.set {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: k.what + " is not available on the backend bwrap, which shows the host's own programs",
				Hint: hint}
		}
	}
	for _, m := range p.Mounts {
		d := path.Clean(m.Destination)
		if d == "/" || slices.ContainsFunc([]string{guestDir, "/proc", "/sys", "/dev"},
			func(k string) bool { return d != "/dev/shm" && private.Under(d, k) }) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "nothing may be mounted at " + m.Destination + " inside a container",
				Hint: "choose another destination, such as /data"}
		}
	}
	return nil
}

// Argv returns the command line of an attempt, as people read it in the script:
// what is known on the node only stands in braces. The runner renders it again there.
func (*Backend) Argv(in jobs.Invocation, guestArgs []string) ([]string, error) {
	scratch := jobs.PlaceholderScratch
	return render(program, in, own{home: scratch + "/home", inside: "{home}", tmp: scratch, etc: scratch}, nil, guestArgs)
}
