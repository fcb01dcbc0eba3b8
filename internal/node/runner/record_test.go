package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// onSmall runs one test again in namespaces of its own, where it has a small file
// system at dir. It returns "" in the process that is not to go on with the test.
func onSmall(t *testing.T) (dir string) {
	t.Helper()
	const env = "TEST_RUNNER_SMALL"
	if dir := os.Getenv(env); dir != "" {
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("user namespaces are off here")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a small file system: %v\n%s", err, out)
	}
	return ""
}

// An attempt whose file system someone fills says how it ended all the same.
func TestFullAtTheEnd(t *testing.T) {
	dir := onSmall(t)
	if dir == "" {
		return
	}
	for name, retry := range map[string]*jobs.Retry{"plain": nil, "retry": {Attempts: 3, Infra: 2}} {
		t.Run(name, func(t *testing.T) {
			fill := filepath.Join(dir, "fill-"+name)
			j := newJobIn(t, filepath.Join(dir, name), "cat /dev/zero >"+fill+" 2>/dev/null; exit 7", func(n *store.New) { n.Spec.Retry = retry })
			code, rec := j.run()
			if code != jobs.CodeTaskFailed || rec.State != jobs.StateFailed || rec.Exit.Code != 7 {
				t.Errorf("exit %d, %+v\n%s", code, rec, j.stderr)
			}
			if j.read("reserve") != "" {
				t.Error("the reserve is still there")
			}
			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A record is tried for as long as the scheduler gives time, and no longer.
func TestInsistUntil(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		jobEnd time.Time
		stop   *why
		within time.Duration
		want   time.Duration
	}{
		"no limit":            {want: 10 * time.Minute},
		"the job's end":       {jobEnd: now.Add(time.Hour), want: time.Hour - time.Second},
		"a hurry":             {jobEnd: now.Add(time.Hour), stop: &why{hurry: 20 * time.Second}, want: 19 * time.Second},
		"no hurry":            {stop: &why{}, want: 10 * time.Minute},
		"for a while":         {within: 2 * time.Second, want: 2 * time.Second},
		"a while, and hurry":  {within: time.Minute, stop: &why{hurry: 5 * time.Second}, want: 4 * time.Second},
		"a while, to the end": {within: time.Hour, jobEnd: now.Add(time.Minute), want: time.Minute - time.Second},
	} {
		r := &attempt{times: defaultTimes(), jobEnd: c.jobEnd}
		if c.stop != nil {
			r.stop.set(*c.stop)
		}
		if got := r.insistUntil(now, c.within).Sub(now); got < c.want-time.Second || got > c.want+time.Second {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A record with names that JSON writes at length can still be read.
func TestListedFits(t *testing.T) {
	all := make([]workspace.Artifact, 600)
	for i := range all {
		all[i] = workspace.Artifact{Path: workspace.Path(strings.Repeat("<", 4000) + strconv.Itoa(i)), SizeBytes: 1}
	}
	names, files, size := listed(all)
	if files != 600 || size != 600 || len(names) == 0 || len(names) == 600 {
		t.Errorf("%d of %d, %d bytes", len(names), files, size)
	}
	rec := jobs.ExitRecord{Version: 1, Artifacts: names}
	dir := t.TempDir()
	if _, err := store.SetExit(dir, rec); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(dir, store.FileExit)); err != nil || fi.Size() > 3<<20 {
		t.Errorf("%v, %v", fi.Size(), err)
	}
	rec.Artifacts = make([]string, 600)
	for i, a := range all {
		rec.Artifacts[i] = string(a.Path)
	}
	if _, err := store.SetExit(t.TempDir(), rec); err == nil {
		t.Error("a record that nobody could read was written")
	}
}

// A state directory that was removed holds nodes for a while only; one that is away
// for as long as there is time.
func TestInsistPurged(t *testing.T) {
	home := filepath.Join(t.TempDir(), "state")
	r := &attempt{dir: filepath.Join(home, "jobs", "ab", "id", "attempts", "0001")}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gone   string
		purged bool
	}{{filepath.Join(r.dir, "x"), false}, {filepath.Join(home, "jobs", "ab", "id"), true}, {home, false}} {
		if err := os.RemoveAll(c.gone); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(r.dir, "x"))
		if got := r.purged(err); got != c.purged {
			t.Errorf("%s is gone: %v", c.gone, got)
		}
	}
}
