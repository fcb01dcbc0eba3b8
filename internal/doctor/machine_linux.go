package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	boxes "berth/apptainer/examine"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/limits"
	"berth/internal/sys/purge"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/finding"
)

// number reads a file of /proc/sys, or "".
func (l *look) number(path string) string {
	b, err := os.ReadFile(l.path(path))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// checkNamespaces makes a user and a mount namespace, as berth does for the
// driver "kernel" and the container program for every container that is not setuid.
func checkNamespaces(ctx context.Context, l *look) []Finding {
	program := l.look("true")
	if program == "" {
		program = "/bin/true"
	}
	_, err := run.Output(ctx, l.On, jobs.Cmd{Argv: []string{program}, Dir: "/", Env: []string{}, OwnMounts: true})
	most := l.number("/proc/sys/user/max_user_namespaces")
	clone := l.number("/proc/sys/kernel/unprivileged_userns_clone")
	armor := l.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	data := []string{"works", yes(err == nil), "max", most, "apparmor", armor}
	if err == nil {
		f := Finding{Status: OK, Why: "tried: one can be made"}
		if armor == "1" {
			f.Status = Warn
			f.Why = "one can be made, but AppArmor takes the rights in it away (kernel.apparmor_restrict_unprivileged_userns = 1), " +
				"unless a profile allows the program"
			f.Do = boxes.HintAppArmor
		}
		return []Finding{with(f, data...)}
	}
	f := Finding{Status: Warn, Why: "none can be made: " + finding.LastLine(err.Error()),
		Do: boxes.HintNoNamespaces}
	switch {
	case most == "0":
		f.Why = "none can be made: user.max_user_namespaces is 0"
	case clone == "0":
		f.Why = "none can be made: kernel.unprivileged_userns_clone is 0"
	case armor == "1":
		f.Why = "none can be made: AppArmor forbids it (kernel.apparmor_restrict_unprivileged_userns = 1)"
	}
	return []Finding{with(f, data...)}
}

// checkFUSE looks for the device by which images and layers are mounted where
// no setuid program does it.
func checkFUSE(_ context.Context, l *look) []Finding {
	f, err := os.OpenFile(l.path("/dev/fuse"), os.O_RDWR, 0)
	if err != nil {
		why := "/dev/fuse cannot be opened: " + plainError(err)
		if os.IsNotExist(err) {
			why = "there is no /dev/fuse"
		}
		return []Finding{with(Finding{Status: Warn, Why: why,
			Do: "images must be unpacked without it, and layers be the kernel's: ask the site for the module fuse (modprobe fuse; mode 0666)"},
			"works", "no")}
	}
	_ = f.Close()
	mounter := or(l.look("fusermount3"), l.look("fusermount"))
	g := with(Finding{Status: OK, Why: "/dev/fuse can be opened"}, "works", "yes", "fusermount", mounter)
	if mounter == "" {
		g.Why += "; " + boxes.NoMounter
	}
	return []Finding{g}
}

// checkHeld tells what holds limits of memory and CPUs on this machine.
func checkHeld(ctx context.Context, l *look) []Finding {
	version := "1"
	if _, err := os.Stat(l.path("/sys/fs/cgroup/cgroup.controllers")); err == nil {
		version = "2"
	}
	data := []string{"cgroup", version}
	if in, job := batch.Here(l.Getenv); job.ID != "" {
		if g := container.OwnCgroup(l.path("/proc/self/cgroup"), l.path("/sys/fs/cgroup")).ForJob(in, job.ID); g != nil {
			why := "the cgroup (version " + version + ") of the Slurm job holds its memory"
			if n := g.Limit(); n != 0 {
				why += ": " + n.String()
			}
			return []Finding{with(Finding{Status: OK, Why: why}, append(data, "by", "job")...)}
		}
		return []Finding{with(Finding{Status: Warn,
			Why: "the Slurm job has no cgroup of its own that holds memory: what a task asks for is watched, advisory",
			Do:  "ask the site for ConstrainRAMSpace=yes in cgroup.conf"}, append(data, "by", "none")...)}
	}
	if p := limits.SystemdRun(); p != "" {
		if _, err := l.ask(ctx, nil, p, "--user", "--scope", "--quiet", "--collect", "true"); err == nil {
			return []Finding{with(Finding{Status: OK,
				Why: "a scope of the user's systemd holds memory and CPUs (cgroup version " + version + ")"}, append(data, "by", "systemd")...)}
		}
	}
	return []Finding{with(Finding{Status: Warn,
		Why: "no Slurm job and no systemd of this user: memory of environments of singularity is watched, " +
			"advisory, and CPUs are not held (docker holds its own)",
		Do: "open environments that need hard limits in a Slurm job, or with docker"}, append(data, "by", "none")...)}
}

// checkLogout tells whether what goes on in the background outlives a logout.
func checkLogout(_ context.Context, l *look) []Finding {
	if fi, err := os.Stat(l.path("/run/systemd/system")); err != nil || !fi.IsDir() {
		return one(Skip, "systemd is not the init of this machine: nothing ends a user's processes at logout, as far as it knows", "")
	}
	kill, file := "", ""
	for _, p := range confFiles(l.Where, "systemd", "logind.conf") {
		if b, err := os.ReadFile(p); err == nil {
			if v := iniValue(string(b), "Login", "KillUserProcesses"); v != "" {
				kill, file = v, strings.TrimPrefix(p, strings.TrimSuffix(l.Root, "/"))
			}
		}
	}
	if !slices.Contains([]string{"yes", "true", "1", "on"}, strings.ToLower(kill)) {
		return []Finding{with(Finding{Status: OK, Why: "processes outlive a logout (KillUserProcesses is " + or(kill, "not set") + ")"}, "kill", "no")}
	}
	if _, err := os.Stat(l.path(filepath.Join("/var/lib/systemd/linger", l.user()))); err == nil {
		return []Finding{with(Finding{Status: OK,
			Why: "KillUserProcesses = yes in " + file + ", and this user lingers: processes outlive a logout"}, "kill", "yes")}
	}
	return []Finding{with(Finding{Status: Warn, Why: "KillUserProcesses = yes in " + file + ": warm environments and local jobs end at logout",
		Do: "loginctl enable-linger, if the site allows it; or use environments in Slurm jobs"}, "kill", "yes")}
}

// confFiles are a configuration of systemd's and its drop-ins, the one that
// counts last (systemd's file-hierarchy: /etc over /run over /usr/lib, by name).
func confFiles(w Where, dir, name string) []string {
	var files []string
	byName := map[string]string{}
	for _, base := range []string{"/usr/lib", "/run", "/etc"} { // a later one takes the place of one of the same name
		if p := w.path(filepath.Join(base, dir, name)); exists(p) {
			files = []string{p}
		}
		drops, _ := filepath.Glob(w.path(filepath.Join(base, dir, name+".d", "*.conf")))
		for _, p := range drops {
			byName[filepath.Base(p)] = p
		}
	}
	var names []string
	for n := range byName {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		files = append(files, byName[n])
	}
	return files
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// iniValue returns the last value of a key in a section.
func iniValue(text, section, key string) (value string) {
	in := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			in = line[1 : len(line)-1]
			continue
		}
		if name, v, ok := strings.Cut(line, "="); ok && in == section && strings.TrimSpace(name) == key {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

// checkPurge looks for who removes old files from the scratch and the state
// directory. What a site does by scripts of its own cannot be read.
func checkPurge(_ context.Context, l *look) []Finding {
	var out []Finding
	scratch, _ := scratchBase(l.Where)
	for _, d := range []struct{ what, dir string }{{"scratch", scratch}, {"state", l.State}} {
		if d.dir == "" {
			continue
		}
		at, age := purge.Of(d.dir, l.Profile.Purge, l.Root)
		f := with(Finding{Subject: "purge of " + d.what, Status: OK, Why: "no age is set for " + d.dir + " in tmpfiles.d"}, "age", age)
		lasting := d.what == "state"
		switch {
		case age != "" && lasting:
			f.Status = Warn
			f.Why = "files below " + at + " that are not used for " + age + " are removed, records and layers too"
			f.Do = "set BERTH_HOME to a directory that is kept"
		case age != "":
			f.Why = "files below " + at + " that are not used for " + age + " are removed"
		case lasting && purge.Looks(d.dir):
			f.Status = Warn
			f.Why = d.dir + " looks like scratch, which sites purge after some weeks; their scripts cannot be read"
			f.Do = "ask the site; a directory that is kept is better for BERTH_HOME, " +
				"or say after how many days in the profile: purge = [\"" + d.dir + ":30\"]"
		}
		out = append(out, f)
	}
	return out
}

// checkNetwork tells how this machine reaches others. It contacts only the
// proxy, or the address, that is configured.
func checkNetwork(ctx context.Context, l *look) []Finding {
	routes, err := os.ReadFile(l.path("/proc/net/route"))
	six, err6 := os.ReadFile(l.path("/proc/net/ipv6_route"))
	if err != nil && err6 != nil {
		return one(Warn, "the routes cannot be read: "+plainError(err), "")
	}
	route := hasDefaultRoute(string(routes), string(six))
	var proxies []string
	data := []string{"route", yes(route)}
	for _, n := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		v := or(l.Getenv(n), l.Getenv(strings.ToUpper(n)))
		if v == "" {
			continue
		}
		if n != "no_proxy" {
			proxies = append(proxies, withoutPassword(v))
		}
		if !strings.Contains(v, "@") { // no password leaves the environment
			data = append(data, n, v)
		}
	}
	f := Finding{Status: OK}
	switch {
	case route && len(proxies) == 0:
		f.Why = "there is a default route, and no proxy is set"
	case route:
		f.Why = "there is a default route; proxies are set: " + strings.Join(slices.Compact(proxies), ", ")
	case len(proxies) > 0:
		f.Why = "no default route; proxies are set: " + strings.Join(slices.Compact(proxies), ", ")
		f.Do = "for jobs, name them in [proxy] of a profile"
	default:
		f.Status, f.Why = Warn, "no default route and no proxy: other networks are not reached, models and registries neither"
		f.Do = "ask the site for a proxy and name it in [proxy] of a profile; pull images where there is a network"
	}
	out := []Finding{with(f, data...)}
	var targets [][2]string
	for _, p := range []string{l.Profile.Proxy.HTTPS, l.Profile.Proxy.HTTP} {
		if p != "" && len(targets) == 0 {
			targets = append(targets, [2]string{"the profile's proxy", hostPort(p)})
		}
	}
	if l.Contact != "" {
		targets = append(targets, [2]string{"what is to be reached", hostPort(l.Contact)})
	}
	for _, t := range targets {
		out = append(out, l.connect(ctx, t[0], t[1]))
	}
	return out
}

// connect opens a connection and closes it. bash does it: package net would add
// its resolver to berth-node.
func (l *look) connect(ctx context.Context, what, address string) Finding {
	f := Finding{Subject: "connection to " + address, Status: OK, Configured: true, Why: what + " can be reached"}
	i := strings.LastIndexByte(address, ':')
	bash := l.look("bash")
	if bash == "" || i < 0 {
		f.Status, f.Why = Skip, "not tried: bash is not here"
		return f
	}
	host := strings.Trim(address[:i], "[]")
	if _, err := l.ask(ctx, nil, bash, "--noprofile", "--norc", "-c", `exec 3<>"/dev/tcp/$1/$2"`, "bash", host, address[i+1:]); err != nil {
		why := err.Error()
		if strings.Contains(why, "/dev/tcp/") {
			why = why[strings.LastIndex(why, ": ")+2:]
		}
		f.Status, f.Why, f.Do = Fail, what+" cannot be reached: "+why, "is the address right, and is it to be reached from "+hostname()+"?"
		if l.submits() && l.Contact == "" {
			f.Status, f.Configured, f.Do = Warn, false, "the nodes may reach it: berth doctor --on-node"
		}
	}
	return f
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "here"
	}
	return h
}

// hostPort returns the host and port of a URL or of HOST:PORT.
func hostPort(s string) string {
	port := "443"
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
		port = map[string]string{"http": "80", "socks5": "1080", "socks5h": "1080"}[scheme]
		if port == "" {
			port = "443"
		}
	}
	s, _, _ = strings.Cut(s, "/")
	s = s[strings.LastIndexByte(s, '@')+1:]
	if i := strings.LastIndexByte(s, ':'); i < 0 || strings.HasSuffix(s, "]") {
		return s + ":" + port
	}
	return s
}

// withoutPassword hides who a proxy is asked as.
func withoutPassword(s string) string {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s
	}
	scheme := ""
	if j := strings.Index(s, "://"); j >= 0 && j < i {
		scheme = s[:j+3]
	}
	return scheme + "(password)@" + s[i+1:]
}

// hasDefaultRoute reads /proc/net/route and /proc/net/ipv6_route.
func hasDefaultRoute(four, six string) bool {
	for line := range strings.Lines(four) {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && f[0] != "lo" {
			return true
		}
	}
	for line := range strings.Lines(six) {
		f := strings.Fields(line)
		if len(f) == 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && f[9] != "lo" && strings.Trim(f[4], "0") != "" {
			return true
		}
	}
	return false
}

// checkDevices looks which GPUs stand in this machine.
func checkDevices(_ context.Context, l *look) []Finding {
	nvidia, _ := filepath.Glob(l.path("/dev/nvidia[0-9]*"))
	amd := exists(l.path("/dev/kfd"))
	switch {
	case len(nvidia) > 0:
		return []Finding{with(Finding{Status: OK, Why: fmt.Sprintf("%d of NVIDIA", len(nvidia))}, "kind", "nvidia")}
	case amd:
		return []Finding{with(Finding{Status: OK, Why: "of AMD"}, "kind", "amd")}
	}
	return one(Skip, "this machine has none", "")
}
