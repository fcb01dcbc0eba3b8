// Package sshserver speaks the server's side of SSH on one connection: the standard input
// and output of a ProxyCommand. So ssh, rsync and editors reach a place, which needs no
// ssh server, key or user account for it, and in which nothing listens.
//
// There is no authentication: whoever starts the process holds both ends of the
// connection. The client knows the server by its host key. What would lead from the place
// to the client (an agent, X11, ports of the client) is refused.
package sshserver

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"berth/jobs"

	"golang.org/x/crypto/ssh"
)

// Command is what a client asks to run.
type Command struct {
	Line string   // for the place's shell; "" is an interactive shell
	SFTP bool     // it is the server of the protocol SFTP
	Env  []string // NAME=VALUE: the language, and TERM on a terminal
	// Terminal is nil where the client asks for none; Resized has its later sizes.
	Terminal       *jobs.TerminalSize
	Resized        <-chan jobs.TerminalSize
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Place is where commands run and services listen.
type Place interface {
	// Run runs a command to its end, or until ctx ends, and returns its exit code. What
	// went wrong otherwise it writes to the command's stderr.
	Run(ctx context.Context, c Command) (code int)
	// Connect joins a connection and a TCP port of the place's loopback, until either
	// side has ended it, or ctx ends.
	Connect(ctx context.Context, port int, conn io.ReadWriter)
}

// Serve serves a client until it leaves, or ctx ends. An error is that of the handshake,
// or ctx's.
func Serve(ctx context.Context, conn io.ReadWriteCloser, key ssh.Signer, place Place) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{place: place}
	defer s.wait()
	defer cancel() // before it is waited for what runs
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-berth"}
	config.AddHostKey(key)
	done := make(chan error, 1)
	// A read of standard input cannot be interrupted: it is left behind when ctx ends.
	go func() {
		c, channels, requests, err := ssh.NewServerConn(stream{conn}, config)
		if err != nil {
			done <- err
			return
		}
		go ssh.DiscardRequests(requests) // ports that are to lead to the client: refused
		for ch := range channels {
			s.open(ctx, ch)
		}
		_ = c.Close()
		done <- nil
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		_ = conn.Close()
		return context.Cause(ctx)
	}
}

type server struct {
	place Place
	under sync.WaitGroup
	mu    sync.Mutex
	ended bool // nothing more is begun: under is waited for
}

// begin serves a channel beside the others, unless the server has ended.
func (s *server) begin(serve func()) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.under.Go(serve)
	}
	return !s.ended
}

// wait waits for what was begun, after which nothing is.
func (s *server) wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.under.Wait()
}

func (s *server) open(ctx context.Context, n ssh.NewChannel) {
	var serve func(ctx context.Context, ch ssh.Channel, requests <-chan *ssh.Request)
	switch n.ChannelType() {
	case "session":
		serve = s.session
	case "direct-tcpip":
		port, ok := loopback(n.ExtraData())
		if !ok {
			_ = n.Reject(ssh.Prohibited, "only ports of 127.0.0.1 are reached inside")
			return
		}
		serve = func(ctx context.Context, ch ssh.Channel, requests <-chan *ssh.Request) {
			ctx, left := context.WithCancel(ctx)
			defer left()
			go func() {
				ssh.DiscardRequests(requests)
				left() // the client has closed it
			}()
			s.place.Connect(ctx, port, ch)
		}
	default:
		_ = n.Reject(ssh.UnknownChannelType, "not served")
		return
	}
	ch, requests, err := n.Accept()
	if err != nil {
		return // the connection is gone
	}
	if !s.begin(func() {
		serve(ctx, ch, requests)
		_ = ch.Close()
	}) {
		_ = ch.Close()
	}
}

// loopback reads which port of the place's loopback a connection is to lead to.
func loopback(data []byte) (port int, ok bool) {
	var to struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if ssh.Unmarshal(data, &to) != nil || to.Port < 1 || to.Port > 65535 {
		return 0, false
	}
	switch to.Host {
	case "localhost", "127.0.0.1", "::1":
		return int(to.Port), true
	}
	return 0, false
}

// session serves one command: requests say what it is, and end when the client leaves.
func (s *server) session(ctx context.Context, ch ssh.Channel, requests <-chan *ssh.Request) {
	ctx, left := context.WithCancel(ctx)
	resized := make(chan jobs.TerminalSize, 1)
	c := Command{Resized: resized, Stdin: ch, Stdout: ch, Stderr: ch.Stderr()}
	var under sync.WaitGroup
	began := false
	for r := range requests {
		ok, start := false, false
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			if ok = !began && ssh.Unmarshal(r.Payload, &v) == nil && accepted(v.Name) && !strings.Contains(v.Value, "\x00"); ok {
				c.Env = append(c.Env, v.Name+"="+v.Value)
			}
		case "pty-req":
			var t struct {
				Term                      string
				Cols, Rows, Width, Height uint32
				Modes                     string
			}
			if ok = !began && c.Terminal == nil && ssh.Unmarshal(r.Payload, &t) == nil && !strings.Contains(t.Term, "\x00"); ok {
				c.Terminal = size(t.Rows, t.Cols)
				c.Env = append(c.Env, "TERM="+t.Term)
			}
		case "window-change":
			var t struct{ Cols, Rows, Width, Height uint32 }
			if ok = c.Terminal != nil && ssh.Unmarshal(r.Payload, &t) == nil; ok {
				select { // the newest one counts
				case <-resized:
				default:
				}
				resized <- *size(t.Rows, t.Cols)
			}
		case "shell":
			start = !began
		case "exec":
			var v struct{ Line string }
			if start = !began && ssh.Unmarshal(r.Payload, &v) == nil; start {
				c.Line = v.Line
			}
		case "subsystem":
			var v struct{ Name string }
			if start = !began && ssh.Unmarshal(r.Payload, &v) == nil && v.Name == "sftp"; start {
				c.SFTP = true
			}
		}
		if r.WantReply {
			_ = r.Reply(ok || start, nil)
		}
		if start {
			began = true
			command := c // later requests do not reach it
			under.Go(func() {
				code := s.place.Run(ctx, command)
				_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
				_ = ch.Close() // the client answers, and requests end
			})
		}
	}
	left()
	under.Wait()
}

// accepted tells whether a client may set a variable: those that Debian's sshd accepts.
func accepted(name string) bool {
	return name == "LANG" || name == "COLORTERM" || strings.HasPrefix(name, "LC_") && !strings.ContainsAny(name, "=\x00")
}

// size is that of a terminal; a client without one says 0.
func size(rows, cols uint32) *jobs.TerminalSize {
	s := &jobs.TerminalSize{Rows: 24, Cols: 80}
	if rows > 0 && cols > 0 {
		s.Rows, s.Cols = int(min(rows, 10000)), int(min(cols, 10000))
	}
	return s
}

// stream is a connection that is no socket.
type stream struct{ io.ReadWriteCloser }

type address struct{}

func (address) Network() string { return "stdio" }
func (address) String() string  { return "stdio" }

func (stream) LocalAddr() net.Addr              { return address{} }
func (stream) RemoteAddr() net.Addr             { return address{} }
func (stream) SetDeadline(time.Time) error      { return nil }
func (stream) SetReadDeadline(time.Time) error  { return nil }
func (stream) SetWriteDeadline(time.Time) error { return nil }
