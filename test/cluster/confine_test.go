//go:build cluster

package cluster

import (
	"strings"
	"testing"

	"berth/jobs"
)

// attack is what a command may try: it prints what came of each.
const attack = `cat >/tmp/attack.py <<'EOF'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    r = libc.syscall(*args)
    print(name, "refused" if r == -1 and ctypes.get_errno() == 1 else "r=%d errno=%d" % (r, ctypes.get_errno()))
call("keyctl", 250, 0, ctypes.c_int(-3), 0)
call("add_key", 248, 0, 0, 0, 0, 0)
call("request_key", 249, 0, 0, 0, 0)
call("io_uring", 425, 1, 0)
call("bpf", 321, 0, 0, 0)
guest = next(int(p) for p in os.listdir("/proc") if p.isdigit() and open("/proc/%s/cmdline" % p).read().startswith("/.berth/node\0guest"))
call("seize", 101, 0x4206, guest, 0, 0)
try:
    open("/proc/%d/mem" % guest).close(); print("mem open")
except OSError:
    print("mem refused")
EOF
python3 /tmp/attack.py
test -z "$(cat /proc/keys /proc/key-users 2>/dev/null)" && echo keys covered
find /sys/fs/cgroup -writable 2>/dev/null | grep -v '^/sys/fs/cgroup$' ; mkdir /sys/fs/cgroup/x 2>/dev/null || echo cgroups refused
[ "$(unshare -Ur id -u)" = 0 ] && echo namespaces work
`

const allHeld = "keyctl refused\nadd_key refused\nrequest_key refused\nio_uring refused\nbpf refused\nseize refused\nmem refused\nkeys covered\ncgroups refused\nnamespaces work"

// Keyrings, io_uring, cgroups and the guest are out of reach of jobs, of ranks
// and of environments; user namespaces are not refused.
func TestConfined(t *testing.T) {
	s := standard
	s.need(t)
	for _, flags := range []string{"", "--ntasks 2"} {
		id := s.submit(t, flags, attack)
		s.wait(t, id, 0)
		out := s.ok(t, "berth logs --stdout "+id)
		if want := allHeld; flags == "" && out != want || flags != "" && (strings.Count(out, "refused") != 16 || strings.Contains(out, "errno")) {
			t.Errorf("%s: %q", flags, out)
		}
		if said := s.ok(t, "berth explain "+id); !strings.Contains(said, "system calls are filtered") || !strings.Contains(said, "no capabilities") {
			t.Errorf("%s: %s", flags, said)
		}
	}
	env := "cd " + s.dir(t) + " && berth exec --env confined --image " + s.image + " "
	t.Cleanup(func() { s.sh(t, "berth env rm --force confined") })
	if out := s.ok(t, env+"-- sh -c "+quote(attack)); out != allHeld {
		t.Errorf("an environment: %q", out)
	}
	// A tree of cgroups that comes in by a mount.
	st := s.wait(t, s.submit(t, "--bind /sys/fs/cgroup:/mnt", "echo never"), jobs.CodeConfig)
	if st.Exit.Started || !strings.Contains(st.Reason, "it can write the machine's cgroups, at /mnt") || !strings.Contains(st.Hint, "mounts") {
		t.Errorf("%q, hint %q", st.Reason, st.Hint)
	}
}

// Root inside cannot make a read-only bind writable nor trace the guest, and can
// install software.
func TestConfinedFakeroot(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "echo original >"+d+"/f")
	t.Cleanup(func() { s.sh(t, "berth env rm --force confined-root") })
	out := s.ok(t, "cd "+d+" && berth exec --env confined-root --fakeroot --bind "+d+":/data --image "+s.image+" -- sh -c "+quote(attack+`
mount -o remount,bind,rw /data 2>/dev/null; echo destroyed 2>/dev/null >/data/f
unshare -Urm sh -c 'mount -o remount,bind,rw /data; echo destroyed >/data/f' 2>/dev/null
mount -t tmpfs none /mnt 2>/dev/null || echo mount refused
umount /proc/keys 2>/dev/null || echo umount refused
mkdir -p /tmp/d/DEBIAN /tmp/d/opt && chmod 755 /tmp/d/DEBIAN && echo works >/tmp/d/opt/berthtest
printf 'Package: berthtest\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' >/tmp/d/DEBIAN/control
{ dpkg-deb -b /tmp/d /tmp/d.deb && dpkg -i /tmp/d.deb && dpkg -r berthtest && apt-get install -y /tmp/d.deb; } >/tmp/log 2>&1 || cat /tmp/log
cat /opt/berthtest; chown 33:33 /tmp/d.deb && stat -c %u /tmp/d.deb; su nobody -s /bin/sh -c 'id -un'
`))
	if want := allHeld + "\nmount refused\numount refused\nworks\n33\nnobody"; out != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	if f := s.ok(t, "cat "+d+"/f"); f != "original" {
		t.Errorf("the read-only bind was written: %q", f)
	}
}
