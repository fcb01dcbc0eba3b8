//go:build linux

package session_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

func put(t *testing.T, path, content string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// trouble checks an error about a file.
func trouble(t *testing.T, what string, err error, kind, contains string) {
	t.Helper()
	if session.FileKind(err) != kind || !strings.Contains(fmt.Sprint(err), contains) {
		t.Errorf("%s: got %q %v, want %q with %q", what, session.FileKind(err), err, kind, contains)
	}
	var e *jobs.Error
	if kind != "" && (!errors.As(err, &e) || e.Kind == jobs.KindUnknown) {
		t.Errorf("%s: not classified: %v", what, err)
	}
}

// whole checks that a directory holds these names and nothing that is not
// whole.
func whole(t *testing.T, dir string, names ...string) {
	t.Helper()
	got := []string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("%s has %q, want %q", dir, got, names)
	}
}

// odd makes what is no file.
func odd(t *testing.T, dir string) (fifo string) {
	t.Helper()
	fifo = filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	return fifo
}

func TestFileStat(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	put(t, home+"/sub/file", "12345", 0o640)
	put(t, home+"/\xff\n", "", 0o600)
	if err := errors.Join(os.Symlink("sub", home+"/link"), os.Symlink("nowhere\xfe", home+"/dangling")); err != nil {
		t.Fatal(err)
	}
	odd(t, home)
	for path, want := range map[string]session.FileInfo{
		"sub/file":         {Path: home + "/sub/file", Type: "file", Mode: 0o640, Size: 5},
		"~/sub/file":       {Path: home + "/sub/file", Type: "file", Mode: 0o640, Size: 5},
		home + "/sub/file": {Path: home + "/sub/file", Type: "file", Mode: 0o640, Size: 5},
		"./sub//file":      {Path: home + "/sub/file", Type: "file", Mode: 0o640, Size: 5},
		"\xff\n":           {Path: home + "/\xff\n", Type: "file", Mode: 0o600},
		"sub":              {Path: home + "/sub", Type: "directory", Mode: 0o755, Size: -1},
		"link":             {Path: home + "/link", Type: "symlink", Mode: 0o777, Size: 3, Target: "sub"},
		"link/":            {Path: home + "/link", Type: "directory", Mode: 0o755, Size: -1},
		"link/file":        {Path: home + "/link/file", Type: "file", Mode: 0o640, Size: 5},
		"dangling":         {Path: home + "/dangling", Type: "symlink", Mode: 0o777, Size: 8, Target: "nowhere\xfe"},
		"fifo":             {Path: home + "/fifo", Type: "other", Mode: 0o644},
		"~":                {Path: home, Type: "directory", Mode: 0o755, Size: -1},
		"/dev/null":        {Path: "/dev/null", Type: "other", Mode: 0o666},
	} {
		got, err := p.s.Stat(p.ctx, "", path)
		if err != nil || got.Time.IsZero() {
			t.Errorf("%q: %+v %v", path, got, err)
			continue
		}
		got.Time = time.Time{}
		if want.Size < 0 {
			got.Size = want.Size
		}
		if path == "~" {
			got.Mode = want.Mode
		}
		if got != want {
			t.Errorf("%q: got %+v, want %+v", path, got, want)
		}
	}
	for path, c := range map[string][2]string{
		"":                       {wire.FileInvalid, "the path is empty"},
		"a\x00b":                 {wire.FileInvalid, "NUL"},
		"none":                   {wire.FileNotFound, home + "/none: no such file or directory"},
		"no\n":                   {wire.FileNotFound, `/no\n": no such file`},
		"sub/file/x":             {wire.FileNotDir, "not a directory"},
		"dangling/":              {wire.FileNotFound, "no such file"},
		strings.Repeat("x", 300): {wire.FileInvalid, "file name too long"},
	} {
		_, err := p.s.Stat(p.ctx, "", path)
		trouble(t, fmt.Sprintf("%q", path), err, c[0], c[1])
	}
	if err := os.Symlink("loop", home+"/loop"); err != nil {
		t.Fatal(err)
	}
	_, err := p.s.Stat(p.ctx, "", "loop/x")
	trouble(t, "loop", err, wire.FileInvalid, "too many levels")
	proc, err := p.s.Do(wire.StartMessage{File: &wire.FileRequest{Op: "dance", Path: "x"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := wait(t, proc); err != nil || res.Exit.Code != 1 || res.File.Kind != wire.FileInvalid {
		t.Errorf("%+v %v", res, err)
	}
}

func TestFileRead(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	binary := "\x00\x01\xff\r\n" + strings.Repeat("0123456789", 30_000)
	put(t, home+"/f", binary, 0o600)
	put(t, home+"/big", strings.Repeat("x", 3<<20), 0o600)
	put(t, home+"/empty", "", 0o600)
	for name, c := range map[string]struct {
		path          string
		offset, limit int64
		want          string
		more          bool
	}{
		"all":             {"f", 0, 1 << 30, binary, false},
		"usual limit":     {"f", 0, 0, binary, false},
		"exactly":         {"f", 0, int64(len(binary)), binary, false},
		"one less":        {"f", 0, int64(len(binary)) - 1, binary[:len(binary)-1], true},
		"beginning":       {"f", 0, 3, binary[:3], true},
		"middle":          {"f", 2, 100_000, binary[2:100_002], true},
		"end":             {"f", -10, 0, binary[len(binary)-10:], false},
		"beyond the end":  {"f", 1 << 40, 0, "", false},
		"before the file": {"f", -1 << 40, 5, binary[:5], true},
		"empty":           {"empty", 0, 0, "", false},
		"big":             {"big", 0, 0, strings.Repeat("x", 1<<20), true},
		"no size":         {"/proc/self/status", 0, 5, "Name:", true},
	} {
		var b bytes.Buffer
		got, err := p.s.ReadFile(p.ctx, "", c.path, c.offset, c.limit, &b)
		if err != nil || b.String() != c.want || got.More != c.more || got.Bytes != int64(len(c.want)) || got.File.Type != "file" {
			t.Errorf("%s: %+v %v, %d bytes, want %d", name, got, err, b.Len(), len(c.want))
		}
	}
	odd(t, home)
	for path, c := range map[string][2]string{
		"none":      {wire.FileNotFound, "no such file"},
		"~":         {wire.FileIsDir, "is a directory"},
		"fifo":      {wire.FileNotRegular, "not a regular file"},
		"/dev/zero": {wire.FileNotRegular, "not a regular file"},
	} {
		_, err := p.s.ReadFile(p.ctx, "", path, 0, 0, io.Discard)
		trouble(t, path, err, c[0], c[1])
	}
	if _, err := p.s.ReadFile(p.ctx, "", "big", 0, 1<<30, broken{}); !errors.Is(err, errFull) {
		t.Errorf("a writer that fails: %v", err)
	}
	ctx, stop := context.WithCancel(p.ctx)
	slow := writerFunc(func(b []byte) (int, error) { stop(); return len(b), nil })
	if _, err := p.s.ReadFile(ctx, "", "big", 0, 1<<30, slow); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestFileWrite(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	put(t, home+"/program", "old", 0o751)
	put(t, home+"/dir/target", "old", 0o604)
	put(t, home+"/dir/deep/x", "old", 0o604)
	if err := errors.Join(os.Symlink("dir/target", home+"/link"), os.Symlink("link", home+"/link2"), os.Symlink("dir/fresh", home+"/dangling"),
		os.Symlink("dir/deep", home+"/deep"), os.Symlink("../back", home+"/dir/deep/up")); err != nil {
		t.Fatal(err)
	}
	content := "\x00\xff new\n" + strings.Repeat("x", 500_000)
	for name, c := range map[string]struct {
		path, at string
		o        session.WriteOptions
		mode     fs.FileMode
	}{
		"new":                {"new", "new", session.WriteOptions{}, 0o644},
		"mode":               {"secret", "secret", session.WriteOptions{Mode: 0o600}, 0o600},
		"wide mode":          {"wide", "wide", session.WriteOptions{Mode: 0o777}, 0o777},
		"old mode":           {"program", "program", session.WriteOptions{}, 0o751},
		"parents":            {"a/b/c", "a/b/c", session.WriteOptions{Parents: true}, 0o644},
		"parents there":      {"a/b/d", "a/b/d", session.WriteOptions{Parents: true}, 0o644},
		"link":               {"link", "dir/target", session.WriteOptions{}, 0o604},
		"link to a link":     {"link2", "dir/target", session.WriteOptions{}, 0o604},
		"dangling link":      {"dangling", "dir/fresh", session.WriteOptions{}, 0o644},
		"link behind a link": {"deep/up", "dir/back", session.WriteOptions{}, 0o644},
		"odd name":           {"\xff\n -x", "\xff\n -x", session.WriteOptions{}, 0o644},
	} {
		got, err := p.s.WriteFile(p.ctx, "", c.path, strings.NewReader(content), c.o)
		if err != nil || got.Bytes != int64(len(content)) || got.File.Mode != c.mode || got.File.Size != got.Bytes {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		fi, err := os.Lstat(filepath.Join(home, c.at))
		if err != nil || fi.Mode() != c.mode || get(t, filepath.Join(home, c.at)) != content {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	if to, err := os.Readlink(home + "/link"); err != nil || to != "dir/target" {
		t.Errorf("%s %v", to, err)
	}
	if _, err := p.s.WriteFile(p.ctx, "", "empty", nil, session.WriteOptions{}); err != nil || get(t, home+"/empty") != "" {
		t.Errorf("empty: %v", err)
	}
	odd(t, home)
	if err := os.Symlink("round", home+"/round"); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string][2]string{
		"no/such/dir": {wire.FileNotFound, home + "/no/such: no such file or directory"},
		"dir":         {wire.FileIsDir, "is a directory"},
		"new/":        {wire.FileIsDir, "is a directory"},
		"program/x":   {wire.FileNotDir, "not a directory"},
		"fifo":        {wire.FileNotRegular, "not a regular file"},
		"/dev/null":   {wire.FileNotRegular, "not a regular file"},
		"round":       {wire.FileInvalid, "too many levels"},
		"/proc/x":     {wire.FileNotFound, "/proc"},
	} {
		_, err := p.s.WriteFile(p.ctx, "", path, strings.NewReader(content), session.WriteOptions{})
		trouble(t, path, err, c[0], c[1])
	}
	_, err := p.s.WriteFile(p.ctx, "", "program/x/y", strings.NewReader(""), session.WriteOptions{Parents: true})
	trouble(t, "parents", err, wire.FileNotDir, "not a directory")
	whole(t, home, "a", "dangling", "deep", "dir", "empty", "fifo", "link", "link2", "new", "program", "round", "secret", "wide", "\xff\n -x")
	whole(t, home+"/dir", "back", "deep", "fresh", "target")
}

// TestFileWriteInterrupted ends writes in the middle, in every way: the old
// file stays, and nothing else.
func TestFileWriteInterrupted(t *testing.T) {
	p := open(t, session.Options{})
	for _, size := range []int{1, 100_000, 5_000_000} {
		home := t.TempDir()
		put(t, home+"/f", "old", 0o644)
		half := strings.NewReader(strings.Repeat("x", size))
		why := errors.New("the source is broken")
		_, err := p.s.WriteFile(p.ctx, "", home+"/f", io.MultiReader(half, iotest.ErrReader(why)), session.WriteOptions{})
		if !errors.Is(err, why) {
			t.Errorf("%d bytes: %v", size, err)
		}
		whole(t, home, "f")
		ctx, stop := context.WithCancelCause(p.ctx)
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
			stop(why)
		}()
		if _, err = p.s.WriteFile(ctx, "", home+"/f", r, session.WriteOptions{}); !errors.Is(err, why) {
			t.Errorf("%d bytes, cancelled: %v", size, err)
		}
		eventually(t, "the new file is gone", func() bool {
			e, err := os.ReadDir(home)
			return err == nil && len(e) == 1
		})
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		if get(t, home+"/f") != "old" {
			t.Error("the old file has changed")
		}
	}
}

// TestFileClientVanishes closes the stream to the guest in the middle.
func TestFileClientVanishes(t *testing.T) {
	home := t.TempDir()
	put(t, home+"/f", "old", 0o644)
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, r := launch(ctx, t, []string{os.Args[0]}, env(roleGuest))
	var err error
	if p.s, err = session.Open(ctx, r, p.in, session.Options{}); err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := p.s.WriteFile(ctx, "", home+"/f", pr, session.WriteOptions{})
		done <- err
	}()
	if _, err := pw.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	// All of it has come: what is cut in the middle of a frame is broken, not
	// closed.
	eventually(t, "a new file", func() bool {
		e, _ := os.ReadDir(home)
		return slices.ContainsFunc(e, func(f fs.DirEntry) bool {
			fi, err := f.Info()
			return err == nil && fi.Size() == 1<<20
		})
	})
	_ = p.in.Close()
	if err := <-done; err == nil { // the guest may still say why, or not
		t.Error("it was written")
	}
	_ = pw.Close()
	if exit, err := p.proc.Wait(); err != nil || exit.Code != 3 {
		t.Errorf("%+v %v", exit, err)
	}
	whole(t, home, "f")
	if get(t, home+"/f") != "old" {
		t.Error("the old file has changed")
	}
}

// TestFileEnd ends all commands; that is of files, too.
func TestFileEnd(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := p.s.WriteFile(p.ctx, "", "f", pr, session.WriteOptions{})
		done <- err
	}()
	if _, err := pw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new file", func() bool {
		e, _ := os.ReadDir(home)
		return len(e) == 1
	})
	if left, err := p.s.End(p.ctx, 0); left != 0 || err != nil {
		t.Errorf("%d %v", left, err)
	}
	trouble(t, "ended", <-done, wire.FileFailed, "given up")
	_ = pw.Close()
	whole(t, home)
}

// TestFileFull writes onto a disk that is too small, and to a mounted file.
func TestFileFull(t *testing.T) {
	dir := t.TempDir()
	mount := `mount -t tmpfs -o size=1m none "$1" && echo old >"$1/mounted" && mount --bind "$1/mounted" "$1/mounted" && exec "$0"`
	argv := []string{"unshare", "--mount", "sh", "-c", mount, os.Args[0], dir}
	if os.Getuid() != 0 {
		argv = append([]string{"unshare", "--map-root-user"}, argv[1:]...)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*hang)
	defer stop()
	p, r := launch(ctx, t, argv, env(roleGuest))
	var err error
	if p.s, err = session.Open(ctx, r, p.in, session.Options{}); err != nil {
		if strings.Contains(p.stderr.String(), "unshare") || strings.Contains(p.stderr.String(), "mount") {
			t.Skipf("no namespaces here: %s", p.stderr.String())
		}
		t.Fatal(err)
	}
	if _, err := p.s.WriteFile(ctx, "", dir+"/f", strings.NewReader("old"), session.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 4<<20)
	_, err = p.s.WriteFile(ctx, "", dir+"/f", strings.NewReader(big), session.WriteOptions{})
	trouble(t, "write", err, wire.FileNoSpace, dir+"/f: no space left on device")
	if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(jobs.HintOf(err), "df -h") {
		t.Errorf("%v, hint %q", jobs.KindOf(err), jobs.HintOf(err))
	}
	_, err = p.s.CopyIn(ctx, "", put(t, t.TempDir()+"/big", big, 0o644), dir, nil)
	trouble(t, "copy", err, wire.FileNoSpace, dir+"/big: no space left on device")
	// What is mounted cannot be renamed over.
	_, err = p.s.WriteFile(ctx, "", dir+"/mounted", strings.NewReader("new"), session.WriteOptions{})
	trouble(t, "mounted", err, wire.FileFailed, "it is mounted from elsewhere")
	l, err := p.s.List(ctx, "", dir, session.ListOptions{})
	if err != nil || len(l.Entries) != 2 || l.Entries[0].Path != "f" || l.Entries[0].Size != 3 || l.Entries[1].Size != 4 {
		t.Errorf("%+v %v", l, err)
	}
	if err := p.s.Quit(ctx); err != nil {
		t.Error(err)
	}
	_, _ = p.proc.Wait()
}

// TestFileMemory moves 64 MiB in and out.
func TestFileMemory(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	_, before := rss(t, p.s.Guest().PID)
	const size = 64 << 20
	in, out := sha256.New(), sha256.New()
	n, chunk := 0, bytes.Repeat([]byte("0123456789abcdef"), 4096)
	src := readerFunc(func(b []byte) (int, error) {
		if n >= size {
			return 0, io.EOF
		}
		chunk[n%100] = byte(n >> 16)
		k := copy(b, chunk[:min(len(chunk), size-n)])
		n += k
		return k, nil
	})
	if _, err := p.s.WriteFile(p.ctx, "", "big", io.TeeReader(src, in), session.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.ReadFile(p.ctx, "", "big", 0, 1<<40, out); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in.Sum(nil), out.Sum(nil)) {
		t.Error("what came out is not what went in")
	}
	local := t.TempDir()
	if c, err := p.s.CopyOut(p.ctx, "", "big", local, nil); err != nil || c.Bytes != size {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := p.s.CopyIn(p.ctx, "", local+"/big", "again", nil); err != nil || c.Bytes != size {
		t.Errorf("%+v %v", c, err)
	}
	if _, after := rss(t, p.s.Guest().PID); after-before > 24<<10 {
		t.Errorf("the guest's memory went from %d to %d KiB", before, after)
	}
}

func TestFileEdit(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	put(t, home+"/real", "", 0o600)
	if err := os.Symlink("real", home+"/link"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text  string
		e     session.Edit
		want  string
		count int
		kind  string
		says  string
	}{
		"once":        {"a b c", session.Edit{Old: "b", New: "x"}, "a x c", 1, "", ""},
		"to nothing":  {"a b c", session.Edit{Old: " b"}, "a c", 1, "", ""},
		"lines":       {"a\nb\nc\n", session.Edit{Old: "a\nb\n", New: "\n"}, "\nc\n", 1, "", ""},
		"binary":      {"\x00\xff\xfe\r\n", session.Edit{Old: "\xff", New: "\xfd\x00"}, "\x00\xfd\x00\xfe\r\n", 1, "", ""},
		"all":         {"aXbXc", session.Edit{Old: "X", New: "XX", All: true}, "aXXbXXc", 2, "", ""},
		"all of one":  {"aXc", session.Edit{Old: "X", New: "Y", All: true}, "aYc", 1, "", ""},
		"not there":   {"abc", session.Edit{Old: "x", New: "y"}, "abc", 0, wire.FileNoMatch, "link: the text to replace is not in it"},
		"none of all": {"abc", session.Edit{Old: "x", New: "y", All: true}, "abc", 0, wire.FileNoMatch, "not in it"},
		"twice":       {"aXbXcX", session.Edit{Old: "X", New: "Y"}, "aXbXcX", 0, wire.FileAmbiguous, "is in it 3 times"},
		"overlapping": {"aaa", session.Edit{Old: "aa", New: "b"}, "aaa", 0, wire.FileAmbiguous, "is in it 2 times"},
		"no old":      {"abc", session.Edit{New: "y"}, "abc", 0, wire.FileInvalid, "is empty, or"},
		"no change":   {"abc", session.Edit{Old: "b", New: "b"}, "abc", 0, wire.FileInvalid, "the same"},
		"explosion":   {strings.Repeat("a", 1<<20), session.Edit{Old: "a", New: strings.Repeat("b", 1<<20), All: true}, strings.Repeat("a", 1<<20), 0, wire.FileTooLarge, "would be, larger than 16 MiB"},
		"too large":   {strings.Repeat("a", 17<<20), session.Edit{Old: "a", New: "b"}, strings.Repeat("a", 17<<20), 0, wire.FileTooLarge, "larger than 16 MiB"},
		"long texts":  {strings.Repeat("a", 5<<20), session.Edit{Old: strings.Repeat("a", 5<<20), New: strings.Repeat("b", 6<<20)}, strings.Repeat("b", 6<<20), 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, home+"/real", c.text, 0o640)
			n, err := p.s.EditFile(p.ctx, "", "link", c.e)
			trouble(t, name, err, c.kind, c.says)
			if got := get(t, home+"/real"); n != c.count || got != c.want {
				t.Errorf("%d times, %.100q", n, got)
			}
			if fi, err := os.Lstat(home + "/real"); err != nil || fi.Mode() != 0o640 {
				t.Errorf("%v %v", fi, err)
			}
			whole(t, home, "link", "real")
		})
	}
	odd(t, home)
	for path, kind := range map[string]string{"none": wire.FileNotFound, ".": wire.FileIsDir, "fifo": wire.FileNotRegular} {
		_, err := p.s.EditFile(p.ctx, "", path, session.Edit{Old: "a", New: "b"})
		trouble(t, path, err, kind, "")
	}
}

// TestFileEditsAtOnce makes many edits of one file, by two names: none is lost.
func TestFileEditsAtOnce(t *testing.T) {
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	var text, want strings.Builder
	const edits = 40
	for i := range edits {
		fmt.Fprintf(&text, "<%d>\n", i)
		fmt.Fprintf(&want, "[%d]\n", i)
	}
	put(t, home+"/d/f", text.String(), 0o644)
	if err := errors.Join(os.Symlink("d", home+"/e"), os.Symlink("e/f", home+"/g")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range edits {
		all.Go(func() {
			path := []string{"d/f", "e/f", "g"}[i%3]
			if _, err := p.s.EditFile(p.ctx, "", path, session.Edit{Old: fmt.Sprintf("<%d>", i), New: fmt.Sprintf("[%d]", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := get(t, home+"/d/f"); got != want.String() {
		t.Errorf("got %s", got)
	}
	whole(t, home+"/d", "f")
}

// countedPipes counts how many pipes are asked for, and makes none.
type countedPipes struct{ made atomic.Int32 }

func (c *countedPipes) Make(bool) session.Pipe {
	c.made.Add(1)
	return nil
}

// An operation has a pipe for what it brings or takes, and for nothing else.
func TestFilePipes(t *testing.T) {
	t.Parallel()
	pipes := &countedPipes{}
	p := open(t, session.Options{Pipes: pipes})
	path := filepath.Join(t.TempDir(), "f")
	if _, err := p.s.WriteFile(t.Context(), "", path, strings.NewReader("x"), session.WriteOptions{}); err != nil || pipes.made.Load() != 1 {
		t.Errorf("%d pipes, %v", pipes.made.Load(), err)
	}
	if _, err := p.s.Stat(t.Context(), "", path); err != nil || pipes.made.Load() != 1 {
		t.Errorf("%d pipes, %v", pipes.made.Load(), err)
	}
	if _, err := p.s.ReadFile(t.Context(), "", path, 0, 0, io.Discard); err != nil || pipes.made.Load() != 2 {
		t.Errorf("%d pipes, %v", pipes.made.Load(), err)
	}
}
