package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A gauge is silent for a second, then tells how far it is at a pace that a slow terminal bears,
// and leaves an empty line; in a pipe there is none.
func TestGauge(t *testing.T) {
	a, _, stderr := onTerminal(true)
	now := noon
	a.now = func() time.Time { return now }
	progress, end := a.gauge("exporting deps\x1b[2J")
	at := func(after time.Duration, done, of int64, want string) {
		t.Helper()
		stderr.Reset()
		now = noon.Add(after)
		if progress(done, of); stderr.String() != want {
			t.Errorf("after %s: %q, want %q", after, stderr, want)
		}
	}
	at(900*time.Millisecond, 1<<20, 8<<20, "")
	at(2*time.Second, 4<<20, 8<<20, "\r\x1b[Kberth: exporting deps [2J at 2 MiB/s [============            ] 4.0 MiB of 8.0 MiB")
	at(2100*time.Millisecond, 5<<20, 8<<20, "")
	at(4*time.Second, 9<<20, 8<<20, "\r\x1b[Kberth: exporting deps [2J at 2 MiB/s [========================] 8.0 MiB of 8.0 MiB")
	at(5*time.Second, 10<<20, 0, "\r\x1b[Kberth: exporting deps [2J at 2 MiB/s: 10.0 MiB")
	stderr.Reset()
	if end(); stderr.String() != "\r\x1b[K" {
		t.Errorf("the end: %q", stderr)
	}
	at(9*time.Second, 1, 1, "") // what comes late
	if progress, end := a.gauge("short"); progress != nil {
		stderr.Reset()
		progress(1, 2)
		if end(); stderr.Len() > 0 {
			t.Errorf("of what was short: %q", stderr)
		}
	}
	b, _, _ := onTerminal(false)
	if progress, end := b.gauge("x"); progress != nil {
		t.Error("there is a gauge in a pipe")
	} else {
		end()
	}
}

// A gauged reader tells how much of a file was read, and of what size it is.
func TestGauged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, c := range []struct {
		r  io.Reader
		of int64
	}{{f, 5}, {strings.NewReader("12345"), 0}} {
		var done, of int64
		b, err := io.ReadAll(gauged(c.r, func(d, o int64) { done, of = d, o }))
		if err != nil || string(b) != "12345" || done != 5 || of != c.of {
			t.Errorf("%q, %v: %d of %d", b, err, done, of)
		}
	}
	if r := strings.NewReader(""); gauged(r, nil) != io.Reader(r) {
		t.Error("a reader without a gauge is another one")
	}
}
