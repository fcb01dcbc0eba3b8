package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/node/supervise"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// An overlay's owner counts as gone only when that is proved.
func TestOwnerGone(t *testing.T) {
	mine := lease.Self()
	const nobody = 1 << 30
	const tick = 10 * time.Millisecond // the time of a file is that of the kernel's last tick
	live := overlay.Owner{Host: mine.Host, BootID: mine.BootID, PID: mine.PID}
	for _, c := range []struct {
		name   string
		owner  overlay.Owner
		beat   func(t *testing.T, dir string) // what happens meanwhile
		gone   bool
		atOnce bool
	}{
		{name: "ended", owner: live, beat: func(_ *testing.T, dir string) { _, _ = store.SetExit(dir, jobs.ExitRecord{Version: 1}) }, gone: true, atOnce: true},
		{name: "alive", owner: live, beat: beating, gone: false},
		{name: "elsewhere, alive", owner: overlay.Owner{Host: "elsewhere", BootID: mine.BootID, PID: nobody}, beat: beating, gone: false},
		{name: "elsewhere, silent", owner: overlay.Owner{Host: "elsewhere", BootID: "x", PID: mine.PID}, gone: true},
		{name: "other namespace, alive", owner: overlay.Owner{Host: mine.Host, BootID: mine.BootID + "0", PID: nobody}, beat: beating, gone: false},
		{name: "boot unknown, alive", owner: overlay.Owner{Host: mine.Host, PID: nobody}, beat: beating, gone: false},
		{name: "dead", owner: overlay.Owner{Host: mine.Host, BootID: mine.BootID, PID: nobody}, gone: true},
		{name: "dead for long", owner: overlay.Owner{Host: mine.Host, BootID: mine.BootID, PID: nobody}, gone: true, atOnce: true, beat: func(_ *testing.T, dir string) {
			_ = store.Beat(dir, 1, time.Now().Add(-time.Hour))
		}},
		{name: "dead, the file server's clock is behind", owner: overlay.Owner{Host: mine.Host, BootID: mine.BootID, PID: nobody}, gone: true, beat: func(_ *testing.T, dir string) {
			_ = store.Beat(dir, 1, time.Now())
			_ = os.Chtimes(filepath.Join(dir, "beat"), time.Time{}, time.Now().Add(-time.Hour))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.owner.Dir = t.TempDir()
			r := &attempt{claim: jobs.Claim{Host: mine.Host, BootID: mine.BootID, PID: mine.PID}, times: times{Times: supervise.Times{Beat: 100 * time.Millisecond, Dead: 300 * time.Millisecond, Silent: time.Second}}}
			if !c.gone { // it is seen to live at its next beat, however late that comes
				r.times.Dead, r.times.Silent = time.Minute, time.Minute
			}
			began := time.Now() // before the last beat, from which it counts
			if c.beat != nil {
				c.beat(t, c.owner.Dir)
			}
			dir := t.TempDir()
			if _, err := lease.Acquire(dir, c.owner, nil); err != nil {
				t.Fatal(err)
			}
			if got := r.ownerGone(t.Context(), dir)(c.owner); got != c.gone {
				t.Errorf("gone: %v", got)
			}
			if took := time.Since(began); c.gone && !c.atOnce && took+tick < r.times.Dead {
				t.Errorf("judged after %v", took)
			}
		})
	}
	// Told to stop, the watch ends, and the owner stays.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &attempt{claim: jobs.Claim{Host: mine.Host, BootID: mine.BootID, PID: mine.PID}, times: defaultTimes()}
	elsewhere, dir := overlay.Owner{Host: "elsewhere", Dir: t.TempDir()}, t.TempDir()
	if _, err := lease.Acquire(dir, elsewhere, nil); err != nil {
		t.Fatal(err)
	}
	if r.ownerGone(ctx, dir)(elsewhere) {
		t.Error("gone, because nobody looked")
	}
}

// beating writes the owner's beat again and again: whoever watches it may begin
// to look late.
func beating(t *testing.T, dir string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 2; t.Context().Err() == nil; n++ {
			_ = store.Beat(dir, n, time.Now())
			time.Sleep(150 * time.Millisecond)
		}
	})
	t.Cleanup(wg.Wait)
}

// Neither the runner nor its guest runs from pages of the file that the job's
// script names, which lies on a file system that may go away for a while.
func TestPagesOfTheNode(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo ready; sleep 60", nil)
	j.argv = []string{jobs.PlaceholderNode, "guest"}
	j.start()
	j.says("ready")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pids := map[int]string{j.cmd.Process.Pid: "runner"}
	for pid, line := range j.processes() {
		if strings.HasSuffix(line, "/node guest ") && strings.HasPrefix(line, j.scratches()[0]+"/") {
			pids[pid] = "guest"
		}
	}
	if len(pids) != 2 {
		t.Fatalf("%v of %v", pids, j.processes())
	}
	for pid, what := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only root sees the memory of a process that hides it")
		}
		if err != nil || len(b) == 0 {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			// What is written is the process's own, see package localcopy.
			if strings.HasSuffix(line, " "+self+"\n") && strings.Fields(line)[1][1] != 'w' {
				t.Errorf("%s: %s", what, line)
			}
		}
	}
	j.cancel()
	j.signal(syscall.SIGTERM)
	if code, rec := j.wait(); code != jobs.CodeInterrupted || rec.State != jobs.StateCancelled {
		t.Errorf("exit %d, %+v", code, rec)
	}
	if left := j.scratches(); len(left) > 0 {
		t.Errorf("left on the node: %q", left)
	}
}
