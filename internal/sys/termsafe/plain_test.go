package termsafe

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// samples is what tasks write, and what of it may reach a terminal.
var samples = map[string]string{
	"plain\ttext\r\nüñ→\U0001f600 ":                  "plain\ttext\r\nüñ→\U0001f600 ",
	"\x1b[31mred\x1b[0m \x1b[1;38;5;208mx\x1b[m":     "\x1b[31mred\x1b[0m \x1b[1;38;5;208mx\x1b[m",
	"\x1b[38:2::1:2:3mx\x1b[0m":                      "\x1b[38:2::1:2:3mx\x1b[0m",
	"a\x1b]52;c;ZXZpbA==\x07b":                       "ab", // the clipboard
	"a\x1b]52;c;ZXZpbA==\x1b\\b":                     "ab",
	"a\u009d52;c;ZXZpbA==\u009cb":                    "ab",
	"a\x9d52;c;ZXZpbA==\x9cb":                        "ab", // in 8 bits
	"a\x1b]0;title\x07\x1b]1;t\x07\x1b]2;t\x07b":     "ab",
	"a\x1b]8;;http://x/\x1b\\b\x1b]8;;\x1b\\c":       "abc", // a link
	"a\x1b]1337;File=:AAAA\x07b":                     "ab",
	"a\x1b[2Jb\x1b[3Jc\x1b[Hd\x1bce":                 "abcde", // clearing, reset
	"a\x1b[5A\x1b[10;10Hb\x1b[1Kc\b\bd\x0be\x0cf":    "abcdef",
	"a\x1b[?1049h\x1b[?25lb\x1b[6nc\x1b[cd":          "abcd", // modes, reports
	"a\x1b[>4;2mb\x1b[?4mc\x1b[4 md\x1b[1%me":        "abcde",
	"a\u009b31mb\x9b2Jc":                             "a\x1b[31mbc",
	"a\x1bP1$qm\x1b\\b\x1b^x\x1b\\c\x1b_Ga=T\x1b\\d": "abcd", // DCS, PM, APC
	"a\x1bXsos\x1b\\b\u0090q\u009cc":                 "abc",
	"a\x1b(0b\x1b)Bc\x1b#8d\x1b=e\x1b7f\x1b8g":       "abcdefg",
	"a\x00\x01\x07\x0e\x7fb\x85c\u0084d":             "abcd",
	"a\xffb\xe9c":                                    "a\ufffdb\ufffdc",
	"a\x1b]0;no end\nb":                              "a\nb",
	"a\x1b[31\nb":                                    "a\nb",
	"a\x1b\x1b[31mb":                                 "a\x1b[31mb",
	"a\x1b]0;x\x1b[31mb":                             "a\x1b[31mb",
	"a\x1b]0;x\x1b[2Jb":                              "ab",
	"a\x1b]0;x\x18b\x1bPq\x1ac":                      "abc",
	"a\x1b[3é":                                       "aé",
	"a\x1b":                                          "a",
	"a\x1b[31":                                       "a",
	"a\u200b":                                        "a\u200b",
}

func filter(t *testing.T, pieces ...[]byte) string {
	t.Helper()
	var out bytes.Buffer
	w := New(&out)
	for _, p := range pieces {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatalf("%d of %d, %v", n, len(p), err)
		}
	}
	return out.String()
}

func TestSamples(t *testing.T) {
	for in, want := range samples {
		if got := filter(t, []byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if got := filter(t, bytes.SplitAfter([]byte(in), nil)...); got != want {
			t.Errorf("%q, byte by byte: %q, want %q", in, got, want)
		}
	}
}

// TestNoEnd: what looks like the beginning of something without an end hides a
// bounded piece, and holds bounded memory.
func TestNoEnd(t *testing.T) {
	for _, begin := range []string{"\x1b]0;", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x1b[", "\x1b(", "\u0090"} {
		var out bytes.Buffer
		w := New(&out)
		text := strings.Repeat("0", 100<<10)
		if _, err := w.Write([]byte(begin + text)); err != nil {
			t.Fatal(err)
		}
		if hidden := len(text) - out.Len(); hidden > maxString+1 || cap(w.held) > 2*maxSequence || len(w.rest) > utf8.UTFMax {
			t.Errorf("%q: %d bytes are hidden, %d and %d held", begin, hidden, cap(w.held), len(w.rest))
		}
	}
}

func TestReset(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "\x1b[31ma": "\x1b[31ma\x1b[0m+", "\x1b[8ma\x1b[0m": "\x1b[8ma\x1b[0m", "\x1b[1ma\x1b[m": "\x1b[1ma\x1b[m", "a\x1b]0;": "a", "a\xc3": "a"} {
		var out bytes.Buffer
		w := New(&out)
		_, _ = w.Write([]byte(in))
		if err := w.Reset(); err != nil {
			t.Error(err)
		}
		if got := out.String(); got != strings.TrimSuffix(want, "+") {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if _, _ = w.Write([]byte("next")); !strings.HasSuffix(out.String(), "next") {
			t.Errorf("%q: then %q", in, out.String())
		}
	}
}

// FuzzWriter: whatever comes in, and wherever it is split, only text and
// colours come out, the same.
func FuzzWriter(f *testing.F) {
	for in := range samples {
		f.Add([]byte(in), len(in)/2)
	}
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		whole := filter(t, in)
		if at >= 0 && at <= len(in) {
			if split := filter(t, in[:at], in[at:]); split != whole {
				t.Errorf("split at %d: %q, else %q", at, split, whole)
			}
		}
		if again := filter(t, []byte(whole)); again != whole {
			t.Errorf("%q becomes %q", whole, again)
		}
		if !utf8.ValidString(whole) {
			t.Errorf("%q", whole)
		}
		for rest := whole; rest != ""; {
			r, n := utf8.DecodeRuneInString(rest)
			if r == '\x1b' {
				end := strings.IndexByte(rest, 'm')
				if end < 2 || rest[1] != '[' || strings.Trim(rest[2:end], "0123456789;:") != "" {
					t.Fatalf("%q", rest)
				}
				n = end + 1
			} else if r < 0x20 && !strings.ContainsRune("\t\r\n", r) || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%U in %q", r, whole)
			}
			rest = rest[n:]
		}
	})
}
