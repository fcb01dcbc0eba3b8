package task

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.md")
	if err := os.WriteFile(good, []byte(headTOML+"[workspace]\n+++\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task, err := Load(good)
	if err != nil || task.Name != "x" || task.Workspace.Repo != dir {
		t.Errorf("Load: %+v, %v", task, err)
	}
	t.Chdir(dir)
	if task, err = Load("good.md"); err != nil || task.Workspace.Repo != dir {
		t.Errorf("Load of a relative path: %+v, %v", task, err)
	}

	if err := os.WriteFile("long.md", make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("pipe.md", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string
		kind       jobs.Kind
	}{
		{"none.md", "task file none.md does not exist", jobs.KindNotFound},
		{".", ". is a directory, not a task file", jobs.KindUsage},
		{"good.md/x", "read the task file: stat good.md/x: not a directory", jobs.KindUsage},
		{"long.md", "long.md: the file has more than 1MiB", jobs.KindUsage},
		{"pipe.md", "pipe.md is not a regular file", jobs.KindUsage},
	} {
		_, err := Load(c.path)
		if err == nil || err.Error() != c.want || jobs.KindOf(err) != c.kind {
			t.Errorf("Load(%q): %v, want %s", c.path, err, c.want)
		}
	}
}

// TestFileName: what a file is called cannot act on a terminal.
func TestFileName(t *testing.T) {
	_, err := Parse("a\x1b[2J.md", nil)
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
	_, err = Parse("a\n/b.md", []byte(headTOML+"[workspace]\n+++\n"))
	if err == nil || !strings.Contains(err.Error(), "holds a control character") {
		t.Errorf("got %v", err)
	}
}
