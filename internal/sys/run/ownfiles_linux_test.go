package run

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
)

// An ordinary user reads what its modes forbid it.
func TestOwnFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		const nobody = 65534
		dir := t.TempDir()
		for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tmp := filepath.Join(dir, "tmp")
		if err := os.Mkdir(tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(tmp, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.v", "-test.run=^TestOwnFiles$")
		cmd.Dir, cmd.Env = tmp, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestOwnFiles") {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
		return
	}
	if can, _, why := OwnFiles(t.Context()); !can {
		t.Skip(why) // a machine that forbids user namespaces
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "closed", "file")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(file), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(file), 0o700) })
	if _, err := Output(t.Context(), Local{}, jobs.Cmd{Argv: []string{"cat", file}}); err == nil {
		t.Fatal("the file can be read anyway")
	}
	out, err := Output(t.Context(), Local{}, jobs.Cmd{Argv: []string{"sh", "-c", `cat "$1" -; id -u; stat -c %u "$1"; ls /proc/self/fd/3 2>/dev/null`, "sh", file}, Stdin: strings.NewReader(" and input\n"), OwnFiles: true})
	if got := string(out); got != "content and input\n0\n0\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Output(t.Context(), Local{}, jobs.Cmd{Argv: []string{"/no/such"}, OwnFiles: true}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	p, err := Local{}.Start(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "exit 7"}, OwnFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 7 {
		t.Errorf("%v, %v", exit, err)
	}
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string]idRange{"100000:65536": {100000, 65536}, "0:65536": {}, "5:0": {}, "5": {}, "a:b": {}, "1:2:3": {}} {
		if got, ok := parseRange(strings.Split(text, ":")); ok != (want != idRange{}) || ok && got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
