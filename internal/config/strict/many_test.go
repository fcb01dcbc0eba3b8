package strict

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestManyUnknown: a file full of unknown keys is refused at once, in a few
// lines that tell how many there are.
func TestManyUnknown(t *testing.T) {
	var b strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&b, "k%d=1\n", i)
	}
	begun := time.Now()
	doc, err := DecodeTOML("f.toml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	r := doc.Root()
	for i := range 20 { // tables in which a key could have its place
		t := r.Table(fmt.Sprintf("table%d", i))
		for j := range 20 {
			t.Take(fmt.Sprintf("a-rather-long-key-%d", j))
		}
	}
	err = doc.Err()
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != maxIssues+1 || lines[maxIssues] != "f.toml: and 5990 more" || !strings.HasPrefix(lines[9], `f.toml:10: unknown key "k9"`) {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestLongNumber: an error does not repeat a whole file.
func TestLongNumber(t *testing.T) {
	_, err := DecodeTOML("f.toml", []byte("a = "+strings.Repeat("9", 60000)))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("%.500v", err)
	}
}
