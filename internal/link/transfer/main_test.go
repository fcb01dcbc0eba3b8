package transfer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/transfer"
	"berth/internal/sys/leaks"
)

// roleVar makes the test binary copy as somebody else, see [asNobody].
const roleVar = "TRANSFER_TEST_COPY"

func TestMain(m *testing.M) {
	syscall.Umask(0o077) // modes must not come from here
	if what := os.Getenv(roleVar); what != "" {
		os.Exit(copyMain(what))
	}
	leaks.Main(m)
}

// copyMain copies "FROM\nTO" and prints the notes.
func copyMain(what string) int {
	from, to, _ := strings.Cut(what, "\n")
	var b bytes.Buffer
	t, err := transfer.Pack(context.Background(), &b, from, transfer.Options{})
	if err == nil {
		_, _, err = transfer.Unpack(context.Background(), &b, to, transfer.Options{})
	}
	for _, n := range t.Notes() {
		fmt.Println(n)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// asNobody copies with the rights of nobody.
func asNobody(t *testing.T, from, to string) (string, error) {
	t.Helper()
	bin := filepath.Join(nobodys(t), "copy")
	b, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(bin, b, 0o700))
	must(t, os.Chmod(bin, 0o755)) //nolint:gosec // for another user
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = []string{roleVar + "=" + from + "\n" + to, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// nobodys makes a directory that nobody owns and reaches.
func nobodys(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "transfer-") //nolint:usetesting // nobody may not enter t.TempDir
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chown(dir, 65534, 65534))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string, mode fs.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
	must(t, os.Chmod(path, mode))
}

// show lists a tree, one line for each entry.
func show(t testing.TB, top string) string {
	t.Helper()
	var out []string
	inodes := map[uint64]string{}
	must(t, filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, p)
		line := fmt.Sprintf("%q %v", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x %v", sha256.Sum256(b), fi.ModTime().UnixNano())
			st, _ := fi.Sys().(*syscall.Stat_t)
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = rel
				}
				line += " is " + inodes[st.Ino]
			}
		case fi.IsDir():
			line += fmt.Sprint(" ", fi.ModTime().UnixNano())
		default:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " to " + fmt.Sprintf("%q", to)
		}
		out = append(out, line)
		return nil
	}))
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// pack packs in memory.
func pack(t testing.TB, source string) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := transfer.Pack(t.Context(), &b, source, transfer.Options{})
	must(t, err)
	return b.Bytes()
}

func unpack(t testing.TB, stream []byte, dest string) error {
	t.Helper()
	_, _, err := transfer.Unpack(t.Context(), bytes.NewReader(stream), dest, transfer.Options{})
	return err
}

// archive writes headers; a header's content is its own name's bytes when it
// has a size.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.ModTime = time.Unix(1e9, 0)
		must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := io.CopyN(w, strings.NewReader(strings.Repeat("x", int(h.Size))), h.Size)
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name + "/"} }

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3} }

func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

func hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}
