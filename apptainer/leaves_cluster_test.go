//go:build cluster

package apptainer

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// wordHang has the program in a tried container not end.
const wordHang = "hang"

// hangs is where that says that it does not know the word.
type hangs struct{}

func (hangs) Write([]byte) (int, error) { select {} }

// hanging has an opener and a layer ready for it.
func hanging(home, scratch string) (*opener, string, error) {
	s, at := specIn(home, scratch)
	for _, d := range []string{dirWorkdir, dirConf, dirEmpty} {
		if err := os.MkdirAll(filepath.Join(at.Scratch, d), 0o700); err != nil {
			return nil, "", err
		}
	}
	layer, err := overlay.Temporary(context.Background(), at.On, scratch, jobs.OverlaySpec{Driver: jobs.DriverExt3, Size: tinySize})
	if err != nil {
		return nil, "", err
	}
	return &opener{b: &Backend{On: at.On}, spec: s, at: at, program: "/usr/bin/apptainer"}, layer.Path, nil
}

// stands waits until processes of these names run below another one, and returns
// all that is there.
func stands(t *testing.T, root int, names ...string) []run.Proc {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		all := run.Below(root)
		missing := slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(all, func(p run.Proc) bool { return p.Name == name })
		})
		if !missing {
			return all
		}
	}
	t.Fatalf("there is no container with %v: %+v", names, run.Below(root))
	return nil
}

// alive are those of them that have not ended.
func alive(all []run.Proc) (left []run.Proc) {
	for _, p := range all {
		if now, ok := run.ReadProc(p.PID); ok && !now.Zombie && now.Name == p.Name {
			left = append(left, now)
		}
	}
	return left
}

// A probe that is cut off leaves no process: the helpers of a container's file
// system keep each other otherwise, and the mounts in their namespace.
func TestProbeLeavesNothing(t *testing.T) {
	for driver, helpers := range map[string][]string{
		jobs.DriverExt3: {"squashfuse_ll", "fuse2fs", "fuse-overlayfs"},
		jobs.DriverFuse: {"squashfuse_ll", "fuse-overlayfs"},
	} {
		b := newBench(t)
		s, at := b.spec(nil)
		at.Guest = filepath.Join(b.home, "guest")
		if err := os.WriteFile(at.Guest, []byte("#!/bin/sh\nsleep 1000\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dirWorkdir, dirConf, dirEmpty} {
			if err := os.MkdirAll(filepath.Join(at.Scratch, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		o := &opener{b: &Backend{On: at.On}, spec: s, at: at, program: "/usr/bin/apptainer"}
		ctx, cut := context.WithCancel(t.Context())
		defer cut()
		found := make(chan found, 1)
		go func() { found <- o.layerWorks(ctx, driver, at.Scratch, s.Image, false) }()
		all := stands(t, os.Getpid(), append(helpers, "sleep")...)
		cut()
		if f := <-found; f.OK || !f.cut {
			t.Errorf("%s: %+v", driver, f)
		}
		if left := alive(all); len(left) > 0 {
			t.Errorf("%s: left: %+v", driver, left)
		}
		if m, _ := filepath.Glob(filepath.Join(at.Scratch, prefixProbe+"*")); len(m) > 0 {
			t.Errorf("%s: left: %q", driver, m)
		}
	}
}

// A tried container whose command hangs ends with the process that has started
// it, however that ended.
func TestProbeOutlived(t *testing.T) {
	b := newBench(t)
	_, at := b.spec(nil)
	var said bytes.Buffer
	cmd := exec.Command(at.Guest, "hang", b.home, at.Scratch)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it said: %s", &said)
		}
	})
	all := stands(t, cmd.Process.Pid, "squashfuse_ll", "fuse2fs", "fuse-overlayfs", "node")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		left := alive(all)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %+v", left)
		}
	}
}
