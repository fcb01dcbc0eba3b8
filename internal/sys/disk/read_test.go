package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A record is read whole; a directory, a FIFO, a socket, a link and what is too
// large are none, and nothing is waited for.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("empty"), nil, 0o600))
	must(os.WriteFile(at("most"), bytes.Repeat([]byte("x"), 4096), 0o600))
	must(os.WriteFile(at("more"), bytes.Repeat([]byte("x"), 4097), 0o600))
	must(os.WriteFile(at("huge"), nil, 0o600))
	must(os.Truncate(at("huge"), 20<<30))
	must(syscall.Mkfifo(at("fifo"), 0o600))
	must(os.Mkdir(at("dir"), 0o700))
	must(os.Symlink("most", at("link")))
	if l, err := net.Listen("unix", at("socket")); err == nil {
		defer func() { _ = l.Close() }()
	}
	for name, want := range map[string]string{"empty": "", "most": "", "more": "4097 bytes", "huge": "21474836480 bytes", "fifo": "no regular file", "dir": "no regular file", "link": "a link", "socket": "a socket"} {
		b, err := ReadRegular(at(name), 4096)
		switch {
		case want == "" && (err != nil || len(b) != map[string]int{"most": 4096}[name]):
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		case want != "" && (!errors.Is(err, ErrNoRecord) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadRegular(at("none"), 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
