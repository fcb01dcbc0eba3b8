//go:build linux

package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/transfer"

	"golang.org/x/sys/unix"
)

// zoo makes a tree with every kind of entry that a stream carries.
func zoo(t testing.TB, top string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(top, name) }
	must(t, os.MkdirAll(top, 0o755))
	write(t, in("plain"), "plain\n", 0o644)
	write(t, in("program"), "#!/bin/sh\n", 0o755)
	write(t, in("private"), "secret", 0o600)
	write(t, in("readonly"), "r", 0o444)
	write(t, in("none"), "no mode", 0o000)
	write(t, in("world"), "w", 0o666)
	write(t, in("empty"), "", 0o644)
	write(t, in("big"), strings.Repeat("0123456789abcdef", 1<<16)+"tail", 0o644)
	write(t, in("a/b/c/deep"), "deep", 0o640)
	write(t, in("odd/line\nbreak"), "1", 0o644)
	write(t, in("odd/\xff\xfe not UTF-8"), "2", 0o644)
	write(t, in("odd/größe 漢字"), "3", 0o644)
	write(t, in("odd/ -rf * $HOME 'q' \"q\" \\ \x1b[2J"), "4", 0o644)
	write(t, in("odd/"+strings.Repeat("n", 255)), "5", 0o644)
	write(t, in(strings.Repeat(strings.Repeat("d", 100)+"/", 4)+"x"), "6", 0o644)
	must(t, os.Mkdir(in("hollow"), 0o755))
	must(t, os.Symlink("plain", in("link")))
	must(t, os.Symlink("/etc/passwd", in("absolute")))
	must(t, os.Symlink("../../../../etc", in("upward")))
	must(t, os.Symlink("nowhere", in("dangling")))
	must(t, os.Symlink("odd/\xff\n"+strings.Repeat("x/", 200), in("strange")))
	must(t, os.Symlink("a/b", in("to-directory")))
	must(t, os.Link(in("plain"), in("a/hard")))
	must(t, os.Link(in("plain"), in("hard")))
	f, err := os.Create(in("sparse"))
	must(t, err)
	must(t, f.Truncate(3<<20))
	_, err = f.WriteAt([]byte("end"), 3<<20)
	must(t, err)
	must(t, f.Close())
	when := time.Unix(1_600_000_000, 123456789)
	must(t, os.Chtimes(in("plain"), when, when))
	must(t, os.Chmod(in("a/b/c"), 0o500))
	must(t, os.Chmod(in("hollow"), 0o711))
	must(t, os.Chtimes(in("a"), when, when))
	must(t, os.Chtimes(top, when, when))
}

func TestRoundTrip(t *testing.T) {
	base := t.TempDir()
	from := filepath.Join(base, "zoo")
	zoo(t, from)
	var b bytes.Buffer
	var last int64
	tally, err := transfer.Pack(t.Context(), &b, from, transfer.Options{Progress: func(n int64) { last = n }})
	must(t, err)
	if len(tally.Notes()) > 0 || last != tally.Bytes || tally.Bytes < 4<<20 {
		t.Errorf("%+v, %d told", tally, last)
	}
	last = 0
	to := filepath.Join(base, "copy")
	back, at, err := transfer.Unpack(t.Context(), &b, to, transfer.Options{Progress: func(n int64) { last = n }})
	must(t, err)
	if at != to || back.Entries != tally.Entries || back.Bytes != tally.Bytes || last != back.Bytes {
		t.Errorf("%s %+v, %d told, want %+v", at, back, last, tally)
	}
	if got, want := show(t, to), show(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Once more over what is there.
	must(t, unpack(t, pack(t, from+"/."), to))
	if got, want := show(t, to), show(t, from); !sameFiles(got, want) {
		t.Errorf("again: got\n%s\nwant\n%s", got, want)
	}
}

// sameFiles compares two lists without the directories, whose times change.
func sameFiles(a, b string) bool {
	strip := func(s string) (out string) {
		for line := range strings.SplitSeq(s, "\n") {
			if !strings.Contains(line, " d") {
				out += line + "\n"
			}
		}
		return out
	}
	return strip(a) == strip(b)
}

// TestNobody has the rights of a user who cannot read everything.
func TestNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become nobody")
	}
	base := nobodys(t)
	from := filepath.Join(base, "from")
	write(t, filepath.Join(from, "ok/file"), "x", 0o644)
	write(t, filepath.Join(from, "ok/no"), "x", 0o600)
	write(t, filepath.Join(from, "shut/file"), "x", 0o644)
	must(t, os.Mkdir(filepath.Join(from, "ro"), 0o755))
	write(t, filepath.Join(from, "ro/file"), "x", 0o444)
	must(t, os.Chmod(filepath.Join(from, "ro"), 0o555))
	must(t, os.Chmod(filepath.Join(from, "ok"), 0o755))
	must(t, os.Chmod(from, 0o755))
	out, err := asNobody(t, from, filepath.Join(base, "to"))
	if err != nil || !strings.HasPrefix(out, `2 files or directories could not be read and are missing, the first is "from/`) {
		t.Errorf("%v %s", err, out)
	}
	got := show(t, filepath.Join(base, "to"))
	for _, want := range []string{`"ok/file" -rw-r--r--`, `"ro" dr-xr-xr-x`, `"ro/file" -r--r--r--`, `"shut" drwx------`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "ok/no") || strings.Contains(got, "shut/file") {
		t.Error(got)
	}
	// A directory above that may be entered, but not read.
	must(t, os.Chmod(base, 0o711))
	must(t, os.Chown(base, 0, 0))
	must(t, os.Mkdir(filepath.Join(base, "own"), 0o777))
	must(t, os.Chmod(filepath.Join(base, "own"), 0o777)) //nolint:gosec // for another user
	if out, err := asNobody(t, from, filepath.Join(base, "own")); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if out, err := asNobody(t, filepath.Join(from, "shut"), filepath.Join(base, "own")); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := asNobody(t, from, "/root"); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("%v %s", err, out)
	}
}

// TestSpecial leaves out what no stream carries.
func TestSpecial(t *testing.T) {
	base := t.TempDir()
	from := filepath.Join(base, "from")
	write(t, filepath.Join(from, "file"), "x", 0o644)
	must(t, unix.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(from, "socket"))
	must(t, err)
	defer func() { _ = l.Close() }()
	want := int64(2)
	if unix.Mknod(filepath.Join(from, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) == nil {
		want++
	}
	must(t, os.WriteFile(filepath.Join(from, "suid"), []byte("x"), 0o600))
	must(t, os.Chmod(filepath.Join(from, "suid"), 0o755|os.ModeSetuid|os.ModeSetgid|os.ModeSticky)) //nolint:gosec // as it is
	var b bytes.Buffer
	tally, err := transfer.Pack(t.Context(), &b, from, transfer.Options{})
	must(t, err)
	if tally.Special != want || len(tally.Notes()) != 1 || tally.Entries != 3 {
		t.Errorf("%+v %q", tally, tally.Notes())
	}
	must(t, unpack(t, b.Bytes(), filepath.Join(base, "to")))
	if fi, err := os.Lstat(filepath.Join(base, "to/suid")); err != nil || fi.Mode() != 0o755 {
		t.Errorf("%v %v", fi, err)
	}
	for _, p := range []string{"pipe", "socket"} {
		if _, err := transfer.Pack(t.Context(), io.Discard, filepath.Join(from, p), transfer.Options{}); !errors.Is(err, transfer.ErrSpecial) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestKernelFiles leaves /proc out of the tree above it.
func TestKernelFiles(t *testing.T) {
	root, err := os.OpenRoot("/proc")
	must(t, err)
	defer root.Close()
	if !transfer.OfKernel(root) {
		t.Error("/proc is taken for files")
	}
	// A file of it that was named is not empty, though it says so.
	to := t.TempDir()
	must(t, unpack(t, pack(t, "/proc/self/status"), to))
	if b, err := os.ReadFile(to + "/status"); err != nil || !strings.HasPrefix(string(b), "Name:") {
		t.Errorf("%q %v", b, err)
	}
	if _, err := transfer.Pack(t.Context(), io.Discard, "/proc/self/mem", transfer.Options{}); err == nil || !strings.Contains(err.Error(), "/proc/self/mem: ") {
		t.Errorf("got %v", err)
	}
	home, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer home.Close()
	if transfer.OfKernel(home) {
		t.Error("files are taken for /proc")
	}
}

// TestSetgid keeps the group of a shared directory going down.
func TestSetgid(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "from/sub/file"), "x", 0o644)
	must(t, os.Mkdir(filepath.Join(base, "to"), 0o755))
	must(t, os.Chmod(filepath.Join(base, "to"), 0o755|os.ModeSetgid)) //nolint:gosec // as projects have it
	must(t, unpack(t, pack(t, filepath.Join(base, "from")), filepath.Join(base, "to")))
	if fi, err := os.Stat(filepath.Join(base, "to/from/sub")); err != nil || fi.Mode() != os.ModeDir|os.ModeSetgid|0o700 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

// growing is a writer that changes a file after the first bytes.
type growing struct {
	io.Writer
	change func()
}

func (g *growing) Write(p []byte) (int, error) {
	if g.change != nil {
		g.change()
		g.change = nil
	}
	return g.Writer.Write(p)
}

// TestChanging packs files that change while they are read.
func TestChanging(t *testing.T) {
	for name, c := range map[string]struct {
		size int64
		want string
	}{
		"shrinks": {1 << 20, `one file became shorter while it was copied and was filled up with zeros: "file"`},
		"grows":   {20 << 20, ""},
	} {
		base := t.TempDir()
		from := filepath.Join(base, "file")
		write(t, from, strings.Repeat("x", 8<<20), 0o644)
		var b bytes.Buffer
		tally, err := transfer.Pack(t.Context(), &growing{&b, func() { must(t, os.Truncate(from, c.size)) }}, from, transfer.Options{})
		must(t, err)
		if got := strings.Join(tally.Notes(), ""); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		must(t, unpack(t, b.Bytes(), filepath.Join(base, "to")))
		if fi, err := os.Stat(filepath.Join(base, "to")); err != nil || fi.Size() != 8<<20 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

// TestCancel ends both sides in the middle.
func TestCancel(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "from/file"), strings.Repeat("x", 8<<20), 0o644)
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	_, err := transfer.Pack(ctx, &growing{io.Discard, func() { stop(why) }}, filepath.Join(base, "from"), transfer.Options{})
	if !errors.Is(err, why) {
		t.Errorf("pack: %v", err)
	}
	stream := pack(t, filepath.Join(base, "from"))
	ctx, stop = context.WithCancelCause(t.Context())
	_, _, err = transfer.Unpack(ctx, bytes.NewReader(stream), filepath.Join(base, "to"), transfer.Options{Progress: func(int64) { stop(why) }})
	if !errors.Is(err, why) {
		t.Errorf("unpack: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(base, "to")); len(entries) > 0 {
		t.Errorf("a part of a file stays: %v", entries)
	}
}

// TestFull has a disk that cannot take the file.
func TestFull(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "file"), strings.Repeat("x", 1<<20), 0o644)
	if _, err := transfer.Pack(t.Context(), full{}, filepath.Join(base, "file"), transfer.Options{}); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestMemory packs and unpacks far more than a buffer.
func TestMemory(t *testing.T) {
	base := t.TempDir()
	f, err := os.Create(filepath.Join(base, "hole"))
	must(t, err)
	must(t, f.Truncate(256<<20))
	must(t, f.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, w := io.Pipe()
	go func() {
		_, err := transfer.Pack(t.Context(), w, filepath.Join(base, "hole"), transfer.Options{})
		_ = w.CloseWithError(err)
	}()
	_, _, err = transfer.Unpack(t.Context(), r, filepath.Join(base, "copy"), transfer.Options{})
	must(t, err)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}
