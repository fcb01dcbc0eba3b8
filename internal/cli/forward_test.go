package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
)

// silent is a service that reads what comes and says nothing.
type silent struct {
	service
	read chan error    // why it read no more
	left chan struct{} // it was left
	come chan struct{} // a connection has come
}

func (s silent) Connect(ctx context.Context, _ int, conn io.ReadWriter) error {
	s.come <- struct{}{}
	_, err := io.Copy(io.Discard, conn)
	s.read <- err
	<-ctx.Done()
	s.left <- struct{}{}
	return ctx.Err()
}

// A service that says nothing is told that its client is gone, and not before: one that
// sends no more may wait for an answer.
func TestForwardGone(t *testing.T) {
	for name, half := range map[string]bool{"reset": false, "sends no more, then reset": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			s := silent{read: make(chan error, 1), left: make(chan struct{}, 1), come: make(chan struct{}, 1)}
			var said bytes.Buffer
			a := &app{stderr: &said}
			go a.serveForward(t.Context(), s, l, 1)
			conn, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c := conn.(*net.TCPConn)
			<-s.come // one that is gone before is not taken
			if half {
				if err := c.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if err := <-s.read; err != nil {
					t.Error(err)
				}
				select {
				case <-s.left:
					t.Fatal("it was left while its client waited for an answer")
				default:
				}
			}
			_ = c.SetLinger(0) // a reset, as the kernel answers for a program that is gone
			_ = c.Close()
			<-s.left
			if said.Len() > 0 {
				t.Errorf("said: %s", said.String())
			}
		})
	}
}
