package container

import (
	"bytes"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	var all bytes.Buffer
	l := newTail(&all, 8)
	for _, s := range []string{"0123", "4567", "89\n", strings.Repeat("x", 100), "end\n"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if l.String() != "xxxxend\n" || all.Len() != 115 {
		t.Errorf("%q of %d bytes", l, all.Len())
	}
	l.inside()
	all.Reset()
	for _, s := range []string{"FATAL: no", " space left\r\x1b[2J", "\n\nlast"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := all.String(); got != "inside: FATAL: no\ninside:  space left??[2J\ninside: \ninside: \ninside: last\n" || l.String() != "xxxxend\n" {
		t.Errorf("%q, and remembered %q", got, l)
	}
	for range 64 {
		if n, err := l.Write(bytes.Repeat([]byte("\n"), 64<<10)); n != 64<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := all.Len(); n < maxInside || n > maxInside+64<<10*len(insideMark)+100 || !strings.HasSuffix(all.String(), "berth: no more is kept of what came from inside\n") {
		t.Errorf("%d bytes are kept", n)
	}
	for in, want := range map[string]string{"": "", "a\n": "a", "a\nb\nc\nd\n\n": "b; c; d",
		"INFO x\nruntime/cgo: pthread_create failed: x\nSIGABRT: abort\nPC=0x7f\n\ngoroutine 1:\ngs 0x0\n": "runtime/cgo: pthread_create failed: x",
		"runtime: failed to create new OS thread (errno=11)\nruntime: may need to increase max user processes (ulimit -u)\nfatal error: newosproc\n\n" +
			"goroutine 1:\nx.go:1\n": "runtime: failed to create new OS thread (errno=11); " +
			"runtime: may need to increase max user processes (ulimit -u); fatal error: newosproc"} {
		if got := lastLines(in, 3); got != want {
			t.Errorf("lastLines(%q) = %q, want %q", in, got, want)
		}
	}
}
