package disk

import "testing"

const mounts = `21 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw,attr2
30 21 0:25 / /home rw,nosuid,nodev,noexec,relatime shared:5 - nfs4 filer:/export/home rw,vers=4.2,hard
31 21 0:26 / /scratch rw,relatime - lustre 10.1.1.1@o2ib:/lus rw,flock
32 21 0:27 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1024k
33 30 0:28 / /home/two\040words rw - fuse.sshfs ada@login:/ rw,user_id=1000
34 21 0:29 / /mnt/x rw - ext4 /dev/sdb rw
35 21 0:30 / /mnt/x rw - beegfs beegfs_nodev rw
broken line
`

func TestMountOf(t *testing.T) {
	all := parseMounts(mounts)
	for path, want := range map[string]string{
		"/": "xfs", "/home": "nfs4", "/home/ada": "nfs4", "/homework": "xfs", "/scratch/ada": "lustre", "/scratch2": "xfs", "/tmp/x": "tmpfs",
		"/home/two words/x": "fuse.sshfs", "/mnt/x/y": "beegfs", // the last one covers the first
	} {
		if got := mountOf(all, path).Kind; got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
	if m := mountOf(all, "/home/ada"); !m.Has("noexec") || !m.Has("hard") || m.Has("exec") {
		t.Errorf("%+v", m)
	}
	for kind, net := range map[string]bool{"nfs4": true, "lustre": true, "fuse.sshfs": true, "fuse.unknown": true, "xfs": false, "ext4": false, "tmpfs": false, "": false} {
		if name, got := (Mount{Kind: kind}).Name(); got != net || name == "" {
			t.Errorf("%s is %s, network %v", kind, name, got)
		}
	}
}

func TestUnder(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a/b", "/a/", true}, {"/a", "/", true}, {"/a", "/a/b", false}} {
		if got := under(c.path, c.dir); got != c.want {
			t.Errorf("%s under %s: %v", c.path, c.dir, got)
		}
	}
}
