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
	for in, want := range map[string]string{"": "", "a\n": "a", "a\nb\nc\nd\n\n": "b; c; d"} {
		if got := lastLines(in, 3); got != want {
			t.Errorf("lastLines(%q) = %q, want %q", in, got, want)
		}
	}
}
