package disk

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mount is a line of /proc/self/mountinfo (proc(5)).
type Mount struct {
	Point   string
	Kind    string   // of the file system, such as nfs4
	Source  string   // what is mounted
	Options []string // of the mount and of the file system
}

// Has tells whether an option is set.
func (m Mount) Has(option string) bool { return slices.Contains(m.Options, option) }

// parseMounts reads a mountinfo, the last mount last.
func parseMounts(text string) []Mount {
	var all []Mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		m := Mount{Point: unescape(f[4]), Kind: g[0], Source: unescape(g[1]), Options: strings.Split(f[5], ",")}
		if len(g) > 2 {
			m.Options = append(m.Options, strings.Split(g[2], ",")...)
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
func mountOf(all []Mount, path string) Mount {
	var best Mount
	for _, m := range all {
		if under(path, m.Point) && len(m.Point) >= len(best.Point) {
			best = m
		}
	}
	return best
}

// under tells whether a path is dir or below it, by whole components.
func under(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// MountFor looks up the mount of a path, links followed where they can be, in a file such as
// /proc/self/mountinfo. The zero value is that it is not known, as where there is no such file.
func MountFor(mountinfo, path string) Mount {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return Mount{}
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

// Name is the file system's name for people, and whether it is a network's.
func (m Mount) Name() (name string, net bool) {
	if n, ok := network[m.Kind]; ok {
		return n, true
	}
	if strings.HasPrefix(m.Kind, "fuse") {
		return m.Kind + " (FUSE)", true // what stands behind it is not known
	}
	return cmp.Or(m.Kind, "an unknown file system"), false
}
