package engine

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCapture(t *testing.T) {
	for name, c := range map[string]struct {
		write     []string
		truncated bool
		omitted   int64
		head, end string
	}{
		"nothing":         {nil, false, 0, "", ""},
		"short":           {[]string{"one\n", "two\n"}, false, 0, "one\n", "two\n"},
		"exactly":         {[]string{strings.Repeat("x", ShownChars)}, false, 0, "xx", "xx"},
		"one more":        {[]string{strings.Repeat("x", ShownChars), "y"}, true, 1, "xx", "xy"},
		"wide":            {[]string{strings.Repeat("€", ShownChars)}, false, 0, "€", "€"},
		"wide, one more":  {[]string{"a", strings.Repeat("€", ShownChars)}, true, 1, "a€", "€"},
		"much":            {[]string{"begin", strings.Repeat("m", 5<<20), "the end"}, true, 5<<20 + 12 - ShownChars, "begin", "the end"},
		"byte by byte":    {strings.Split(strings.Repeat("0123456789", 6000), ""), true, 10000, "0123", "6789"},
		"invalid":         {[]string{"a\xff\xfeb"}, false, 0, "a\uFFFDb", "b"},
		"cut inside rune": {[]string{"\xe2", "\x82", "\xac"}, false, 0, "€", "€"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cap := NewCapture(dir, "stdout", 0)
			var all bytes.Buffer
			for _, w := range c.write {
				all.WriteString(w)
				if n, err := cap.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatal(n, err)
				}
			}
			got := cap.Done()
			if got.Truncated != c.truncated || got.Omitted != c.omitted || got.Bytes != int64(all.Len()) || got.FileError != nil {
				t.Errorf("got %v, %d left out, %d bytes, %v", got.Truncated, got.Omitted, got.Bytes, got.FileError)
			}
			if !utf8.ValidString(got.Text) || !strings.HasPrefix(got.Text, c.head) || !strings.HasSuffix(got.Text, c.end) {
				t.Errorf("shown: %.60q ... %q", got.Text, got.Text[max(0, len(got.Text)-60):])
			}
			files, _ := os.ReadDir(dir)
			if (len(files) > 0) != c.truncated {
				t.Errorf("%d files", len(files))
			}
			if c.truncated {
				whole, err := os.ReadFile(got.File)
				if err != nil || !bytes.Equal(whole, all.Bytes()) {
					t.Errorf("the file holds %d bytes of %d, %v", len(whole), all.Len(), err)
				}
				if n := utf8.RuneCountInString(got.Text); n < ShownChars || n > ShownChars+400 {
					t.Errorf("%d characters are shown", n)
				}
			}
		})
	}
}

// TestCaptureNoDisk shows the output also where no file can be made.
func TestCaptureNoDisk(t *testing.T) {
	c := NewCapture("/dev/null/x", "stdout", 0)
	_, _ = c.Write(bytes.Repeat([]byte("z"), ShownChars+5))
	if got := c.Done(); got.FileError == nil || got.File != "" || got.Omitted != 5 || !strings.HasSuffix(got.Text, "zzz") {
		t.Errorf("got %+v", got.FileError)
	}
}

// A caller's own window counts bytes, and cuts no character.
func TestCaptureBytes(t *testing.T) {
	for name, c := range map[string]struct {
		window  int
		write   string
		begins  string // "" is that all is shown
		ends    string
		omitted int64
	}{
		"all":        {10, "0123456789", "", "", 0},
		"one more":   {10, "0123456789a", "0123", "56789a", 1},
		"wide":       {10, "€€€€€", "€", "€€", 2},
		"invalid":    {4, "\xff\xff\xff\xff", "", "", 0},
		"much":       {10, "begin" + strings.Repeat("m", 1<<20) + "the end", "begi", "he end", 1<<20 + 2},
		"one byte":   {1, "ab", "", "b", 1},
		"larger one": {60_000, strings.Repeat("x", 60_000), "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			cap := NewCapture(t.TempDir(), "stdout", c.window)
			_, _ = cap.Write([]byte(c.write))
			got := cap.Done()
			whole, err := os.ReadFile(got.File)
			switch {
			case c.omitted == 0:
				if got.Truncated || got.Text != strings.ToValidUTF8(c.write, "\uFFFD") && name != "invalid" {
					t.Errorf("shown: %.60q", got.Text)
				}
			case !strings.HasPrefix(got.Text, c.begins+"\n[... ") || !strings.HasSuffix(got.Text, " ...]\n"+c.ends) || got.Omitted != c.omitted:
				t.Errorf("%d left out: %.200q", got.Omitted, got.Text)
			case err != nil || string(whole) != c.write:
				t.Errorf("the file holds %d bytes, %v", len(whole), err)
			}
		})
	}
}
