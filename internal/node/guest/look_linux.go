package guest

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sys/socket"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// look tells what the guest finds of its place: where it is, with which rights,
// and which sockets of the host it can reach. It takes some system calls for each
// mount, and much less than a millisecond.
func look() jobs.Seen {
	s := jobs.Seen{MountNamespace: namespace("mnt"), PIDNamespace: namespace("pid"), NetNamespace: namespace("net"), UserNamespace: namespace("user")}
	s.Devices = devices("/proc/self/net/dev")
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); name {
		case "NoNewPrivs":
			s.NoNewPrivs = value == "1"
		case "CapEff":
			s.Capabilities = value
		}
	}
	for _, n := range neighbours {
		s.Looked = append(s.Looked, n.what)
	}
	s.Sockets = lookBelow("/", mounts())
	known, others := lookAbstract("/proc/net/unix")
	s.Sockets, s.Abstract = append(s.Sockets, known...), others
	return s
}

// devices reads a list of network devices (proc(5)), without the loopback. Where there
// is no list, that stands in place of a name.
func devices(list string) (out []string) {
	b, err := os.ReadFile(list)
	if err != nil {
		return []string{"unknown: " + err.Error()}
	}
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
			out = append(out, name)
		}
	}
	return out
}

func namespace(name string) string {
	ns, _ := os.Readlink("/proc/self/ns/" + name)
	return ns
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	root  string // of the file system, what stands at the point
	point string
	kind  string
}

// unescape are what the kernel writes for characters that would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func mounts() (out []mount) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		kind := strings.Fields(after)
		if ok && len(f) > 4 && len(kind) > 0 {
			out = append(out, mount{unescape.Replace(f[3]), unescape.Replace(f[4]), kind[0]})
		}
	}
	return out
}

// kernels are file systems without sockets.
var kernels = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "securityfs", "debugfs",
	"tracefs", "bpf", "devtmpfs", "hugetlbfs", "pstore", "fusectl", "binfmt_misc",
}

// lookBelow looks for sockets at their usual places below root, and in all that
// is mounted there, wherever it stands.
func lookBelow(root string, mounts []mount) []jobs.Socket {
	s := &search{}
	rooted, homes := patterns(strconv.Itoa(os.Getuid()))
	s.walk(root, rooted)
	views := map[string][]pattern{}
	for _, m := range mounts {
		// What berth has mounted itself holds the task's clone, and nothing that
		// could listen.
		if m.point == root || m.point == jobs.WorkDir || strings.HasPrefix(m.point, "/.berth/") || slices.Contains(kernels, m.kind) {
			continue
		}
		var st unix.Stat_t
		switch err := unix.Stat(m.point, &st); {
		case err != nil: // another mount is over it, or it is behind a closed directory
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			if views[m.root] == nil {
				views[m.root] = fromMount(rooted, homes, m.root)
			}
			s.walk(m.point, views[m.root])
		case st.Mode&unix.S_IFMT == unix.S_IFSOCK: // mounted alone
			for _, p := range rooted {
				if fits(strings.Split(strings.Trim(m.root, "/"), "/"), p.parts) {
					s.try(m.point, p.what)
				}
			}
		}
	}
	for i, f := range s.found {
		s.found[i].Mount = mountOf(f.Path, mounts)
	}
	return s.found
}

// mountOf is the mount point that a path is on; "" is the image's own root.
func mountOf(p string, mounts []mount) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real
	}
	best := ""
	for _, m := range mounts {
		if m.point != "/" && len(m.point) >= len(best) && (p == m.point || strings.HasPrefix(p, m.point+"/")) {
			best = m.point
		}
	}
	return best
}

// search collects sockets that can be reached.
type search struct {
	found []jobs.Socket
	tried [][2]uint64 // device and inode
}

// mostNames bounds what is read of a directory. In a larger one only names that
// are known are looked for.
const mostNames = 2048

func (s *search) walk(dir string, want []pattern) {
	if len(want) == 0 {
		return
	}
	var names []string
	complete := false
	// The root of a container may be slow to list and is never interesting.
	if dir != "/" {
		d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
			names, _ = d.Readdirnames(mostNames)
			_ = d.Close()
			complete = len(names) < mostNames
		case !errors.Is(err, os.ErrPermission): // such a one may still be entered
			return
		}
	}
	next := map[string][]pattern{}
	for _, p := range want {
		for _, name := range candidates(p.parts[0], names, complete) {
			if len(p.parts) == 1 {
				s.try(filepath.Join(dir, name), p.what)
			} else {
				next[name] = append(next[name], pattern{p.what, p.parts[1:]})
			}
		}
	}
	// In order, so that the same socket always has the same path: that below /run.
	for _, name := range slices.Sorted(maps.Keys(next)) {
		s.walk(filepath.Join(dir, name), next[name])
	}
}

// candidates are the names in a directory that one part of a pattern fits.
func candidates(part string, names []string, complete bool) []string {
	if !strings.Contains(part, "*") {
		if complete && !slices.Contains(names, part) {
			return nil
		}
		return []string{part}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		ok, _ := path.Match(part, name)
		return !ok
	})
}

// try records a path when it is a socket with a listener that lets this user
// connect.
func (s *search) try(p, what string) {
	var st unix.Stat_t
	if unix.Stat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	id := [2]uint64{st.Dev, st.Ino}
	if slices.Contains(s.tried, id) {
		return
	}
	s.tried = append(s.tried, id)
	if len(s.found) <= jobs.MostSockets && reach(p) {
		s.found = append(s.found, jobs.Socket{Path: p, What: what})
	}
}

// reach tells whether a socket can be connected to. The connection is closed at
// once. A socket without a listener, as an overlay may hold it, refuses.
func reach(name string) bool {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return false
		}
		err = socket.Connect(fd, name)
		_ = unix.Close(fd)
		if !errors.Is(err, unix.EPROTOTYPE) {
			return err == nil || errors.Is(err, unix.EAGAIN) // it has too many waiting
		}
	}
	return false
}

// mostAbstract bounds how many names are told.
const mostAbstract = 32

// lookAbstract returns abstract sockets whose names say that they must not be reached, and the names
// of the others. The kernel lists them for a network namespace: in one
// of the container's own there is none of the host's.
func lookAbstract(list string) (known []jobs.Socket, others []string) {
	f, err := os.Open(list)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewScanner(f)
	for in.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		f := bytes.Fields(in.Bytes())
		const listening = "00010000" // __SO_ACCEPTCON
		if len(f) < 8 || string(f[3]) != listening || f[7][0] != '@' {
			continue
		}
		name := string(f[7])
		what, own := whose(name)
		if what != "" && len(known) <= jobs.MostSockets && reach(name) {
			known = append(known, jobs.Socket{Path: name, What: what, Own: own})
			continue
		}
		if len(others) < mostAbstract && !slices.Contains(others, name) {
			others = append(others, name)
		}
	}
	return known, others
}
