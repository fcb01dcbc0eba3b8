//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// escapes are the ways out that once were open. Each prints its name and held or
// open; what goes wrong otherwise counts as neither.
const escapes = `cat >/tmp/escapes.py <<'EOF'
import ctypes, errno, glob, os, signal, socket, subprocess, time
libc = ctypes.CDLL(None, use_errno=True)
def say(name, is_open): print(name + ": " + ("open" if is_open else "held"), flush=True)
def call(*args):
    ctypes.set_errno(0)
    return libc.syscall(*args), ctypes.get_errno()
def allowed(*args): # EPERM is the filter's answer, ENOSYS that of a kernel without it
    r, e = call(*args)
    return r != -1 or e not in (errno.EPERM, errno.ENOSYS)
def traced(pid):
    r, _ = call(101, 0x4206, pid, 0, 0) # PTRACE_SEIZE
    if r == 0: call(101, 17, pid, 0, 0)
    return r == 0
def opens(path, mode):
    try: open(path, mode).close(); return True
    except OSError: return False
status = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
guests = [int(p) for p in os.listdir("/proc") if p.isdigit() and open("/proc/%s/cmdline" % p).read().startswith(("/.berth/node\0guest", "berth-room\0guest"))]
guest = guests[0]
say("no filter", status["Seccomp"].strip() != "2")
say("capabilities", int(status["CapEff"], 16) & ~0xa80425fb != 0)
say("trace PID 1", traced(1))
say("trace the guest", traced(guest))
say("memory of the guest", opens("/proc/%d/mem" % guest, "rb"))
say("io_uring", allowed(425, 1, 0))
say("keyctl", allowed(250, 0, ctypes.c_int(-3), 0))
say("keys of the user", allowed(250, 0, ctypes.c_int(-4), 0))
say("list of keys", any(opens(p, "r") and open(p).read() for p in ("/proc/keys", "/proc/key-users")))
def writable(top):
    try: os.mkdir(top + "/berth-test"); os.rmdir(top + "/berth-test"); return True
    except OSError: pass
    return any(opens(os.path.join(d, f), "r+") for d, _, fs in os.walk(top) for f in fs if f in ("cgroup.procs", "tasks", "memory.max", "cgroup.kill"))
say("cgroups", writable("/sys/fs/cgroup"))
for argv in (["sh", "-c"], ["unshare", "-Urm", "sh", "-c"]):
    for way in ("mount -o remount,bind,rw /data", "umount /data"):
        subprocess.run(argv + [way + "; echo destroyed >/data/f"], stderr=subprocess.DEVNULL)
say("a read-only bind", open("/data/f").read() != "original\n")
def connects(path):
    c = socket.socket(socket.AF_UNIX)
    c.settimeout(5)
    try: c.connect(path); return True
    except OSError: return False
    finally: c.close()
seen = glob.glob("/host-tmp/berth-*/**/*.sock", recursive=True) + glob.glob("/host-tmp/tmux-*/*") + glob.glob("/host-tmp/berth-*/*.ssh")
say("sockets in a bound /tmp", any(connects(p) for p in seen))
children = []
try:
    for _ in range(600):
        pid = os.fork()
        if pid == 0:
            time.sleep(60); os._exit(0)
        children.append(pid)
    say("number of processes", True)
except OSError: say("number of processes", False)
for pid in children: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
EOF
python3 /tmp/escapes.py`

// leftOpen is what is known to be open, and has its reason in
// docs/containment.md. Root inside (--fakeroot) has less than PID 1.
var leftOpen = map[bool][]string{false: {"trace PID 1", "number of processes"}, true: {"number of processes"}}

// TestEscapes plays again what was open when berth was attacked.
func TestEscapes(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "echo original >"+d+"/f")
	for _, host := range []string{"login", "c1"} {
		over := make(chan struct{})
		sock := "/tmp/tmux-" + s.ok(t, "id -u") + "/escapes"
		go func() {
			defer close(over)
			s.on(t, host, "alice", "sh", "-c", "mkdir -m 700 -p $(dirname "+sock+"); exec timeout 900 socat UNIX-LISTEN:"+sock+",fork EXEC:true")
		}()
		t.Cleanup(func() {
			s.on(t, host, "alice", "pkill", "-f", "UNIX-LISTEN:"+sock)
			<-over
			s.on(t, host, "alice", "rm", "-f", sock)
		})
		waitFor(t, patience, func() bool { return s.on(t, host, "alice", "test", "-S", sock).code == 0 })
	}
	binds := "--bind " + d + ":/data --bind /tmp:/host-tmp "
	look := func(what string, fakeroot bool, out string) {
		t.Helper()
		var open []string
		n := 0
		for line := range strings.Lines(out) {
			switch name, how, _ := strings.Cut(strings.TrimSpace(line), ": "); how {
			case "open":
				open = append(open, name)
				n++
			case "held":
				n++
			default:
				t.Errorf("%s: %q", what, line)
			}
		}
		if n != 13 {
			t.Errorf("%s: %d answers: %s", what, n, out)
		}
		if !slices.Equal(open, leftOpen[fakeroot]) {
			t.Errorf("%s: open are %q, known %q", what, open, leftOpen[fakeroot])
		}
	}
	id := s.submit(t, "--slurm --nodelist=c1 "+binds, escapes)
	s.wait(t, id, 0)
	look("a job", false, s.ok(t, "berth logs --stdout "+id))
	for _, flags := range []string{"", "--fakeroot "} {
		name := fmt.Sprintf("escapes%d", len(flags))
		t.Cleanup(func() { s.sh(t, "berth env rm --force "+name) })
		look("an environment "+flags, flags != "", s.ok(t, "cd "+d+" && berth exec --env "+name+" "+flags+binds+"--image "+s.image+" -- sh -c "+quote(escapes)))
	}
	// A room of its own has berth's program as PID 1.
	home := "export BERTH_HOME=" + d + "/state; "
	s.want(t, home+"echo 1 | berth sweep run --scheduler slurm --slurm --nodelist=c1 --workers 1 --cpus 1 --memory 2GiB --own room "+binds+"--image "+s.image+
		" --name escapes --rows - -- "+quote(escapes), 0)
	look("a task of a sweep", true, s.ok(t, home+"berth sweep logs escapes 1"))
	if f := s.ok(t, "cat "+d+"/f"); f != "original" {
		t.Errorf("the read-only bind was written: %q", f)
	}
}
