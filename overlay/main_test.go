package overlay

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/leaks"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// TestMain is also the program that is started in user namespaces.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == VerbFiles {
		os.Exit(FilesMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "overlay-mount" {
		os.Exit(MountMain(os.Args[2:], os.Stderr))
	}
	leaks.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var here = run.Local{}

// asNobody runs one test again as an ordinary user, for whom permissions mean
// something. It returns whether this process is to go on with the test.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o700))
	must(t, os.Chown(tmp, nobody, nobody))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{"test", "-test.v", "-test.run=^" + t.Name() + "$"}
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return false
}

// sif writes an image with this id.
func sif(t *testing.T, id uuid.UUID, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.sif")
	must(t, os.WriteFile(path, siftest.New(id, []byte(content)), 0o600))
	return path
}

// me is an owner, and never and always are what is known of others.
func me(name string) Owner {
	return Owner{Version: 1, Attempt: "00000000-0000-7000-8000-0000" + name, Dir: "/jobs/" + name, Host: "host-" + name, BootID: "boot", PID: 7, Time: time.Now().UTC()}
}

func never(Owner) bool  { return false }
func always(Owner) bool { return true }

// need skips a test whose programs are not here; e2fsprogs is part of any
// Debian, and its tests must run where this is built.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := tool(n); err != nil {
			t.Skipf("%s is not here: install e2fsprogs", n)
		}
	}
}

// named is an overlay specification.
func named(driver string) jobs.OverlaySpec {
	return jobs.OverlaySpec{Name: "deps", Driver: driver, Size: map[string]jobs.Bytes{jobs.DriverExt3: 16 * jobs.MiB}[driver]}
}
