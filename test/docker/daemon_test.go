//go:build docker

package docker_test

import (
	"bytes"
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

	"berth/internal/link/session"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// daemon is a dockerd of the test's own: the machine's has others' containers.
// It has namespaces of its own, too, because a dockerd without a bridge removes
// the one that it finds.
type daemon struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || os.Getuid() != 0 {
		t.Skip("a daemon of one's own takes root and dockerd")
	}
	d := &daemon{t: t, dir: t.TempDir()}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(d.dir, "sock"))
	t.Cleanup(d.remove)
	d.start()
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(d.t, err)
	defer log.Close()
	// Of one that was killed. Its containerd dies with it, and where no one
	// reaps orphans dockerd takes the zombie for one that runs.
	for _, pid := range []string{"pid", "exec/containerd/containerd.pid"} {
		_ = os.Remove(filepath.Join(d.dir, pid))
	}
	d.cmd = exec.Command("dockerd", "--data-root", filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "exec"), "--pidfile", filepath.Join(d.dir, "pid"),
		"--host", os.Getenv("DOCKER_HOST"), "--bridge", "none", "--iptables=false", "--ip6tables=false")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	must(d.t, d.cmd.Start())
	for deadline := time.Now().Add(5 * time.Minute); exec.Command("docker", "version").Run() != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			d.t.Fatalf("the test's dockerd does not answer:\n%s", text[max(0, len(text)-2000):])
		}
	}
}

// kill is kill -9.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// remove ends the daemon and whatever carries its directory in its command
// line, all of which it has started.
func (d *daemon) remove() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	watchdog := time.AfterFunc(20*time.Second, func() { _ = d.cmd.Process.Kill() })
	_ = d.cmd.Wait()
	watchdog.Stop()
	for range 50 {
		left := 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range lines {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if line, rerr := os.ReadFile(f); err == nil && rerr == nil && bytes.Contains(line, []byte(d.dir)) {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[1], d.dir) {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
	if err := disk.RemoveTree(d.dir); err != nil { // what is killed may not be gone yet
		d.t.Error(err)
	}
}

// TestDaemonDies kills the daemon below a running container.
func TestDaemonDies(t *testing.T) {
	d := newDaemon(t)
	load := exec.Command("docker", "load")
	load.Stdin = saved(t, "berth-test/nothing:1")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker load: %v: %s", err, out)
	}
	e := plan(t, func(s *jobs.EnvSpec) { s.Image = "berth-test/nothing:1" }).open()
	_, err := e.session.WriteFile(t.Context(), "", "/kept", strings.NewReader("kept"), session.WriteOptions{})
	must(t, err)
	d.kill()
	_, _ = e.proc.Wait()
	select {
	case <-e.session.Gone():
	case <-time.After(time.Minute):
		t.Error("the session outlives the daemon")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := e.opening.End(ctx); err == nil || jobs.HintOf(err) == "" || ctx.Err() != nil {
		t.Errorf("the end without a daemon: %v", err)
	}
	if _, err := e.prepare(); jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(jobs.HintOf(err), "systemctl start docker") {
		t.Errorf("%v, hint %q", err, jobs.HintOf(err))
	}
	e.session, e.opening, e.proc = nil, nil, nil
	d.start()
	e.open()
	var got bytes.Buffer
	if _, err := e.session.ReadFile(t.Context(), "", "/kept", 0, 0, &got); err != nil || got.String() != "kept" {
		t.Errorf("%q, %v", got.String(), err)
	}
	if e.opening.Rebuilt != "" {
		t.Error(e.opening.Rebuilt)
	}
	e.stop()
	if _, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: []string{"docker", "rm", e.lastContainer()}}); err != nil {
		t.Error(err)
	}
	if _, err := e.prepare(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestDaemonLosesContainer kills the daemon, whose containerd then knows nothing
// of a container that lives on, as when it could not reach the container's shim
// in time. What is started then must not share files and streams with it.
func TestDaemonLosesContainer(t *testing.T) {
	d := newDaemon(t)
	load := exec.Command("docker", "load")
	load.Stdin = saved(t, "berth-test/nothing:1")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker load: %v: %s", err, out)
	}
	e := plan(t, func(s *jobs.EnvSpec) { s.Image = "berth-test/nothing:1" }).open()
	_, err := e.session.WriteFile(t.Context(), "", "/kept", strings.NewReader("kept"), session.WriteOptions{})
	must(t, err)
	id := e.lastContainer()
	d.kill()
	_, _ = e.proc.Wait()
	e.session, e.opening, e.proc = nil, nil, nil
	lost := filepath.Join(d.dir, "exec/containerd/daemon/io.containerd.runtime.v2.task/moby", id)
	if _, err := os.Stat(lost); err != nil {
		t.Skipf("another containerd: %v", err)
	}
	must(t, os.RemoveAll(lost))
	d.start()
	e.open()
	var got bytes.Buffer
	if _, err := e.session.ReadFile(t.Context(), "", "/kept", 0, 0, &got); err != nil || got.String() != "kept" {
		t.Errorf("%q, %v", got.String(), err)
	}
	if e.lastContainer() != id || e.opening.Rebuilt != "" || !strings.Contains(strings.Join(e.opening.Notes, "\n"), "took it for ended") {
		t.Errorf("%+v", e.opening)
	}
	e.stop()
}
