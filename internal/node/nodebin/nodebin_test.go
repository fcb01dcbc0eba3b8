package nodebin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "bin")
	path, err := Install(dir)
	must(t, err)
	if filepath.Dir(path) != dir {
		t.Error(path)
	}
	fi, err := os.Stat(path)
	must(t, err)
	if fi.Mode() != 0o700 {
		t.Errorf("%v", fi.Mode())
	}
	if !Embedded() { // then it is this program
		got, err := os.ReadFile(path)
		must(t, err)
		self, err := os.ReadFile("/proc/self/exe")
		must(t, err)
		if !bytes.Equal(got, self) {
			t.Error("it is another program")
		}
	}
	again, err := Install(dir)
	must(t, err)
	if now, err := os.Stat(again); err != nil || again != path || !os.SameFile(fi, now) {
		t.Errorf("a second time it was written anew: %s, %v", again, err)
	}
}

// TestInstallNoExec: where the kernel runs no program, none is submitted.
func TestInstallNoExec(t *testing.T) {
	asked := runnable
	t.Cleanup(func() { runnable = asked })
	runnable = func(string) error { return unix.EACCES }
	dir := t.TempDir()
	_, err := Install(dir)
	if jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "programs cannot be run from "+dir) || jobs.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	if runnable = asked; os.Getuid() != 0 {
		return
	}
	// Root can have such a file system.
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, "size=200m"); err != nil {
		return // no right to mount here, as in a container
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	if _, err := Install(dir); jobs.CodeOf(err) != jobs.CodeConfig || !errors.Is(err, unix.EACCES) {
		t.Error(err)
	}
}

// TestPutAtOnce: of many who come first, all get the same file, and no one's
// is taken away from under a job that runs it.
func TestPutAtOnce(t *testing.T) {
	dir := t.TempDir()
	data := bytes.Repeat([]byte("program\n"), 1000)
	files := make([]os.FileInfo, 8)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() {
			path, err := put(dir, Of(data))
			if err != nil {
				t.Error(err)
				return
			}
			if files[i], err = os.Stat(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, fi := range files[1:] {
		if fi == nil || !os.SameFile(files[0], fi) {
			t.Error("the file was replaced")
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

// TestPutStarts: what was put there can be started at once, whatever else this
// process starts meanwhile.
func TestPutStarts(t *testing.T) {
	data, err := os.ReadFile("/bin/true")
	must(t, err)
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					_ = exec.CommandContext(t.Context(), "/bin/true").Run()
				}
			}
		})
	}
	dir, program := t.TempDir(), Of(data)
	for i := range 100 {
		program.Name = fmt.Sprint("berth-", i)
		path, err := put(dir, program)
		must(t, err)
		if err := exec.CommandContext(t.Context(), path).Run(); err != nil {
			t.Error(err)
			break
		}
	}
	close(end)
	wg.Wait()
}

func TestPutRepairs(t *testing.T) {
	data := []byte("program")
	p := Of(data)
	for name, spoil := range map[string]func(path string) error{
		"cut off":        func(p string) error { return os.WriteFile(p, []byte("pro"), 0o700) },
		"not executable": func(p string) error { return os.WriteFile(p, data, 0o600) },
		"a dead link":    func(p string) error { return os.Symlink("nowhere", p) },
	} {
		dir := t.TempDir()
		must(t, spoil(filepath.Join(dir, p.Name)))
		path, err := put(dir, p)
		must(t, err)
		if b, err := os.ReadFile(path); err != nil || string(b) != "program" || !whole(path, p) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestInstallFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	path, err := Install(filepath.Join(file, "bin"))
	if path != "" || jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "install the program for the nodes") || jobs.HintOf(err) == "" {
		t.Errorf("%q, %v, hint %q", path, err, jobs.HintOf(err))
	}
}
