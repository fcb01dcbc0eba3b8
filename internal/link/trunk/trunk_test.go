package trunk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type said struct {
	Text string `json:"text,omitempty"`
}

func (s said) Err() error {
	if s.Text == "" {
		return nil
	}
	return errors.New(s.Text)
}

type stream = Stream[string, said]

// pair joins two sides within this process.
func pair(t *testing.T, serve func(*stream)) (near, far *Trunk[string, said]) {
	t.Helper()
	r1, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	near = New[string, said](wire.NewReader(r1), wire.NewWriter(w2), nil, func() { _, _ = r1.Close(), w2.Close() })
	far = New(wire.NewReader(r2), wire.NewWriter(w1), serve, func() { _, _ = r2.Close(), w1.Close() })
	go near.Run(time.Minute)
	go far.Run(time.Minute)
	t.Cleanup(func() {
		near.Fail(nil)
		far.Fail(nil)
		<-near.Gone()
		<-far.Gone()
	})
	return near, far
}

// Half of a conversation may end before the other.
func TestHalf(t *testing.T) {
	near, _ := pair(t, func(s *stream) {
		_ = s.Accept(said{})
		var got bytes.Buffer
		_ = s.Drain(&got)
		_, _ = s.Up.Write(bytes.ToUpper(got.Bytes()))
		s.CloseWrite()
		s.Finish(said{})
	})
	s, err := near.Open("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-s.Answered()
	c := s.Conn()
	if _, err := io.WriteString(c, "text"); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "TEXT" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	_ = c.Close()
}

// Bytes that end with an error of the far side's do not look like all of them, and neither
// do those of a link that breaks.
func TestCut(t *testing.T) {
	for name, cut := range map[string]func(*stream, *Trunk[string, said]){
		"its last word": func(s *stream, _ *Trunk[string, said]) { s.Finish(said{"connection reset"}) },
		"the link":      func(_ *stream, far *Trunk[string, said]) { far.Fail(nil) },
		"no trouble":    func(s *stream, _ *Trunk[string, said]) { s.CloseWrite(); s.Finish(said{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var far *Trunk[string, said]
			ready := make(chan struct{})
			near, far := pair(t, func(s *stream) {
				<-ready
				_ = s.Accept(said{})
				_, _ = s.Up.Write([]byte("half"))
				cut(s, far)
			})
			close(ready)
			s, err := near.Open("x", nil)
			if err != nil {
				t.Fatal(err)
			}
			<-s.Answered()
			c := s.Conn()
			if b, err := io.ReadAll(c); string(b) != "half" || (err == nil) != (name == "no trouble") || name == "its last word" && err.Error() != "connection reset" {
				t.Errorf("%q, %v", b, err)
			}
			_ = c.Close()
		})
	}
}
