package wire

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slow is a receiver to whom bytes are still on their way when the end comes.
type slow struct {
	bytes.Buffer
	began chan struct{}
	goOn  chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	if s.began != nil {
		close(s.began)
		s.began = nil
		<-s.goOn
	}
	return s.Buffer.Write(p)
}

// A pipe ends with its sender, whoever else has it open; nothing that the
// sender wrote is lost.
func TestTakePast(t *testing.T) {
	open := func(path string, flag int) *os.File {
		fd, err := unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), path)
	}
	for _, other := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(path, unix.O_RDONLY)
		defer r.Close()
		w := open(path, unix.O_WRONLY)
		if other {
			o := open(path, unix.O_WRONLY)
			defer o.Close()
		}
		to := &slow{began: make(chan struct{}), goOn: make(chan struct{})}
		began := to.began
		done := make(chan error, 1)
		go func() { done <- TakePast(to, r, make([]byte, 4096)) }()
		text := bytes.Repeat([]byte("0123456789abcdef"), 3000) // fits into any pipe
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		<-began
		_ = w.Close()
		EndPast(r)
		close(to.goOn)
		select {
		case err := <-done:
			if err != nil || !bytes.Equal(to.Bytes(), text) {
				t.Errorf("%t: %d of %d bytes, %v", other, to.Len(), len(text), err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	}
	// One that was closed is no error.
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(path, unix.O_RDWR)
	EndPast(r)
	if err := TakePast(&bytes.Buffer{}, r, make([]byte, 4096)); err != nil {
		t.Error(err)
	}
	_ = r.Close()
}
