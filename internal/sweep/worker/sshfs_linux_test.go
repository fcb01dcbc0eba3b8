//go:build faults

package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/journal"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// sftpServer is that of Debian's openssh-sftp-server.
const sftpServer = "/usr/lib/openssh/sftp-server"

// overSSHFS is a directory as one more machine sees it: a mount of sshfs, with its own caches and a
// server of its own, whose bytes go through this process. So both end when it ends in any way, and
// sshfs takes its mount away. refused are requests that the server does not have.
func overSSHFS(t *testing.T, dir, refused string, options ...string) string {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("sshfs cannot mount here: %v", err)
	} else {
		_ = f.Close()
	}
	if _, err := exec.LookPath("sshfs"); err != nil {
		t.Skipf("sshfs cannot mount here: %v", err)
	}
	point := t.TempDir()
	server := exec.Command(sftpServer)
	if refused != "" {
		server.Args = append(server.Args, "-P", refused)
	}
	client := exec.Command("sshfs", "-f", "-o", strings.Join(append(options, "passive"), ","), "none:"+dir, point)
	server.Stderr, client.Stderr = os.Stderr, os.Stderr
	pipe := func(from, to *exec.Cmd) func() {
		out, err := from.StdoutPipe()
		must(t, err)
		in, err := to.StdinPipe()
		must(t, err)
		return func() {
			_, _ = io.Copy(in, out)
			_ = in.Close()
		}
	}
	there, back := pipe(client, server), pipe(server, client)
	must(t, server.Start())
	if err := client.Start(); err != nil {
		_ = server.Process.Kill()
		_ = server.Wait()
		t.Fatal(err)
	}
	var carried sync.WaitGroup
	carried.Go(there)
	carried.Go(back)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		carried.Wait()
		_, _ = client.Wait(), server.Wait()
	}()
	t.Cleanup(func() {
		// A child that was just killed may have a file open there for a moment.
		for until := time.Now().Add(5 * time.Second); unix.Unmount(point, 0) == unix.EBUSY && time.Now().Before(until); {
			time.Sleep(20 * time.Millisecond)
		}
		_ = unix.Unmount(point, unix.MNT_DETACH) // EINVAL where it is none any more
		select {
		case <-ended: // sshfs ends with its mount
		case <-time.After(5 * time.Second):
			_ = client.Process.Kill()
			<-ended
		}
		if m := disk.MountFor("/proc/self/mountinfo", point); m.Point == point {
			t.Errorf("%+v is left", m)
		}
	})
	within(t, 30*time.Second, "sshfs has mounted", func() bool {
		select {
		case <-ended:
			t.Fatal("sshfs has ended")
		default:
		}
		return disk.MountFor("/proc/self/mountinfo", point).Point == point
	})
	return point
}

// seen is a sweep as another machine sees it, which has the directory root at point.
func seen(t *testing.T, s *sweep.Sweep, root, point string) *sweep.Sweep {
	t.Helper()
	rel, err := filepath.Rel(root, s.Dir)
	must(t, err)
	other, err := sweep.Open(filepath.Join(point, rel))
	must(t, err)
	return other
}

// Three nodes, two of which have the sweep over sshfs and the third on its disk, where neither locks
// nor listings can be relied on. One is killed and told by its silence alone, as its host is another
// one: each task has one accepted result, and no two had a batch at a time.
func TestSSHFS(t *testing.T) {
	const beat = 300 * time.Millisecond
	root := t.TempDir()
	s := proofSweep(t, root, 3)
	points := []string{overSSHFS(t, root, ""), overSSHFS(t, root, ""), root}
	var workers []*exec.Cmd
	defer func() {
		for _, c := range workers {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for i, point := range points {
		c := exec.Command("sh", "-c", `echo "node$1" >/proc/sys/kernel/hostname && exec "$0"`, os.Args[0], fmt.Sprint(i))
		c.Env = append(os.Environ(), proofVar+"="+seen(t, s, root, point).Dir, beatVar+"="+beat.String())
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
		c.Stderr = os.Stderr
		must(t, c.Start())
		workers = append(workers, c)
	}
	// records are those of all workers by their hosts.
	type record struct {
		journal.Record
		host string
	}
	records := func() (all []record) {
		numbers, err := s.Workers()
		must(t, err)
		for _, w := range numbers {
			about, err := os.ReadFile(filepath.Join(s.WorkerDir(w), "worker.json"))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			must(t, err)
			_, host, _ := strings.Cut(string(about), `"host":"`)
			host, _, _ = strings.Cut(host, `"`)
			_, err = journal.Read(filepath.Join(s.WorkerDir(w), journal.ResultsFile), 0, func(r journal.Record) { all = append(all, record{r, host}) })
			must(t, err)
		}
		return all
	}
	// The second is killed when all three have results, and it has begun a task.
	within(t, 60*time.Second, "every node has results, and the second one runs a task", func() bool {
		ends, runs := map[string]int{}, 0
		for _, r := range records() {
			switch r.Kind {
			case journal.End:
				ends[r.host]++
			case journal.Start:
				if r.host == "node1" {
					runs++
				}
			}
		}
		return len(ends) == 3 && ends["node1"] >= 10 && runs > ends["node1"]
	})
	must(t, workers[1].Process.Kill())
	_ = workers[1].Wait()
	killed := time.Now()
	for _, i := range []int{0, 2} {
		must(t, workers[i].Wait())
	}
	proved(t, s)
	oneResult(t, s)
	last := map[uint32]record{} // the start of each task that was seen last
	taken := 0
	for _, host := range []string{"node1", "node0", "node2"} {
		for _, r := range records() {
			if r.host != host || r.Kind != journal.Start {
				continue
			}
			before, again := last[r.Task]
			last[r.Task] = r
			if !again {
				continue
			}
			taken++
			// It was begun by the one that was killed, and again when that had been silent for 18 beats.
			if before.host != "node1" || r.Generation <= before.Generation || r.Began.Sub(killed) < 16*beat {
				t.Errorf("task %d was begun by %s at %s (generation %d) and by %s at %s (%d); node1 was killed at %s", r.Task,
					before.host, before.Began, before.Generation, r.host, r.Began, r.Generation, killed)
			}
		}
	}
	if taken == 0 {
		t.Error("no task of the one that was killed was begun again")
	}
	t.Logf("%d tasks were begun again, %s after the kill at the earliest", taken, 16*beat)
}

// With other options of sshfs, and a server that cannot rename over a file.
func TestSSHFSOptions(t *testing.T) {
	for name, c := range map[string]struct{ refused, option string }{
		"no readahead": {option: "no_readahead"}, "no cache of directories": {option: "dir_cache=no"}, "no posix-rename": {refused: "posix-rename"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			var options []string
			if c.option != "" {
				options = append(options, c.option)
			}
			one, two := overSSHFS(t, root, c.refused, options...), overSSHFS(t, root, c.refused, options...)
			s, err := sweep.Create(filepath.Join(one, "sweeps"), specOf(t, "echo {n}"), 2, nil, numbered(40))
			must(t, err)
			var all sync.WaitGroup
			for _, node := range []*sweep.Sweep{s, seen(t, s, one, two)} {
				all.Go(func() {
					if err := Run(t.Context(), config(t, node)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			here := seen(t, s, one, root)
			f, err := here.Fold()
			must(t, err)
			if f.Count(journal.OK) != 40 {
				t.Errorf("%d of 40", f.Count(journal.OK))
			}
			oneResult(t, here)
		})
	}
}

// What claims rest on: link(2) has one winner, whichever machine asks, while both get a lock. What
// a resume has removed is not seen any more by a worker that begins on another machine.
func TestSSHFSNames(t *testing.T) {
	root := t.TempDir()
	one, two := overSSHFS(t, root, ""), overSSHFS(t, root, "")
	for n := range 50 {
		var won [4]bool
		var all sync.WaitGroup
		for i := range won {
			all.Go(func() {
				var err error
				if won[i], err = store.CreateOnce(filepath.Join([]string{one, two}[i%2], fmt.Sprint(n)), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		winners := 0
		for i, w := range won {
			if text, err := os.ReadFile(filepath.Join(root, fmt.Sprint(n))); w && (err != nil || string(text) != fmt.Sprint(i)) {
				t.Errorf("%d won, and it says %q, %v", i, text, err)
			} else if w {
				winners++
			}
		}
		if winners != 1 {
			t.Fatalf("%d winners", winners)
		}
	}
	locks := 0
	for _, dir := range []string{one, two} {
		f, err := os.OpenFile(filepath.Join(dir, "0"), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			locks++
		}
	}
	t.Logf("%d of two machines have the lock", locks)
	s, err := sweep.Create(filepath.Join(one, "sweeps"), specOf(t, "echo {n}"), 1, nil, numbered(1))
	must(t, err)
	other := seen(t, s, one, two)
	must(t, s.Cancel())
	within(t, 10*time.Second, "the other machine sees the cancellation", other.Cancelled)
	must(t, s.Resume())
	within(t, 10*time.Second, "the other machine sees that it was taken back", func() bool { return !other.Cancelled() })
}

// Without hard links nothing can decide: that is said at once, and nothing is left.
func TestSSHFSNoLinks(t *testing.T) {
	for name, c := range map[string]struct{ refused, option string }{"mount": {option: "disable_hardlink"}, "server": {"hardlink", "reconnect"}} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := overSSHFS(t, root, c.refused, c.option)
			_, err := sweep.Create(filepath.Join(dir, "sweeps"), specOf(t, "echo {n}"), 1, nil, numbered(1))
			if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "BERTH_HOME") ||
				!strings.Contains(err.Error(), "hard links (sshfs at "+dir+")") {
				t.Errorf("%v", err)
			}
			must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					t.Errorf("%s is left", path)
				}
				return err
			}))
		})
	}
}

// specOf is a sweep of this command.
func specOf(t *testing.T, command string) sweep.Spec {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	return sweep.Spec{ID: id, Name: "s", Words: []string{command}, Script: true, Slots: 2, Workdir: t.TempDir()}
}
