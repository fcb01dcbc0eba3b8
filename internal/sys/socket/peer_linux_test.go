package socket

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestMain makes this binary a client: it tells by its end whether it was let
// in.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		os.Exit(client(os.Args[2]))
	}
	os.Exit(m.Run())
}

func client(path string) int {
	fd, err := open()
	if err != nil {
		return 3
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		return 3
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return 4
	}
	if n, _ := syscall.Read(fd, make([]byte, 1)); n != 1 {
		return 5
	}
	return 0
}

// asked tells whether a client of a user is let in, where the modes of files do
// not keep it out.
func asked(t *testing.T, uid int) bool {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-socket-") //nolint:usetesting // others must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.WriteString("x")
			_ = c.Close()
		}
	}()
	self := filepath.Join(dir, "client")
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(self, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "client", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	switch code := cmd.ProcessState.ExitCode(); code {
	case 0:
		return true
	case 5:
		return false
	default:
		t.Fatalf("exit %d, %v: %s", code, err, out)
		return false
	}
}
