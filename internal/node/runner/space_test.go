package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

func TestSaysFull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stderr")
	if got := saysFull(file); got != "" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"":                                 "",
		"cp: x: No space left on device\n": "No space left on device",
		"cp: x: Disk quota exceeded\n" + strings.Repeat("y", 4000): "Disk quota exceeded",
		"cp: x: Disk quota exceeded\n" + strings.Repeat("y", 5000): "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := saysFull(file); got != want {
			t.Errorf("%q in %d bytes, want %q", got, len(text), want)
		}
	}
}

// TestNoSpaceForWork: the workspace is bounded by what the task may take, beside
// what is in the repository.
func TestNoSpaceForWork(t *testing.T) {
	t.Parallel()
	const fill = "head -c 3000000 /dev/zero >big; "
	for name, c := range map[string]struct {
		command string
		disk    jobs.Bytes
		code    int
	}{
		"while it runs": {fill + "exec sleep 60", 2 * jobs.MiB, 1},
		"at its end":    {fill, 2 * jobs.MiB, 1},
		"no limit":      {fill, 0, 0},
		"within it":     {fill, 4 * jobs.MiB, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := repo(t)
			if err := os.WriteFile(filepath.Join(dir, "large"), []byte(strings.Repeat("0123456789abcde\n", 1<<18)), 0o600); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "add", "large")
			git(t, dir, "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "large")
			code, rec := newJob(t, c.command, onRepo(t, dir, func(n *store.New) { n.Spec.Resources.Disk = c.disk })).run()
			if code != c.code || (c.code != 0) != strings.Contains(rec.Reason, "no space: the workspace has become larger than the 2MiB") {
				t.Errorf("exit %d, %+v", code, rec)
			}
		})
	}
}

// TestNoSpace: a directory that is larger than it may be, while the command runs
// and after it, and what a command itself says.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	sized := func(size jobs.Bytes, files int64) func(*store.New) {
		return func(n *store.New) { n.Spec.Overlay.Size, n.Spec.Overlay.Inodes = size, files }
	}
	const fill = `head -c 3000000 /dev/zero > "$LAYER/upper/big"; `
	for name, c := range map[string]struct {
		command string
		change  func(*store.New)
		says    string
	}{
		"while it runs":   {say + fill + "exec sleep 60", sized(2*jobs.MiB, 0), "no space: overlay deps has become larger than the 2MiB it may take"},
		"at its end":      {say + fill, sized(2*jobs.MiB, 0), "no space: overlay deps has become larger than the 2MiB it may take"},
		"files":           {say + `mkdir "$LAYER/upper/d"; cd "$LAYER/upper/d"; touch 1 2 3 4 5 6 7 8 9; exec sleep 60`, sized(0, 10), "no space: overlay deps has become larger than the 10 files it may take"},
		"files and size":  {say + fill, sized(2*jobs.MiB, 10), "no space: overlay deps has become larger than the 2MiB and 10 files it may take"},
		"a quota":         {say + `echo "cp: x: Disk quota exceeded" >&2; exit 4`, nil, `no space: the command ended with exit code 4, and it said "Disk quota exceeded"`},
		"within its size": {say, sized(2*jobs.MiB, 10), ""},
		"said and passed": {say + `echo "No space left on device" >&2`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := layered(t, c.command, c.change)
			code, rec := j.run()
			if c.says == "" {
				if rec.State != jobs.StateCompleted || !rec.Overlay.Promoted || j.kept() == "" {
					t.Errorf("%+v", rec)
				}
				return
			}
			if rec.State != jobs.StateFailed || code != jobs.CodeTaskFailed || rec.Reason != c.says || rec.Hint == "" || rec.Overlay.Promoted || j.kept() != "" {
				t.Errorf("%d %+v, %q\n%s", code, rec, j.kept(), j.read(store.FileRuntime))
			}
			watched := strings.Contains(strings.Join(rec.Notes, " "), "advisory")
			if watched != (c.change != nil) {
				t.Errorf("%q", rec.Notes)
			}
		})
	}
}

func TestUnwrittenHint(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("write: %w", syscall.EDQUOT): "quota -s",
		fmt.Errorf("write: %w", syscall.ENOSPC): "df -h /d; df -i /d",
		syscall.EIO:                             "ask your site",
		context.DeadlineExceeded:                "ask your site",
	} {
		if got := unwrittenHint("/d", err); !strings.Contains(got, want) || !strings.Contains(got, "/d") {
			t.Errorf("%v: %s", err, got)
		}
	}
}
