package sshserver

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"berth/jobs"

	"golang.org/x/crypto/ssh"
)

// fake is a place whose commands say what they were given.
type fake struct{ ended chan struct{} }

func (f fake) Run(ctx context.Context, c Command) int {
	switch c.Line {
	case "wait":
		_, _ = io.WriteString(c.Stdout, "up\n")
		<-ctx.Done()
		close(f.ended)
		return 130
	case "size":
		_, _ = fmt.Fprintln(c.Stdout, *c.Terminal)
		_, _ = fmt.Fprintln(c.Stdout, <-c.Resized)
		return 0
	}
	in, _ := io.ReadAll(c.Stdin)
	_, _ = fmt.Fprintf(c.Stdout, "%q sftp=%v %q %q", c.Line, c.SFTP, c.Env, in)
	_, _ = io.WriteString(c.Stderr, "to stderr")
	return 7
}

func (f fake) Connect(_ context.Context, port int, conn io.ReadWriter) {
	in, _ := io.ReadAll(conn)
	_, _ = fmt.Fprintf(conn, "port %d: %s", port, in)
}

// dial returns a client of a server for the place, and how the server ended.
func dial(ctx context.Context, t *testing.T, place Place) (*ssh.Client, <-chan error) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	here, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, there, signer, place) }()
	c, channels, requests, err := ssh.NewClientConn(here, "place", &ssh.ClientConfig{User: "any", HostKeyCallback: ssh.FixedHostKey(signer.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(c, channels, requests)
	t.Cleanup(func() { _ = client.Close() })
	return client, served
}

func session(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Commands get their line, streams and language, and nothing else of the client's
// variables; their exit code comes back.
func TestCommand(t *testing.T) {
	c, served := dial(t.Context(), t, fake{})
	s := session(t, c)
	for name, want := range map[string]bool{"LANG": true, "LC_ALL": true, "LD_PRELOAD": false, "LC_A=B": false} {
		if err := s.Setenv(name, "C"); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader("in"), &out, &errs
	var exit *ssh.ExitError
	if err := s.Run("make it"); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
		t.Error(err)
	}
	if got := out.String(); !strings.HasPrefix(got, `"make it" sftp=false ["L`) || strings.Contains(got, "PRELOAD") || !strings.HasSuffix(got, ` "in"`) || errs.String() != "to stderr" {
		t.Errorf("%s, %s", &out, &errs)
	}
	if s = session(t, c); s.RequestSubsystem("sftp") != nil {
		t.Error("no sftp")
	}
	if s = session(t, c); s.RequestSubsystem("netconf") == nil {
		t.Error("a subsystem that there is not")
	}
	_ = c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A session has one command: what else is asked for is refused, and changes nothing of it.
func TestOneCommand(t *testing.T) {
	c, _ := dial(t.Context(), t, fake{})
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	for i, r := range []struct{ name, of string }{{"exec", "first"}, {"exec", "second"}, {"subsystem", "sftp"}, {"shell", ""}} {
		if ok, err := ch.SendRequest(r.name, true, ssh.Marshal(struct{ Of string }{r.of})); ok != (i == 0) || err != nil {
			t.Errorf("%s %s: %v, %v", r.name, r.of, ok, err)
		}
	}
	_ = ch.CloseWrite()
	if got, err := io.ReadAll(ch); string(got) != `"first" sftp=false [] ""` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// late is a channel that a client opens while the server ends.
type late struct {
	ssh.NewChannel
	ssh.Channel
	closed bool
}

func (l *late) ChannelType() string                               { return "session" }
func (l *late) Accept() (ssh.Channel, <-chan *ssh.Request, error) { return l, nil, nil }
func (l *late) Close() error                                      { l.closed = true; return nil }

// What comes once the server is waited for is not begun: its session, without requests,
// would never end.
func TestLate(t *testing.T) {
	s := &server{place: fake{}}
	s.wait()
	l := &late{}
	s.open(t.Context(), l)
	s.under.Wait()
	if !l.closed {
		t.Error("the channel is left open")
	}
}

func TestTerminal(t *testing.T) {
	c, _ := dial(t.Context(), t, fake{})
	s := session(t, c)
	if err := s.RequestPty("xterm", 40, 100, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err == nil {
		err = s.Start("size")
	}
	if err == nil {
		err = s.WindowChange(50, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(out)
	if want := fmt.Sprintln(jobs.TerminalSize{Rows: 40, Cols: 100}) + fmt.Sprintln(jobs.TerminalSize{Rows: 24, Cols: 80}); string(got) != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// Connections go to the place's loopback alone, and nothing leads to the client.
func TestConnections(t *testing.T) {
	c, _ := dial(t.Context(), t, fake{})
	conn, err := c.Dial("tcp", "localhost:8888")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "port 8888: hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, to := range []string{"10.0.0.1:80", "example.org:80", "127.0.0.2:80"} {
		if _, err := c.Dial("tcp", to); err == nil {
			t.Errorf("%s was reached", to)
		}
	}
	if _, err := c.Listen("tcp", "127.0.0.1:8080"); err == nil {
		t.Error("a port of the client's was taken")
	}
	s := session(t, c)
	for _, what := range []string{"auth-agent-req@openssh.com", "x11-req"} {
		if ok, err := s.SendRequest(what, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
}

// A command ends with its client, and with the context.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(*ssh.Client, context.CancelFunc){
		"client":  func(c *ssh.Client, _ context.CancelFunc) { _ = c.Close() },
		"context": func(_ *ssh.Client, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			place := fake{make(chan struct{})}
			c, served := dial(ctx, t, place)
			s := session(t, c)
			out, err := s.StdoutPipe()
			if err == nil {
				err = s.Start("wait")
			}
			if err == nil {
				_, err = io.ReadFull(out, make([]byte, 3))
			}
			if err != nil {
				t.Fatal(err)
			}
			end(c, cancel)
			<-place.ended
			if err := <-served; (err != nil) != (name == "context") {
				t.Error(err)
			}
		})
	}
}
