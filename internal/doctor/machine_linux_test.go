package doctor

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

func TestLogout(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"no systemd", map[string]string{"/etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, "skip systemd is not the init"},
		{"not set", map[string]string{"/etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, "ok is not set"},
		{"yes", map[string]string{"/etc/systemd/logind.conf": "[Login]\nKillUserProcesses = yes\n"}, "warn KillUserProcesses = yes in /etc/systemd/logind.conf"},
		{"of another section", map[string]string{"/etc/systemd/logind.conf": "[Sleep]\nKillUserProcesses=yes\n"}, "ok"},
		{"a drop-in", map[string]string{"/etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n", "/usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nKillUserProcesses=yes\n"}, "warn /usr/lib/systemd/logind.conf.d/50-site.conf"},
		{"the later drop-in", map[string]string{"/usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nKillUserProcesses=yes\n", "/run/systemd/logind.conf.d/60-x.conf": "[Login]\nKillUserProcesses=no\n"}, "ok is no"},
		{"the one of /etc", map[string]string{"/usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nKillUserProcesses=yes\n", "/etc/systemd/logind.conf.d/50-site.conf": "[Login]\n"}, "ok is not set"},
		{"lingers", map[string]string{"/etc/systemd/logind.conf": "[Login]\nKillUserProcesses=1\n", "/var/lib/systemd/linger/USER": ""}, "ok lingers"},
	} {
		w := where(t)
		l := newLook(t.Context(), w.withDefaults())
		for path, text := range c.files {
			put(t, w, strings.Replace(path, "USER", l.user(), 1), text)
		}
		if c.name != "no systemd" {
			put(t, w, "/run/systemd/system/x", "")
		}
		expect(t, c.name, lookAt(t, w, "logout"), c.want)
	}
}

func TestPurge(t *testing.T) {
	w := where(t)
	state := filepath.Join(w.Getenv("HOME"), "state")
	w.State = "/project/ada/berth"
	put(t, w, "/run/systemd/system/x", "")
	put(t, w, "/usr/lib/tmpfiles.d/tmp.conf", "q /tmp 1777 root root 10d\nq /var/tmp 1777 root root 30d\nx /tmp/keep\n")
	expect(t, "a shipped age", lookAt(t, w, "purge"), "ok files below /tmp that are not used for 10d", "ok no age is set")
	put(t, w, "/etc/tmpfiles.d/tmp.conf", "# not\nD /tmp 1777 root root -\n")
	expect(t, "the site's own file", lookAt(t, w, "purge"), "ok no age is set", "ok no age is set")
	put(t, w, "/etc/tmpfiles.d/project.conf", "e /project - - - aAmM:14d\n")
	expect(t, "the state", lookAt(t, w, "purge"), "ok", "warn files below /project that are not used for 14d are removed")
	w.State = "/scratch/ada/berth"
	expect(t, "scratch", lookAt(t, w, "purge"), "ok", "warn looks like scratch")
	w.State = state
}

func TestNetwork(t *testing.T) {
	const (
		head  = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
		deflt = head + "eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
		local = head + "eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
		six   = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe80000000000000021132fffe112233 00000400 00000001 00000000 00000003     eth0\n"
		lo    = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
	)
	for _, c := range []struct {
		name, four, six string
		env             map[string]string
		want            string
	}{
		{"a route", deflt, "", nil, "ok default route, and no proxy"},
		{"of six only", local, six + lo, nil, "ok default route"},
		{"nothing", local, lo, nil, "warn no default route and no proxy"},
		{"a proxy", local, lo, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}, "ok no default route; proxies are set: http://proxy:3128"},
		{"a proxy with a password", deflt, "", map[string]string{"https_proxy": "http://ada:hush@proxy:3128"}, "ok http://(password)@proxy:3128"},
	} {
		w := where(t)
		put(t, w, "/proc/net/route", c.four)
		put(t, w, "/proc/net/ipv6_route", c.six)
		old := w.Getenv
		w.Getenv = func(n string) string { return or(c.env[n], old(n)) }
		got := lookAt(t, w, "network")
		expect(t, c.name, got, c.want)
		if s := got[0].Why + got[0].Data["https_proxy"]; strings.Contains(s, "hush") {
			t.Errorf("%s: %s", c.name, s)
		}
	}
	for s, want := range map[string]string{"http://p:3128": "p:3128", "https://p/": "p:443", "http://p": "p:80", "p:1": "p:1", "p": "p:443", "socks5://a:b@[fd00::1]": "[fd00::1]:1080", "http://[::1]:8/x": "[::1]:8"} {
		if got := hostPort(s); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

// TestConnect: only what is configured is connected to, and its failure counts.
func TestConnect(t *testing.T) {
	w := where(t)
	put(t, w, "/proc/net/route", "")
	env := map[string]string{"PATH": "/usr/bin:/bin"}
	w.Getenv = func(n string) string { return env[n] }
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := itoa(at.(*syscall.SockaddrInet4).Port)
	w.Profile.Proxy.HTTPS = "http://127.0.0.1:" + port
	got := lookAt(t, w, "network")
	expect(t, "nobody listens", got, "warn", "fail the profile's proxy cannot be reached")
	if !got[1].Configured {
		t.Error("a proxy that is configured is not reached, and that does not count")
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	expect(t, "somebody listens", lookAt(t, w, "network"), "warn", "ok can be reached")
}

func TestState(t *testing.T) {
	w := where(t)
	put(t, w, "/proc/self/mountinfo", "21 1 8:1 / / rw,noexec - nfs4 filer:/x rw\n")
	w.State = filepath.Join(w.Getenv("HOME"), "a", "b")
	expect(t, "missing", lookAt(t, w, "state"), "ok NFS, ", "ok NFS: they hold on this machine; whether between two")
	if err := os.MkdirAll(w.State, 0o700); err != nil {
		t.Fatal(err)
	}
	before := names(t, w.State)
	expect(t, "there", lookAt(t, w, "state"), "ok NFS", "ok")
	if after := names(t, w.State); before != after {
		t.Errorf("left %s", after)
	}
	w.On = refusing{&fs.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EACCES}}
	got := lookAt(t, w, "state")
	expect(t, "noexec", got, "fail programs cannot be run there, and berth's has to be on the nodes: permission denied")
	if got[0].Data["noexec"] != "yes" {
		t.Error("the profile is not told")
	}
	w.On = nil
	if err := os.Chmod(w.State, 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, "open", lookAt(t, w, "state"), "fail is open to other users")
	w.State += "/file"
	if err := os.WriteFile(w.State, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, "a file", lookAt(t, w, "state"), "fail is no directory")
	w.State = "relative"
	expect(t, "relative", lookAt(t, w, "state"), "fail is not an absolute path")
	w = where(t)
	w.Getenv = func(string) string { return "" }
	expect(t, "none", lookAt(t, w, "state"), "fail there is no place for the state")
}

func TestScratch(t *testing.T) {
	w := where(t)
	dir := w.Getenv("TMPDIR")
	for kind, want := range map[string]string{"xfs": "ok xfs", "nfs4": "warn NFS", "tmpfs": "warn tmpfs", "fuse.x": "warn fuse.x (FUSE)"} {
		put(t, w, "/proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/x rw\n22 21 8:1 / "+dir+" rw - "+kind+" x rw\n")
		expect(t, kind, lookAt(t, w, "scratch"), want)
	}
	if left := names(t, dir); left != "" {
		t.Errorf("left %s", left)
	}
	w.Profile.Scratch = "/no/such/place"
	expect(t, "missing", lookAt(t, w, "scratch"), "fail the profile's scratch directory /no/such/place is not on this node")
	w.Profile.Scratch = "/local/$SLURM_JOB_ID"
	bin := programs(t, map[string]string{"sbatch": ""})
	old := w.Getenv
	w.Getenv = func(n string) string { return or(map[string]string{"PATH": bin}[n], old(n)) }
	expect(t, "of a job", lookAt(t, w, "scratch"), "skip SLURM_JOB_ID, which is not set")
	w.Where = "node"
	expect(t, "of a job, on its node", lookAt(t, w, "scratch"), "fail SLURM_JOB_ID, which is not set")
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		room room
		want Status
	}{
		{room{100 * jobs.GiB, 1 << 20, true}, OK}, {room{jobs.GiB, 1 << 20, true}, Warn}, {room{jobs.MiB, 1 << 20, true}, Fail},
		{room{100 * jobs.GiB, 5000, true}, Warn}, {room{100 * jobs.GiB, 7, true}, Fail}, {room{100 * jobs.GiB, 0, false}, OK},
	} {
		f := Finding{Status: OK}
		if c.room.judge(&f, "/x"); f.Status != c.want || (f.Do == "") != (c.want == OK) {
			t.Errorf("%v: %+v", c.room, f)
		}
	}
}

func TestOverQuota(t *testing.T) {
	for out, want := range map[string]string{
		"Disk quotas for user ada (uid 1000): none":                                                             "",
		"Filesystem  blocks quota limit grace files quota limit grace\n/dev/sda1  1024* 1000 1200 6days 10 0 0": "/dev/sda1  1024* 1000 1200 6days 10 0 0",
		"/lus 10G 20G 30G - 5000* 4000 6000 -":                                                                  "/lus 10G 20G 30G - 5000* 4000 6000 -",
		"* a remark *":                                                                                          "", "": "",
	} {
		if got := overQuota(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

// noNamespaces starts programs, but none in namespaces of its own.
type noNamespaces struct{ run.Local }

func (n noNamespaces) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if c.OwnMounts {
		return nil, &os.SyscallError{Syscall: "fork/exec", Err: syscall.ENOSPC}
	}
	return n.Local.Start(ctx, c)
}

func TestNamespaces(t *testing.T) {
	w := where(t)
	w.On = noNamespaces{}
	expect(t, "no reason", lookAt(t, w, "namespaces"), "warn none can be made: ")
	put(t, w, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
	expect(t, "AppArmor", lookAt(t, w, "namespaces"), "warn AppArmor forbids it")
	put(t, w, "/proc/sys/user/max_user_namespaces", "0\n")
	expect(t, "none allowed", lookAt(t, w, "namespaces"), "warn user.max_user_namespaces is 0")
}

func TestHeld(t *testing.T) {
	w := where(t)
	env := map[string]string{"SLURM_JOB_ID": "17"}
	w.Getenv = func(n string) string { return env[n] }
	expect(t, "hidden", lookAt(t, w, "limits"), "warn no cgroup of its own")
	put(t, w, "/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0\n")
	put(t, w, "/sys/fs/cgroup/cgroup.controllers", "memory")
	put(t, w, "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/memory.max", "104857600\n")
	put(t, w, "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0/memory.events", "oom_kill 0\n")
	expect(t, "held", lookAt(t, w, "limits"), "ok the cgroup (version 2) of the Slurm job holds its memory: 100MiB")
}

func TestFUSE(t *testing.T) {
	w := where(t)
	expect(t, "none", lookAt(t, w, "fuse"), "warn there is no /dev/fuse")
	put(t, w, "/dev/fuse", "")
	expect(t, "there", lookAt(t, w, "fuse"), "ok can be opened; no fusermount3")
	if os.Geteuid() != 0 {
		if err := os.Chmod(w.path("/dev/fuse"), 0); err != nil {
			t.Fatal(err)
		}
		expect(t, "closed", lookAt(t, w, "fuse"), "warn permission denied")
	}
}
