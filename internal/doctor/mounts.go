package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mount is a line of /proc/self/mountinfo (proc(5)).
type mount struct {
	point   string
	kind    string
	source  string
	options []string // of the mount and of the file system
}

// has tells whether an option is set.
func (m mount) has(option string) bool { return slices.Contains(m.options, option) }

// parseMounts reads a mountinfo, the last mount last.
func parseMounts(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		m := mount{point: unescape(f[4]), kind: g[0], source: unescape(g[1]), options: strings.Split(f[5], ",")}
		if len(g) > 2 {
			m.options = append(m.options, strings.Split(g[2], ",")...)
		}
		all = append(all, m)
	}
	return all
}

// unescape reads \040 and its like.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountOf returns the mount that a clean absolute path is on: of the longest
// mount points the last one, which covers the others.
func mountOf(all []mount, path string) mount {
	var best mount
	for _, m := range all {
		if under(path, m.point) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best
}

// under tells whether a path is dir or below it, by whole components.
func under(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mountFor looks up the mount of a path, links followed where they can be.
func (l *look) mountFor(path string) mount {
	b, err := os.ReadFile(l.path("/proc/self/mountinfo"))
	if err != nil {
		return mount{}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return mountOf(parseMounts(string(b)), filepath.Clean(path))
}

// network are file systems that other machines see too; on them locks and
// overlays are not what they are on a disk.
var network = map[string]string{
	"nfs": "NFS", "nfs4": "NFS", "lustre": "Lustre", "gpfs": "GPFS", "beegfs": "BeeGFS", "beegfs_nodev": "BeeGFS",
	"ceph": "CephFS", "panfs": "PanFS", "wekafs": "WekaFS", "cifs": "SMB", "smb3": "SMB", "afs": "AFS",
	"pvfs2": "OrangeFS", "orangefs": "OrangeFS", "glusterfs": "Gluster", "fuse.glusterfs": "Gluster", "fuse.sshfs": "sshfs",
	"fuse.juicefs": "JuiceFS", "fuse.cvmfs2": "CernVM-FS", "9p": "9P", "virtiofs": "virtiofs", "fhgfs": "BeeGFS", "vast": "VAST", "mmfs": "GPFS",
}

// kindName is a file system's name for people, and whether it is a network's.
func kindName(kind string) (name string, net bool) {
	if n, ok := network[kind]; ok {
		return n, true
	}
	if strings.HasPrefix(kind, "fuse") {
		return kind + " (FUSE)", true // what stands behind it is not known
	}
	return or(kind, "an unknown file system"), false
}
