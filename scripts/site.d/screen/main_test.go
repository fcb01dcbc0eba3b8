package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// only fails unless a picture is well-formed, and has no more than shapes, text and its style:
// nothing that a browser runs or fetches.
func only(t *testing.T, picture []byte) (texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !slices.Contains([]string{"svg", "style", "rect", "text"}, token.Name.Local) {
				t.Errorf("an element %s", token.Name.Local)
			}
			inText = token.Name.Local == "text"
			for _, a := range token.Attr {
				known := []string{"xmlns", "space", "width", "height", "viewBox", "font-family", "font-size", "class", "x", "y", "rx", "textLength", "lengthAdjust"}
				if !slices.Contains(known, a.Name.Local) || a.Name.Local != "xmlns" && strings.Contains(a.Value, "//") {
					t.Errorf("an attribute %s=%q", a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				texts = append(texts, string(token))
			} else if s := string(token); strings.Contains(s, "url(") || strings.Contains(s, "@import") {
				t.Errorf("a style that fetches: %s", s)
			}
		case xml.ProcInst, xml.Directive:
			t.Errorf("%v", token)
		}
	}
}

func TestPicture(t *testing.T) {
	got := picture([]byte("\x1b[1mhead\x1b[m  a&b<c>\n  \x1b[31;1mbad\x1b[39m\x1b[m rest\n\x1b[7m 1 \x1b[m\x1b]0;title\x07\n\n"), 12, 4)
	if texts := only(t, got); !slices.Equal(texts, []string{"head", "a&b<c>", "bad", "rest", " 1 "}) {
		t.Errorf("%q", texts)
	}
	for _, want := range []string{
		`<text x="12" y="25" textLength="32" lengthAdjust="spacingAndGlyphs" class="bold">head<`,
		`<text x="60" y="25" textLength="48" lengthAdjust="spacingAndGlyphs">a&amp;b`,
		`<text x="28" y="43" textLength="24" lengthAdjust="spacingAndGlyphs" class="bold c1">bad<`,
		`<rect class="mark" x="12" y="48" width="24" height="18"/>`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for _, bad := range [][]string{nil, {"80"}, {"80", "0"}, {"80", "x"}} {
		if err := run(bad, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The picture of the pages is one of these, and of the machine that scripts/site.d/picture names.
func TestPictureOfDocs(t *testing.T) {
	got, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "top.svg"))
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Join(only(t, got), "\n")
	for _, want := range []string{"berth top", "running", "login1"} {
		if !strings.Contains(texts, want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}
