package apptainer

import "golang.org/x/sys/unix"

// onlyCgroup2 tells whether the tree of cgroups is one of version 2, and nothing
// is mounted in it.
func onlyCgroup2() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupDir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}
