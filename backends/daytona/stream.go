package daytona

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/link/ttystream"

	"github.com/coder/websocket"
)

const (
	// terminalID is the one terminal of a sandbox that is berth's.
	terminalID = "berth"
	beginTime  = 50 * time.Second // until the guest has the terminal
	pingEvery  = 20 * time.Second
	pingTime   = 40 * time.Second
	codeTime   = 20 * time.Second // from the guest's last word to its exit code
)

// terminal makes a new terminal in a sandbox. One that is left over belongs to a
// stream that was lost: it cannot be attached again, so it is ended with all that
// runs on it.
func (c *client) terminal(ctx context.Context, b *sandbox, env map[string]string) error {
	q := call{op: "open a terminal in the sandbox", method: http.MethodPost, url: b.toolbox("process", "pty"), policy: early,
		body: map[string]any{"id": terminalID, "cols": 80, "rows": 24, "envs": env}}
	err := c.do(ctx, q)
	if !isStatus(err, http.StatusConflict) {
		return err
	}
	c.endTerminal(ctx, b)
	return c.do(ctx, q)
}

func (c *client) endTerminal(ctx context.Context, b *sandbox) {
	_ = c.do(ctx, call{op: "end the terminal", method: http.MethodDelete, url: b.toolbox("process", "pty", terminalID)})
}

// socket is a terminal's WebSocket as a stream of bytes. Beside the terminal's
// bytes come messages of the service, as text.
type socket struct {
	ctx  context.Context // a Read and a Write have none
	conn *websocket.Conn
	rest []byte
	once sync.Once
	done chan struct{} // closed: nothing more comes
	code int           // of the shell, or the program that took its place; -1 is not known
}

func (c *client) connect(ctx context.Context, b *sandbox) (*socket, error) {
	to := b.toolbox("process", "pty", terminalID, "connect")
	if err := mayHaveKey(to); err != nil {
		return nil, err
	}
	h := http.Header{}
	c.header(h)
	dialing, stop := context.WithTimeout(ctx, beginTime)
	defer stop()
	var conn *websocket.Conn
	err := c.patiently(dialing, early, func() (err error) {
		var resp *http.Response
		conn, resp, err = websocket.Dial(dialing, "ws"+strings.TrimPrefix(to, "http"), &websocket.DialOptions{
			HTTPClient: c.http.HTTPClient, HTTPHeader: h, Subprotocols: []string{"X-Daytona-Pty-Exit-Control"},
		})
		if err != nil && resp != nil && resp.StatusCode >= 400 {
			return refused("connect to the sandbox", resp)
		}
		if err != nil {
			return fmt.Errorf("connect to the sandbox: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	s := &socket{ctx: ctx, conn: conn, done: make(chan struct{}), code: -1}
	go s.ping()
	return s, nil
}

// ping finds a connection that is gone without a word.
func (s *socket) ping() {
	for {
		select {
		case <-s.done:
			return
		case <-time.After(pingEvery):
		}
		ctx, stop := context.WithTimeout(s.ctx, pingTime)
		err := s.conn.Ping(ctx)
		stop()
		if err != nil {
			_ = s.conn.CloseNow()
			return
		}
	}
}

func (s *socket) Write(p []byte) (int, error) {
	if err := s.conn.Write(s.ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *socket) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		typ, b, err := s.conn.Read(s.ctx)
		if err == nil && typ == websocket.MessageText {
			if b, err = s.control(b); err == nil && b == nil {
				continue
			}
		}
		if err != nil {
			var closed websocket.CloseError
			var told struct{ ExitCode *int }
			if errors.As(err, &closed) && json.Unmarshal([]byte(closed.Reason), &told) == nil && told.ExitCode != nil {
				s.code, err = *told.ExitCode, io.EOF
			}
			s.once.Do(func() { close(s.done) })
			return 0, err
		}
		s.rest = b
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// control takes a message of the service; what is none is the terminal's.
func (s *socket) control(b []byte) ([]byte, error) {
	var m struct {
		Type, Status, Error string
		ExitCode            *int
	}
	if json.Unmarshal(b, &m) != nil || m.Type != "control" {
		return b, nil
	}
	if m.ExitCode != nil {
		s.code = *m.ExitCode
	}
	if m.Status == "error" {
		return nil, errors.New(m.Error)
	}
	return nil, nil
}

// stream runs the guest of argv in a sandbox and connects it.
func (c *client) stream(ctx context.Context, b *sandbox, argv []string, connected func() (io.Reader, io.Writer)) (int, error) {
	if len(argv) != 2 || argv[1] != "guest" || !strings.HasPrefix(argv[0], "/") {
		return 0, unsupported("", "Daytona's backend runs berth's guest alone, and not %q", argv)
	}
	// The first interactive zsh without a configuration asks its user questions.
	if err := c.terminal(ctx, b, map[string]string{"TERM": "dumb", "ZDOTDIR": path.Dir(argv[0])}); err != nil {
		return 0, err
	}
	s, err := c.connect(ctx, b)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.conn.CloseNow() }()
	nonce := rand.Text()
	line := " unset ZDOTDIR HISTFILE; exec " + quoted(argv[0]) + " guest --terminal " + nonce + "; exit 127\n"
	if _, err := s.Write([]byte(line)); err != nil {
		return 0, err
	}
	late := time.AfterFunc(beginTime, func() { _ = s.conn.CloseNow() })
	link, err := ttystream.Outside(s, s, nonce, os.Stderr)
	late.Stop()
	if err != nil {
		c.abandon(ctx, b)
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, &protocol.Error{Kind: protocol.Unreachable, Message: "start the guest in the sandbox: " + err.Error(),
			Hint: "does its image have a shell that reads commands?"}
	}
	in, out := connected()
	go func() {
		_, _ = io.Copy(link, in)
		_ = link.CloseWrite()
	}()
	_, err = io.Copy(out, link)
	if err == nil { // the guest's last word; the rest of the terminal says how it ended
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-time.After(codeTime):
		}
	}
	select {
	case <-s.done:
		if s.code >= 0 {
			return s.code, nil
		}
	default:
	}
	c.abandon(ctx, b)
	if err == nil {
		return 0, nil
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, protocol.Errorf(protocol.Unreachable, "the connection to the sandbox was lost: %v", err)
}

// abandon ends a terminal that is of no more use, when there is time for it: the
// guest would leave by itself, later.
func (c *client) abandon(ctx context.Context, b *sandbox) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime/2)
	defer stop()
	c.endTerminal(ctx, b)
}
