//go:build linux

package transfer_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/internal/link/transfer"

	"golang.org/x/sys/unix"
)

// random writes a file of random bytes.
func random(t testing.TB, path string, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	_, _ = rand.Read(b)
	write(t, path, string(b), 0o640)
	return b
}

// unpackPiped unpacks a stream that comes out of a pipe.
func unpackPiped(t testing.TB, stream []byte, dest string) error {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = w.Write(stream)
		_ = w.Close()
	}()
	_, _, err = transfer.Unpack(t.Context(), r, dest, transfer.Options{})
	_ = r.Close()
	<-wrote
	return err
}

// packPiped packs into a pipe; first is called when something has come out.
func packPiped(t testing.TB, source string, first func()) ([]byte, transfer.Tally) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	type result struct {
		tally transfer.Tally
		err   error
	}
	done := make(chan result)
	go func() {
		tally, err := transfer.Pack(t.Context(), w, source, transfer.Options{})
		_ = w.Close()
		done <- result{tally, err}
	}()
	head := make([]byte, 512)
	_, err = io.ReadFull(r, head)
	must(t, err)
	if first != nil {
		first()
	}
	rest, err := io.ReadAll(r)
	must(t, err)
	res := <-done
	must(t, res.err)
	return append(head, rest...), res.tally
}

// TestPipe carries the same stream through pipes as through anything else,
// large files among small ones.
func TestPipe(t *testing.T) {
	base := t.TempDir()
	from := filepath.Join(base, "zoo")
	zoo(t, from)
	for name, size := range map[string]int{"block": 1 << 20, "less": 1<<20 - 1, "more": 1<<20 + 1, "least": 512 << 10, "large": 5<<20 + 77} {
		random(t, filepath.Join(from, "large", name), size)
	}
	must(t, os.Link(from+"/large/large", from+"/large/again"))
	stream, tally := packPiped(t, from, nil)
	if want := pack(t, from); !bytes.Equal(stream, want) {
		t.Errorf("another stream, of %d bytes and not %d", len(stream), len(want))
	}
	must(t, unpackPiped(t, stream, base+"/copy"))
	if got, want := show(t, base+"/copy"), show(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Both at once.
	r, w, err := os.Pipe()
	must(t, err)
	go func() {
		_, _ = transfer.Pack(t.Context(), w, from, transfer.Options{})
		_ = w.Close()
	}()
	var last int64
	back, _, err := transfer.Unpack(t.Context(), r, base+"/both", transfer.Options{Progress: func(n int64) { last = n }})
	must(t, err)
	must(t, r.Close())
	if back.Entries != tally.Entries || back.Bytes != tally.Bytes || last != tally.Bytes {
		t.Errorf("%+v, %d told, want %+v", back, last, tally)
	}
	if got, want := show(t, base+"/both"), show(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPipeChanging packs large files into a pipe that change meanwhile.
func TestPipeChanging(t *testing.T) {
	for name, c := range map[string]struct {
		size int64
		want string
	}{
		"shrinks": {5<<20 + 1, `one file became shorter while it was copied and was filled up with zeros: "file"`},
		"empties": {0, `one file became shorter while it was copied and was filled up with zeros: "file"`},
		"grows":   {20 << 20, ""},
	} {
		base := t.TempDir()
		content := random(t, base+"/from/file", 8<<20)
		write(t, base+"/from/next", "next", 0o644)
		stream, tally := packPiped(t, base+"/from/file", func() { must(t, os.Truncate(base+"/from/file", c.size)) })
		if got := strings.Join(tally.Notes(), ""); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		must(t, unpackPiped(t, stream, base+"/to"))
		got, err := os.ReadFile(base + "/to")
		must(t, err)
		same := 0
		for same < len(got) && same < len(content) && got[same] == content[same] {
			same++
		}
		// Of what was on its way when it shrank, some may have become zeros.
		if len(got) != len(content) || c.want == "" && same != len(content) ||
			c.want != "" && !bytes.Equal(got[max(c.size, 4<<20):], make([]byte, len(content)-int(max(c.size, 4<<20)))) {
			t.Errorf("%s: %d bytes, the first %d as they were", name, len(got), same)
		}
	}
}

func large(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 600<<10 + 3}
}

// TestPipeHostile has what is hostile stand around large files.
func TestPipeHostile(t *testing.T) {
	for name, c := range map[string]struct {
		stream []tar.Header
		want   string // of the error; "" is success
	}{
		"parent":           {[]tar.Header{dir("top"), large("top/../../evil")}, "not a stream"},
		"absolute":         {[]tar.Header{dir("top"), large("top/x"), large("/tmp/berth-evil")}, "not a stream"},
		"another top":      {[]tar.Header{large("top"), large("evil")}, "not a stream"},
		"through a link":   {[]tar.Header{dir("top"), large("top/x"), symlink("top/l", "../../outside"), large("top/l/evil")}, "not a directory"},
		"a link there":     {[]tar.Header{dir("."), large("./up/evil")}, "not a directory"},
		"over a link":      {[]tar.Header{dir("."), large("./upfile"), large("./upfile")}, ""},
		"over a directory": {[]tar.Header{dir("top"), dir("top/x"), large("top/x")}, "is a directory"},
		"linked outside":   {[]tar.Header{dir("top"), large("top/x"), hardlink("top/h", "../canary")}, "not a stream"},
		"linked":           {[]tar.Header{dir("top"), large("top/x"), hardlink("top/h", "top/x"), large("top/x")}, ""},
		"device":           {[]tar.Header{dir("top"), large("top/x"), {Typeflag: tar.TypeFifo, Name: "top/p"}, large("top/y")}, ""},
	} {
		tr := newTrap(t)
		err := unpackPiped(t, archive(t, c.stream...), tr.dest)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		tr.check(t)
		if _, err := os.Lstat("/tmp/berth-evil"); err == nil {
			t.Errorf("%s: it was made", name)
		}
	}
}

// TestPipeCut cuts a stream with large files, and has headers promise more than
// comes: it is never taken for whole, and no part of a file stays.
func TestPipeCut(t *testing.T) {
	stream := archive(t, dir("top"), large("top/a"), file("top/b"), large("top/c"))
	var cuts []int
	for n := 0; n < len(stream); n += 70_001 {
		cuts = append(cuts, n)
	}
	body := 1024 // where that of the first begins
	end := body + 600<<10 + 3
	for _, n := range append(cuts, body, body+1, body+64<<10, end-1, end, end+1, end+509, end+510, len(stream)-1024, len(stream)-512) {
		dest := t.TempDir()
		if err := unpackPiped(t, stream[:n], dest); !errors.Is(err, transfer.ErrStream) {
			t.Fatalf("at %d: %v", n, err)
		}
		must(t, filepath.Walk(dest, func(p string, fi os.FileInfo, err error) error {
			if err == nil && fi.Mode().IsRegular() && (!slices.Contains([]int64{3, 600<<10 + 3}, fi.Size()) || strings.HasPrefix(fi.Name(), ".")) {
				t.Errorf("at %d: %s has %d bytes", n, p, fi.Size())
			}
			return err
		}))
	}
	must(t, unpackPiped(t, stream, t.TempDir()))
	must(t, unpackPiped(t, append(stream, make([]byte, 9000)...), t.TempDir()))
	if err := unpackPiped(t, append(stream, make([]byte, 2<<20)...), t.TempDir()); !errors.Is(err, transfer.ErrStream) {
		t.Errorf("endless: %v", err)
	}
	for _, size := range []int64{1 << 20, 1 << 40, 1<<63 - 1} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "top", Size: size, Mode: 0o644}))
		b.Write(make([]byte, 700<<10))
		dest := t.TempDir()
		if err := unpackPiped(t, b.Bytes(), dest); !errors.Is(err, transfer.ErrStream) {
			t.Errorf("%d: %v", size, err)
		}
		if e, _ := os.ReadDir(dest); len(e) > 0 {
			t.Errorf("%d: %v stays", size, e)
		}
	}
}

// TestPipeFull has no room for a file; the error names it.
func TestPipeFull(t *testing.T) {
	base := t.TempDir()
	random(t, base+"/file", 8<<20)
	stream := pack(t, base+"/file")
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 2 << 20, Max: before.Max}))
	err := unpackPiped(t, stream, base+"/to")
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), base+"/to") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(base + "/to"); err == nil {
		t.Error("a part of it stays")
	}
}

// TestPipeDeserted packs into a pipe whose reader goes away.
func TestPipeDeserted(t *testing.T) {
	base := t.TempDir()
	random(t, base+"/file", 8<<20)
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	go func() {
		_, _ = io.CopyN(io.Discard, r, 1<<20)
		_ = r.Close()
	}()
	if _, err := transfer.Pack(t.Context(), w, base+"/file", transfer.Options{}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
}
