package workspace

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Progress goes to whoever is told, however git's output is cut; what git says besides stays.
func TestProgress(t *testing.T) {
	const said = "remote: Counting objects:  50% (1/2)\rremote: Counting objects: 100% (2/2), done.\n" +
		"Receiving objects:  45% (450/1000), 12.30 MiB | 3.00 MiB/s\rFrom /repo\nfatal: Receiving objects failed\nUpdating: none"
	want := []string{"Counting objects:  50% (1/2)", "Counting objects: 100% (2/2), done.", "Receiving objects:  45% (450/1000), 12.30 MiB | 3.00 MiB/s"}
	for _, size := range []int{1, 7, len(said)} {
		var told []string
		var rest bytes.Buffer
		p := &progress{tell: func(line string) { told = append(told, line) }, rest: &rest}
		for piece := range slices.Chunk([]byte(said), size) {
			if n, err := p.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, want) || rest.String() != "From /repo\nfatal: Receiving objects failed\nUpdating: none" {
			t.Errorf("in pieces of %d: %q, and %q stays", size, told, rest.String())
		}
	}
	var rest bytes.Buffer
	p := &progress{tell: func(line string) { t.Errorf("told %.80q", line) }, rest: &rest}
	if _, err := p.Write(bytes.Repeat([]byte("x"), 3*mostProgress)); err != nil || rest.Len() != 3*mostProgress {
		t.Errorf("of a line without an end %d bytes are kept until it comes, %v", 3*mostProgress-rest.Len(), err)
	}
}

// A clone tells how far it is, in words of git's.
func TestPrepareTells(t *testing.T) {
	f := newFixture(t)
	f.commitExact(map[string]string{"a": "1\n"})
	var told []string
	f.g.Progress = func(line string) { told = append(told, line) }
	f.prepare()
	all := strings.Join(told, "\n")
	if !strings.Contains(all, "Receiving objects: 100%") || strings.Contains(all, "remote:") || told[len(told)-1] != "checking out the files" {
		t.Errorf("told %q", told)
	}
}
