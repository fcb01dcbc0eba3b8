package session

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// Output ends with the guest's end of the pipe, though someone else inside has
// opened it too, and nothing that the guest wrote is lost.
func TestPipeOthers(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 2000) // fits into any pipe
	for _, moved := range []bool{false, true} {
		p, ok := LocalPipes(t.TempDir(), "").Make(false).(*fifo)
		if !ok {
			t.Fatal("no pipe")
		}
		defer p.Close()
		var ends [2]*os.File
		for i := range ends {
			f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			ends[i] = f
		}
		var got bytes.Buffer
		var to io.Writer = &got
		copied := make(chan struct{})
		if moved {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			to = w
			go func() {
				defer close(copied)
				_, _ = io.Copy(&got, io.LimitReader(r, int64(len(text))))
				_ = r.Close()
			}()
		} else {
			close(copied)
		}
		done := make(chan error, 1)
		go func() { done <- p.Receive(to) }()
		if _, err := ends[0].Write(text); err != nil {
			t.Fatal(err)
		}
		_ = ends[0].Close()
		p.End()
		select {
		case err := <-done:
			<-copied
			if err != nil || !bytes.Equal(got.Bytes(), text) {
				t.Errorf("%t: %d of %d bytes, %v", moved, got.Len(), len(text), err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	}
}

// A guest that goes on in frames behind the end of a tree is told no, and holds
// no one up; that the tree did not come whole is known in any case.
func TestArrival(t *testing.T) {
	pipes := LocalPipes(t.TempDir(), "")
	for _, guest := range []error{nil, io.ErrUnexpectedEOF} {
		p, ok := pipes.Make(false).(*fifo)
		if !ok {
			t.Fatal("no pipe")
		}
		w, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		var got []byte
		a := newArrival(func(r io.Reader) (u unpacked) {
			got, u.err = io.ReadAll(r)
			return u
		}, func(error) { t.Error("stopped") })
		if err := p.Receive(&sink{w: a}); err != nil || string(got) != "text" {
			t.Errorf("%q %v", got, err)
		}
		if _, err := a.Write([]byte("more")); err == nil {
			t.Error("more is taken")
		}
		if u := a.end(guest); u.err != nil || string(got) != "text" {
			t.Errorf("%q %v", got, u.err)
		}
		p.Close()
	}
	// Nothing at all, and half of it in frames.
	for _, text := range []string{"", "half"} {
		a := newArrival(func(r io.Reader) (u unpacked) {
			_, u.err = io.ReadAll(r)
			return u
		}, func(error) {})
		if text != "" {
			if _, err := a.Write([]byte(text)); err != nil {
				t.Error(err)
			}
		}
		if u := a.end(io.ErrUnexpectedEOF); !errors.Is(u.err, errEnded) {
			t.Errorf("%q: %v", text, u.err)
		}
	}
}

// What goes in is copied into the pipe: whoever has its other end must not
// hold pages of files of this machine.
func TestDepartureCopies(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d := newDeparture(func(to io.Writer) (p packed) {
		_, file := to.(*os.File)
		_, piped := to.(interface{ Pipe() *os.File })
		_, from := to.(io.ReaderFrom)
		if file || piped || from {
			t.Errorf("the kernel could move what goes into a %T", to)
		}
		_, p.err = io.WriteString(to, "text")
		return p
	})
	if done, err := (&source{r: d}).give(w); !done || err != nil {
		t.Errorf("%v %v", done, err)
	}
	_ = w.Close()
	if b, err := io.ReadAll(r); string(b) != "text" || err != nil || d.end().err != nil {
		t.Errorf("%q %v", b, err)
	}
}
