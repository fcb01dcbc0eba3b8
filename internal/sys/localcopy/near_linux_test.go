package localcopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	envDir    = "TEST_NEAR_DIR"
	envNoexec = "TEST_NEAR_NOEXEC"
)

// TestMain makes this binary the process whose pages are changed, too.
func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		err := error(nil)
		if os.Getenv(envNoexec) != "" {
			err = onNoexec(dir)
		}
		if err == nil {
			err = away(dir)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ok")
		return
	}
	os.Exit(m.Run())
}

// onNoexec mounts a file system on dir, and looks what a copy there is.
func onNoexec(dir string) error {
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, "size=64m"); err != nil {
		return err
	}
	self, err := os.Executable()
	path, why, cerr := Copy(dir, "node")
	if err != nil || cerr != nil || path != self || !strings.Contains(why, "noexec") {
		return fmt.Errorf("%s, %s, %w", path, why, errors.Join(err, cerr))
	}
	return nil
}

// away changes the pages while a lot goes on, and looks what is left of the file.
func away(dir string) error {
	ctx, stop := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s := strings.Repeat(fmt.Sprint(n), 100)
				if !strings.Contains(s, fmt.Sprint(n)) {
					panic(s)
				}
				if n%100 == 0 {
					runtime.GC()
				}
			}
		})
	}
	defer busy.Wait()
	defer stop()
	for range 3 { // it may be done again, too
		if err := Pages(dir); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	exe, err := os.Readlink(program)
	if err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	written := false
	for line := range strings.Lines(string(b)) {
		a, ok := parse(line, exe)
		if !ok {
			continue
		}
		if written = true; !strings.Contains(a.mode, "w") {
			return fmt.Errorf("the program's file is still there: %s", line)
		}
		_, rest, _ := strings.Cut(string(b), line)
		_, rest, _ = strings.Cut(rest, "Anonymous:")
		if own, _, _ := strings.Cut(rest, " kB"); strings.TrimSpace(own) != fmt.Sprint(a.size>>10) {
			return fmt.Errorf("%s of %d KiB are this process's own: %s", own, a.size>>10, line)
		}
	}
	if !written {
		return fmt.Errorf("no area that is written: %s", b)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return fmt.Errorf("left: %v, %w", left, err)
	}
	return nil
}

// again runs this binary's other side in a directory. With noexec it first mounts
// a file system there on which nothing can be executed.
func again(t *testing.T, dir string, noexec bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	if noexec {
		cmd.Env = append(cmd.Env, envNoexec+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	}
	out, err := cmd.CombinedOutput()
	if noexec && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC)) {
		t.Skip("user namespaces are off here")
	}
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v\n%s", err, out)
	}
}

// A process whose pages are changed goes on, and none of them is the file's that
// it was started from; so it is where nothing can be executed from the directory.
func TestPages(t *testing.T) {
	again(t, t.TempDir(), false)
	if err := Pages(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("in a directory that is not there")
	}
	t.Run("noexec", func(t *testing.T) { again(t, t.TempDir(), true) })
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	path, why, err := Copy(dir, "node")
	if err != nil || why != "" || path != filepath.Join(dir, "node") {
		t.Fatal(path, why, err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode() != 0o500 {
		t.Error(fi, err)
	}
	want, err1 := os.ReadFile(program)
	got, err2 := os.ReadFile(path)
	if err1 != nil || err2 != nil || !bytes.Equal(want, got) {
		t.Error("it is another program", err1, err2)
	}
	if out, err := exec.CommandContext(t.Context(), path, "-test.run=^$").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, _, err := Copy(dir, "node"); err == nil {
		t.Error("it was written over")
	}
}
