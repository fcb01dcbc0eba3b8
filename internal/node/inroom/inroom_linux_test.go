package inroom

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/node/guest"
	"berth/jobs"
)

// The test program is the guest of the rooms, and itself again as an ordinary user: root
// has none.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guest" {
		os.Exit(guest.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const ordinary = 4242

// asUser runs this test again as an ordinary user, and reports that it did.
func asUser(t *testing.T) bool {
	if os.Getuid() != 0 {
		return false
	}
	dir := t.TempDir()
	self, err := os.ReadFile("/proc/self/exe")
	program := filepath.Join(dir, "test")
	if err := errors.Join(err, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755), os.Chmod(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Chown(work, ordinary, ordinary)); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+t.Name()+"$")
	c.Env, c.Dir = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + work, "TMPDIR=" + work}, work
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("%s", out)
	}
	return true
}

// TestProof: what must fail in a room is tried before its first command, whatever its
// network is, and the room opens.
func TestProof(t *testing.T) {
	if asUser(t) {
		return
	}
	for _, n := range []jobs.Network{{Mode: jobs.NetworkNone}, {Mode: jobs.NetworkAllow, Allow: []string{"allowed.example"}}} {
		var log, out bytes.Buffer
		r, err := Open(context.Background(), Options{Network: n, Dir: t.TempDir(), Added: t.TempDir(), Log: &log})
		if err != nil && strings.Contains(err.Error(), "operation not permitted") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", n.Mode, err, &log)
		}
		if seen := r.c.Session().Guest().Seen; seen == nil || !seen.Tried || len(seen.Reached) > 0 || len(seen.Devices) > 0 {
			t.Errorf("%s: %+v", n.Mode, seen)
		}
		p, err := r.Start(context.Background(), jobs.Cmd{Argv: []string{"cat", "/proc/net/dev"}, Dir: "/", Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || !exit.OK() || strings.Count(out.String(), ":") != 1 {
			t.Errorf("%s: %v %v %s", n.Mode, exit, err, &out)
		}
		r.Close()
	}
}
