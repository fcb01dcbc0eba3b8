package ttystream_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/link/ttystream"

	"github.com/creack/pty"
)

// terminal opens a pseudoterminal, as a service does.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// pair is a link over a real terminal; from is what outside reads, when not the
// master itself.
func pair(t *testing.T, wrap func(io.Reader) io.Reader, people io.Writer) (outside, inside *ttystream.Link) {
	t.Helper()
	master, slave := terminal(t)
	// What a shell writes first, and the echo of what was typed.
	if _, err := master.WriteString(" exec berth-node guest --terminal n1\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := slave.WriteString("Welcome!\n\x1b]0;title\x07$ "); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	if n, err := slave.Read(line); err != nil || !bytes.HasSuffix(line[:n], []byte("n1\n")) {
		t.Fatalf("the shell read %q, %v", line[:n], err)
	}
	inside, err := ttystream.Inside(slave, slave, "n1")
	if err != nil {
		t.Fatal(err)
	}
	var r io.Reader = master
	if wrap != nil {
		r = wrap(master)
	}
	outside, err = ttystream.Outside(r, master, "n1", people)
	if err != nil {
		t.Fatal(err)
	}
	return outside, inside
}

// Every byte comes through, both ways at once, in writes of any size.
func TestExactBothWays(t *testing.T) {
	outside, inside := pair(t, nil, nil)
	const total = 8 << 20
	send := func(l *ttystream.Link, seed uint64) (sum [32]byte) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := sha256.New()
		for left := total; left > 0; {
			n := min(left, 1+r.IntN(40<<10))
			if r.IntN(2) == 0 {
				n = min(left, 1+r.IntN(20))
			}
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			h.Write(p)
			if _, err := l.Write(p); err != nil {
				t.Error(err)
				return sum
			}
			left -= n
		}
		if err := l.CloseWrite(); err != nil {
			t.Error(err)
		}
		return [32]byte(h.Sum(nil))
	}
	take := func(l *ttystream.Link) [32]byte {
		h := sha256.New()
		if n, err := io.Copy(h, l); err != nil || n != total {
			t.Errorf("%d bytes, %v", n, err)
		}
		return [32]byte(h.Sum(nil))
	}
	sums := make([][32]byte, 4)
	done := make(chan struct{})
	for i, f := range []func() [32]byte{
		func() [32]byte { return send(outside, 1) }, func() [32]byte { return take(inside) },
		func() [32]byte { return send(inside, 2) }, func() [32]byte { return take(outside) },
	} {
		go func() { sums[i] = f(); done <- struct{}{} }()
	}
	for range 4 {
		select {
		case <-done:
		case <-time.After(5 * time.Minute):
			t.Fatal("the stream stands still")
		}
	}
	if sums[0] != sums[1] || sums[2] != sums[3] {
		t.Error("the bytes are not the same")
	}
}

// pieces counts what a service that reads the terminal at once has to hold
// while the one who reads the WebSocket does not.
type pieces struct {
	r    io.Reader
	open chan struct{} // closed: it reads; before, only the beginning
	left int           // bytes of the beginning
	hold chan []byte
	rest []byte
}

func (p *pieces) fill() {
	for {
		b := make([]byte, 32<<10)
		n, err := p.r.Read(b)
		if err != nil {
			close(p.hold)
			return
		}
		p.hold <- b[:n]
	}
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.left <= 0 {
			<-p.open
		}
		var ok bool
		if p.rest, ok = <-p.hold; !ok {
			return 0, io.EOF
		}
	}
	n := copy(b, p.rest)
	p.left -= n
	p.rest = p.rest[n:]
	return n, nil
}

// A reader that stands still never makes a service hold more pieces than the
// 256 after which some drop it, whatever the size of the writes.
func TestSlowReader(t *testing.T) {
	for _, size := range []int{1, 700, 1500, 4096, 100 << 10} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			var p *pieces
			open := make(chan struct{})
			outside, inside := pair(t, func(r io.Reader) io.Reader {
				p = &pieces{r: r, open: open, left: 256, hold: make(chan []byte, 10000)}
				go p.fill()
				return p
			}, nil)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				b := make([]byte, size)
				for total := 0; total < 1<<20 && total < 3000*size; total += size {
					if _, err := inside.Write(b); err != nil {
						return
					}
				}
				_ = inside.CloseWrite()
			}()
			most := 0
			for last, same := -1, 0; same < 20; { // until nothing moves any more
				n := len(p.hold)
				if n == last && n > 0 {
					same++
				} else {
					last, same = n, 0
				}
				most = max(most, n)
				time.Sleep(10 * time.Millisecond)
			}
			if most > 200 || most == 0 {
				t.Errorf("%d pieces wait", most)
			}
			close(open)
			if _, err := io.Copy(io.Discard, outside); err != nil {
				t.Error(err)
			}
			<-sent
		})
	}
}

// What was typed is echoed, and is not taken for the answer; a terminal on which
// nothing answers shows what it said instead.
func TestNobodyAnswers(t *testing.T) {
	noise := "$ exec /tmp/x --terminal n1\r\nbash: /tmp/x: \x1b[1mPermission denied\r\n"
	_, err := ttystream.Outside(strings.NewReader(noise), io.Discard, "n1", nil)
	var n *ttystream.NoiseError
	if !errors.As(err, &n) || !strings.Contains(n.Text, "Permission denied") || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	_, err = ttystream.Outside(io.LimitReader(zeros{}, 1<<30), io.Discard, "n1", nil)
	if !errors.As(err, &n) || !strings.Contains(err.Error(), "too much else") {
		t.Errorf("endless noise: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A terminal, or a proxy, that changes a byte is found before it is used.
func TestNotExact(t *testing.T) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	bent := bytes.ReplaceAll(all, []byte{'\n'}, []byte("\r\n"))
	_, err := ttystream.Outside(strings.NewReader(ttystream.Ready("n")+string(bent)), io.Discard, "n", nil)
	if !errors.Is(err, ttystream.ErrBroken) {
		t.Errorf("outside: %v", err)
	}

	master, slave := terminal(t)
	inside, err := ttystream.Inside(slave, slave, "n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.Write(bent); err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, ttystream.ErrBroken) {
		t.Errorf("inside: %v", err)
	}
}

// A stream that breaks is an error after what has arrived, and no end; a side
// that ignores the window is broken.
func TestBroken(t *testing.T) {
	begin := ttystream.Ready("n")
	for i := range 256 {
		begin += string([]byte{byte(i)})
	}
	big := "D\x3f\xfd" + strings.Repeat("x", 16<<10-3)
	for name, c := range map[string]struct {
		stream string
		want   error
		data   int
	}{
		"cut in a frame":    {"D\x00\x02okD\x00\x05no", io.ErrUnexpectedEOF, 2},
		"cut between":       {"D\x00\x02ok", io.ErrUnexpectedEOF, 2},
		"end":               {"D\x00\x02okX\x00\x00", nil, 2},
		"unknown type":      {"D\x00\x02ok[31mdead", ttystream.ErrBroken, 2},
		"too long":          {"D\xff\xff", ttystream.ErrBroken, 0},
		"credit for naught": {"C\x00\x04\x00\x00\x00\x01", ttystream.ErrBroken, 0},
		"no window":         {strings.Repeat(big, 9), ttystream.ErrBroken, -1},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ttystream.Outside(strings.NewReader(begin+c.stream), io.Discard, "n", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.data < 0 { // no one reads before all of it has come
				for err == nil { // it has heard of it when it takes nothing more
					_, err = l.Write([]byte("x"))
				}
			}
			b, err := io.ReadAll(l)
			if !errors.Is(err, c.want) || c.data >= 0 && len(b) != c.data {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
}

// What the side inside says to people does not get into the stream.
func TestPeople(t *testing.T) {
	var said bytes.Buffer
	outside, inside := pair(t, nil, &said)
	for range 300 { // more than the window, if it were not given back
		if _, err := io.WriteString(inside.People(), "leaving\n"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := inside.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := inside.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(outside)
	if string(b) != "data" || err != nil || said.Len() != 300*len("leaving\n") {
		t.Errorf("%q, %v, and %d bytes for people", b, err, said.Len())
	}
}
