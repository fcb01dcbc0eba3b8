package guest

import (
	"slices"

	"golang.org/x/sys/unix"
)

// writableCgroups returns where a tree of cgroups is mounted so that it can be
// written, or "". The user may own a part of it, as systemd hands parts out: a
// command could leave its cgroup, lift its limits, and end what runs in another
// one. What only root may write is not told from that: the part may lie deep.
func writableCgroups(mounts []mount) string {
	for _, m := range mounts {
		if !slices.Contains([]string{"cgroup", "cgroup2"}, m.kind) {
			continue
		}
		var st unix.Statfs_t
		if unix.Statfs(m.point, &st) != nil || st.Type != unix.CGROUP_SUPER_MAGIC && st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue // another mount is over it
		}
		if st.Flags&unix.ST_RDONLY == 0 {
			return m.point
		}
	}
	return ""
}
