//go:build linux

package guest

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestWritableCgroups(t *testing.T) {
	if at := writableCgroups([]mount{{point: t.TempDir(), kind: "cgroup2"}, {point: "/no/such", kind: "cgroup"}, {point: "/", kind: "ext4"}}); at != "" {
		t.Errorf("what stands over a tree of cgroups is none: %s", at)
	}
	for _, m := range mounts() {
		var st unix.Statfs_t
		if (m.kind == "cgroup" || m.kind == "cgroup2") && unix.Statfs(m.point, &st) == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			want := ""
			if st.Flags&unix.ST_RDONLY == 0 {
				want = m.point
			}
			if at := writableCgroups([]mount{m}); at != want {
				t.Errorf("%+v: %q, want %q", m, at, want)
			}
		}
	}
}
