package runner

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// What ranks write comes out whole, however srun cuts and mixes it.
func TestLabelled(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const ranks = 3
	var raw [ranks]bytes.Buffer
	var want [ranks]string
	for i := range raw {
		up := &uplink{w: &raw[i]}
		for n := range 300 {
			text := fmt.Sprintf("%d: line %d\x1e\x00\xff", i, n) + strings.Repeat("x", random.IntN(3000)) + "\n"
			want[i] += text
			if _, err := (stream{up, frameOut}).Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wire bytes.Buffer
	wire.WriteString("a prolog says: 7\n")
	for left := ranks; left > 0; {
		i := random.IntN(ranks)
		if raw[i].Len() == 0 {
			left--
			for raw[i].Len() == 0 && left > 0 {
				i = (i + 1) % ranks
			}
			if left == 0 {
				break
			}
		}
		piece := raw[i].Next(1 + random.IntN(1024))
		for part := range bytes.Lines(piece) { // as srun's write_labelled_message
			fmt.Fprintf(&wire, "%*d: %s", 1+i%2, i, part)
			if part[len(part)-1] != '\n' {
				wire.WriteByte('\n')
			}
		}
	}
	for i := range raw { // what the loop has left
		for part := range bytes.Lines(raw[i].Bytes()) {
			fmt.Fprintf(&wire, "%d: %s", i, part)
		}
	}
	var got [ranks]string
	var noise []string
	l := newLabelled(func(i int, f frame) {
		if f.Kind != frameOut {
			t.Errorf("frame %q", f.Kind)
		}
		got[i] += string(f.Data)
	}, func(line string) { noise = append(noise, line) })
	for wire.Len() > 0 {
		if _, err := l.Write(wire.Next(1 + random.IntN(2000))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("rank %d: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
	if len(noise) != 1 || noise[0] != "a prolog says: 7" {
		t.Errorf("noise %q", noise)
	}
}

// A frame that is none, or never ends, is noise, and the next one counts.
func TestLabelledNonsense(t *testing.T) {
	var kinds, noise []string
	l := newLabelled(func(_ int, f frame) { kinds = append(kinds, f.Kind) }, func(line string) { noise = append(noise, line) })
	_, _ = l.Write([]byte("0: {nonsense\x1e{\"k\":\"pong\"}\x1e\n0: " + strings.Repeat("y", maxFrame+1) + "\n0: {\"k\":\"ready\"}\x1e\n"))
	if len(noise) != 2 || noise[0] != "{nonsense" || len(noise[1]) > 300 || strings.Join(kinds, " ") != "pong ready" {
		t.Errorf("noise %.300q, frames %q", noise, kinds)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	a, b := &lines{to: &out}, &lines{to: &out}
	for _, w := range []struct {
		l *lines
		s string
	}{{a, "one "}, {b, "two\nand"}, {a, "line\n"}, {b, " more"}} {
		_, _ = w.l.Write([]byte(w.s))
	}
	a.end()
	b.end()
	b.end()
	if got := out.String(); got != "two\none line\nand more\n" {
		t.Errorf("got %q", got)
	}
	out.Reset()
	_, _ = a.Write(bytes.Repeat([]byte("z"), maxLine+1))
	if out.Len() != maxLine+2 {
		t.Errorf("a line without end: %d bytes went on", out.Len())
	}
}
