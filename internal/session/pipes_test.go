package session

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Output ends with the guest's end of the pipe, though somebody else inside has
// opened it too, and nothing that the guest wrote is lost.
func TestPipeOthers(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 2000) // fits into any pipe
	for _, moved := range []bool{false, true} {
		s := &Session{pipes: t.TempDir()}
		p, _ := s.newPipe(unix.O_RDONLY)
		if p == nil {
			t.Fatal("no pipe")
		}
		defer p.close()
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
		go func() { done <- p.receive(to) }()
		if _, err := ends[0].Write(text); err != nil {
			t.Fatal(err)
		}
		_ = ends[0].Close()
		p.end()
		select {
		case err := <-done:
			<-copied
			if err != nil || !bytes.Equal(got.Bytes(), text) {
				t.Errorf("%t: %d of %d bytes, %v", moved, got.Len(), len(text), err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
	}
}
