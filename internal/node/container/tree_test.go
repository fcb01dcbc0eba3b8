package container

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/slurm/inside"
	"berth/test/fakes/headless"
)

// tree starts a shell with a text and waits for the line "ready".
func tree(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Skipf("%s does not run here: %q, %v", argv[0], line, err)
	}
	return cmd
}

func TestDescendants(t *testing.T) {
	cmd := tree(t, "sh", "-c", "sleep 60 & sh -c 'sleep 60 & wait' & sh -c 'exit 0' & echo ready; wait")
	eventually(t, "three sleep below", func() bool {
		n := 0
		for _, p := range run.Below(cmd.Process.Pid) {
			if !p.Zombie {
				n++
			}
		}
		return n == 3
	})
	if rss := TreeMemory(cmd.Process.Pid); rss < 100<<10 || rss > 100<<20 {
		t.Errorf("they take %d bytes", rss)
	}
	if got := run.Below(1 << 30); got != nil {
		t.Errorf("below nobody: %v", got)
	}
	if left := KillAll(cmd.Process.Pid, 50*time.Second); left != 0 {
		t.Errorf("%d are left", left)
	}
}

// Killing the init of a PID namespace ends all in it, and the process that
// made it lives on to clean up.
func TestKillContainer(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "cleaned-up")
	outer := tree(t, "sh", "-c", `unshare -Urpf --mount-proc sh -c 'trap "" TERM; (setsid sh -c "trap \"\" TERM; sleep 60" &); echo ready; sleep 60'; echo done >"$1"`, "sh", mark)
	eventually(t, "the tree stands", func() bool { return len(run.Below(outer.Process.Pid)) >= 4 })
	if n := KillContainer(outer.Process.Pid); n != 1 {
		t.Errorf("killed %d", n)
	}
	eventually(t, "the outer process cleans up", func() bool { _, err := os.Stat(mark); return err == nil })
	eventually(t, "nothing lives inside", func() bool {
		for _, p := range run.Below(outer.Process.Pid) {
			if !p.Zombie {
				return false
			}
		}
		return true
	})
	if n := KillContainer(outer.Process.Pid); n != 0 {
		t.Errorf("killed %d more", n)
	}
}

// A number that belongs to another process by now is not killed.
func TestKillChecksParent(t *testing.T) {
	cmd := tree(t, "sh", "-c", "echo ready; sleep 60")
	if kill(cmd.Process.Pid, os.Getpid()+1) {
		t.Error("another's child was killed")
	}
	if kill(1<<30, 1) {
		t.Error("nobody was killed")
	}
	if !kill(cmd.Process.Pid, os.Getpid()) {
		t.Error("not killed")
	}
	_ = cmd.Wait()
}

// A tree that grows while it is killed is killed all the same.
func TestKillAllGrowing(t *testing.T) {
	cmd := tree(t, "sh", "-c", "echo ready; i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i + 1)); done; wait")
	if left := KillAll(cmd.Process.Pid, 50*time.Second); left != 0 {
		t.Errorf("%d are left", left)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "all are gone", func() bool { return len(run.Below(cmd.Process.Pid)) == 0 })
}

// A time that was up before anybody looked, as for a process that stood still,
// leaves nothing.
func TestKillAllLate(t *testing.T) {
	cmd := tree(t, "sh", "-c", "sleep 60 & sleep 60 & echo ready; wait")
	if left := KillAll(cmd.Process.Pid, -time.Second); left != 0 {
		t.Errorf("%d are left", left)
	}
}

func TestCgroup(t *testing.T) {
	for _, c := range []struct {
		dir, job    string
		none, isJob bool
		limit       int64
		kills       int
	}{
		{dir: "v1-slurm", job: "17", isJob: true, limit: 512 << 20, kills: 2},
		{dir: "v2-slurm", job: "17", isJob: true, limit: 256 << 20, kills: 3},
		{dir: "v2-slurm", job: "1", limit: 256 << 20, kills: 3},
		{dir: "v2-slurm", limit: 256 << 20, kills: 3},
		{dir: "v1-unlimited", job: "17", kills: 0},
		{dir: "v2-session", job: "17", limit: 0, kills: 1},
		{dir: "hidden", job: "17", none: true},
		{dir: "missing", job: "17", none: true},
	} {
		t.Run(c.dir+" "+c.job, func(t *testing.T) {
			root := filepath.Join("testdata", "cgroup", c.dir)
			g := OwnCgroup(filepath.Join(root, "proc-self-cgroup"), filepath.Join(root, "sys"))
			if (g == nil) != c.none || int64(g.Limit()) != c.limit || g.OOMKills() != c.kills {
				t.Errorf("%+v: limit %d, kills %d", g, g.Limit(), g.OOMKills())
			}
			if (g.ForJob(inside.Slurm{}, c.job) != nil) != c.isJob {
				t.Errorf("%+v is the job's: %v", g, !c.isJob)
			}
		})
	}
	// Whatever this machine has, it is read without harm.
	g := OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	t.Logf("here: %+v, limit %s, kills %d", g, g.Limit(), g.OOMKills())
}

func TestReadProc(t *testing.T) {
	p, ok := run.ReadProc(os.Getpid())
	if !ok || p.PPID != os.Getppid() || p.Zombie || p.RSS == 0 || len(p.NSPID) == 0 {
		t.Errorf("%+v, %v", p, ok)
	}
}

// A process whose first thread has ended looks like a zombie, and is killed like
// any other.
func TestKillHeadless(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := tree(t, "sh", "-c", `"$1" "$2"; true`, "sh", self, headless.Word)
	dir := ""
	eventually(t, "its first thread has ended", func() bool {
		dir = filepath.Join("/proc", strconv.Itoa(run.Below(cmd.Process.Pid)[0].PID))
		b, _ := os.ReadFile(filepath.Join(dir, "status"))
		return strings.Contains(string(b), "State:\tZ")
	})
	if left := KillAll(cmd.Process.Pid, 50*time.Second); left != 0 {
		t.Errorf("%d are left", left)
	}
	eventually(t, "it is gone", func() bool { _, err := os.Stat(dir); return err != nil })
}
