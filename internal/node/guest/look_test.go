//go:build linux

package guest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// listen has a socket in a directory, which is made.
func listen(t *testing.T, kind, path string) {
	t.Helper()
	if !strings.HasPrefix(path, "@") {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Chdir(filepath.Dir(path)) // the whole path may be too long
		path = filepath.Base(path)
	}
	a := &net.UnixAddr{Name: path, Net: kind}
	if kind == "unixgram" {
		c, err := net.ListenUnixgram(kind, a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return
	}
	l, err := net.ListenUnix(kind, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// TestLookBelow has sockets at their places in a root directory, and what is
// none beside them.
func TestLookBelow(t *testing.T) {
	root := t.TempDir()
	uid := strconv.Itoa(os.Getuid())
	want := map[string]string{
		"run/munge/munge.socket.2":                   "munge",
		"run/slurm/sack.socket":                      "Slurm",
		"run/slurmctld/sack.socket":                  "Slurm",
		"var/spool/slurmd/c1_17.0":                   "Slurm",
		"var/spool/slurm/d/c1_17.4294967291":         "Slurm",
		"tmp/ssh-Ab12/agent.17":                      "an SSH agent",
		"run/user/" + uid + "/keyring/ssh":           "an SSH agent",
		"run/user/" + uid + "/gnupg/S.gpg-agent.ssh": "a GnuPG agent",
		"run/.heim_org.h5l.kcm-socket":               "Kerberos tickets",
		"run/dbus/system_bus_socket":                 "D-Bus",
		"run/user/" + uid + "/bus":                   "D-Bus",
		"run/systemd/private":                        "systemd",
		"var/run/docker.sock":                        "a container daemon",
		"run/user/" + uid + "/podman/podman.sock":    "a container daemon",
		"run/containerd/containerd.sock":             "a container daemon",
		"var/lib/kubelet/pod-resources/kubelet.sock": "Kubernetes",
		"tmp/berth-" + uid + "/0a1b2c.sock":          "berth",
		"tmp/berth-" + uid + "-private-1/0a1b.ssh":   "berth",
		"run/user/" + uid + "/berth/0a1b-hold.sock":  "berth",
		"tmp/tmux-" + uid + "/default":               "tmux",
		"run/screen/S-ada/17.pts-0.c1":               "screen",
		"tmp/vscode-ipc-0a1b.sock":                   "an editor",
		"run/user/" + uid + "/vscode-git-0a.sock":    "an editor",
		"tmp/emacs" + uid + "/server":                "an editor",
		"tmp/.X11-unix/X0":                           "a display",
	}
	for p := range want {
		kind := "unix"
		if strings.HasSuffix(p, "private") {
			kind = "unixpacket"
		} else if strings.HasSuffix(p, "c1_17.0") {
			kind = "unixgram"
		}
		listen(t, kind, filepath.Join(root, p))
	}
	// Of no one, and of no interest.
	listen(t, "unix", filepath.Join(root, "run/postgresql/.s.PGSQL.5432"))
	listen(t, "unix", filepath.Join(root, "srv/app.sock"))
	stale := filepath.Join(root, "run/podman/podman.sock")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(stale))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "podman.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for _, f := range []string{"run/docker.sock", "run/munge/munge.key"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, s := range lookBelow(root, nil) {
		rel, _ := filepath.Rel(root, s.Path)
		got[rel] = s.What
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestLookTwice has a socket that two of its places lead to: it is told once, and
// always by the same one.
func TestLookTwice(t *testing.T) {
	root := t.TempDir()
	listen(t, "unix", filepath.Join(root, "run/munge/munge.socket.2"))
	if err := os.Mkdir(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	want := []jobs.Socket{{Path: filepath.Join(root, "run/munge/munge.socket.2"), What: "munge"}}
	for range 50 {
		if d := cmp.Diff(want, lookBelow(root, nil)); d != "" {
			t.Fatal(d)
		}
	}
}

// TestLookInMounts has directories of a host mounted elsewhere.
func TestLookInMounts(t *testing.T) {
	host := t.TempDir()
	for _, p := range []string{"run/munge/munge.socket.2", "run/docker.sock", "home/ada/.ssh/agent/s.x", "data/db.sock", "data/agent.sock", "tmp/vscode-ipc-0a1b.sock"} {
		listen(t, "unix", filepath.Join(host, p))
	}
	for _, c := range []struct {
		name, root, point, kind string
		want                    []string
	}{
		{"all of it", "/", "", "ext4", []string{"run/docker.sock", "run/munge/munge.socket.2", "tmp/vscode-ipc-0a1b.sock"}},
		{"/run, a tmpfs", "/", "run", "tmpfs", []string{"run/docker.sock", "run/munge/munge.socket.2"}},
		{"/run/munge", "/munge", "run/munge", "tmpfs", []string{"run/munge/munge.socket.2"}},
		{"/run/munge, of the root's file system", "/run/munge", "run/munge", "ext4", []string{"run/munge/munge.socket.2"}},
		{"one socket", "/docker.sock", "run/docker.sock", "tmpfs", []string{"run/docker.sock"}},
		{"/tmp, a tmpfs", "/", "tmp", "tmpfs", []string{"tmp/vscode-ipc-0a1b.sock"}},
		{"a home", "/home/ada", "home/ada", "nfs4", []string{"home/ada/.ssh/agent/s.x"}},
		{"data", "/data", "data", "ext4", nil},
		{"a socket of the data", "/data/db.sock", "data/db.sock", "ext4", nil},
		{"not a place of files", "/", "run", "proc", nil},
	} {
		var got []string
		for _, s := range lookBelow(t.TempDir(), []mount{{c.root, filepath.Join(host, c.point), c.kind}}) {
			rel, _ := filepath.Rel(host, s.Path)
			got = append(got, rel)
			if s.Mount != filepath.Join(host, c.point) {
				t.Errorf("%s: it is on the mount %q", c.name, s.Mount)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestLookAbstract(t *testing.T) {
	tail := strconv.Itoa(os.Getpid())
	for _, name := range []string{"@berth-test-munge-", "@berth-test/dbus-", "@berth-test-else-"} {
		listen(t, "unix", name+tail)
	}
	known, others := lookAbstract("/proc/net/unix")
	for _, want := range []jobs.Socket{{Path: "@berth-test-munge-" + tail, What: "munge"}, {Path: "@berth-test/dbus-" + tail, What: "D-Bus", Own: true}} {
		if !slices.Contains(known, want) {
			t.Errorf("%v is not among %v", want, known)
		}
	}
	if !slices.Contains(others, "@berth-test-else-"+tail) && len(others) < mostAbstract {
		t.Errorf("others: %v", others)
	}
	if known, others := lookAbstract("/nowhere"); known != nil || others != nil {
		t.Errorf("of nothing: %v, %v", known, others)
	}
	// Another user's bus decides by itself.
	if what, own := whose("@/tmp/dbus-x"); what != "D-Bus" || !own {
		t.Errorf("%s, %t", what, own)
	}
}

func TestLook(t *testing.T) {
	s := look()
	if !strings.HasPrefix(s.MountNamespace, "mnt:[") || !strings.HasPrefix(s.NetNamespace, "net:[") || len(s.Capabilities) != 16 || !slices.Contains(s.Looked, "munge") {
		t.Errorf("%+v", s)
	}
}

func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		look()
	}
}
