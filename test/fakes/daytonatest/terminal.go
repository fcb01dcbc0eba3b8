package daytonatest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/test/fakes/sweep"

	"github.com/coder/websocket"
	"github.com/creack/pty"
)

// As the daemon has them.
const (
	waitingPieces = 256 // for a client; then it is dropped
	waitingInput  = 1024
	writeTime     = 10 * time.Second
	largestInput  = 64 << 10
)

// terminal is a shell on a pseudoterminal, and who looks at it.
type terminal struct {
	id     string
	cmd    *exec.Cmd
	master *os.File
	input  chan []byte
	heard  chan struct{} // closed when no process can write to it any more, and all was read
	ended  chan struct{} // closed when the shell has ended
	code   int

	mu      sync.Mutex
	clients map[*watcher]bool
}

type watcher struct {
	conn    *websocket.Conn
	pieces  chan []byte
	unsent  atomic.Int32 // pieces
	control bool
}

func createTerminal(w http.ResponseWriter, r *http.Request, b *box) {
	var q struct {
		ID, Cwd    string
		Envs       map[string]string
		Cols, Rows int
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.ID == "" {
		daemonProblem(w, 400, "INVALID_REQUEST_BODY", "session ID is required")
		return
	}
	b.tmu.Lock()
	defer b.tmu.Unlock()
	if b.terminals[q.ID] != nil {
		daemonProblem(w, 409, "CONFLICT", "PTY session with ID '"+q.ID+"' already exists")
		return
	}
	t, err := openTerminal(b, q.ID, q.Envs)
	if err != nil {
		daemonProblem(w, 500, "INTERNAL_SERVER_ERROR", err.Error())
		return
	}
	b.terminals[q.ID] = t
	go func() {
		<-t.ended
		b.tmu.Lock()
		defer b.tmu.Unlock()
		if b.terminals[q.ID] == t {
			delete(b.terminals, q.ID)
		}
	}()
	answer(w, 201, map[string]any{"sessionId": q.ID})
}

func openTerminal(b *box, id string, env map[string]string) (*terminal, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer slave.Close()
	shell := "/bin/bash"
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh"
	}
	cmd := exec.Command(shell, "-i", "-l")
	cmd.Dir, cmd.Env = filepath.Join(b.dir, "home"), b.environment()
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		_ = master.Close()
		return nil, err
	}
	t := &terminal{id: id, cmd: cmd, master: master, input: make(chan []byte, waitingInput), heard: make(chan struct{}), ended: make(chan struct{}), clients: map[*watcher]bool{}}
	go t.read()
	go t.write()
	go t.wait()
	return t, nil
}

func (t *terminal) read() {
	defer close(t.heard)
	buf := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(buf)
		if n > 0 {
			t.tell(slices.Clone(buf[:n]))
		}
		if err != nil {
			return
		}
	}
}

// tell passes a piece to everybody; who has too many waiting is dropped.
func (t *terminal) tell(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clients {
		c.unsent.Add(1)
		select {
		case c.pieces <- p:
		default:
			delete(t.clients, c)
			go func() { _ = c.conn.Close(websocket.StatusPolicyViolation, "slow consumer") }()
		}
	}
}

func (t *terminal) write() {
	for {
		select {
		case <-t.ended:
			return
		case p := <-t.input:
			if _, err := t.master.Write(p); err != nil {
				return
			}
		}
	}
}

// wait reaps the shell, and tells everybody how it ended.
func (t *terminal) wait() {
	_ = t.cmd.Wait()
	if t.code = t.cmd.ProcessState.ExitCode(); t.code < 0 {
		t.code = 137
	}
	select { // what it wrote last is read
	case <-t.heard:
	case <-time.After(writeTime): // another process still has the terminal
	}
	close(t.ended)
	t.mu.Lock()
	all := t.clients
	t.clients = map[*watcher]bool{}
	t.mu.Unlock()
	for c := range all {
		for deadline := time.Now().Add(writeTime); c.unsent.Load() > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if c.control {
			c.say(map[string]any{"type": "control", "status": "exited", "exitCode": t.code})
		}
		status := websocket.StatusNormalClosure
		if t.code != 0 {
			status = websocket.StatusInternalError
		}
		_ = c.conn.Close(status, `{"exitCode":`+strconv.Itoa(t.code)+`}`)
	}
	_ = t.master.Close()
}

func (t *terminal) kill() {
	sweep.End(sweep.Mark{}, t.cmd.Process.Pid)
	<-t.ended
}

// cut loses the connections, not the shell.
func (t *terminal) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clients {
		delete(t.clients, c)
		_ = c.conn.CloseNow()
	}
}

func (c *watcher) say(v any) {
	ctx, stop := context.WithTimeout(context.Background(), writeTime)
	defer stop()
	b, _ := json.Marshal(v)
	_ = c.conn.Write(ctx, websocket.MessageText, b)
}

func deleteTerminal(w http.ResponseWriter, r *http.Request, b *box) {
	b.tmu.Lock()
	t := b.terminals[r.PathValue("terminal")]
	delete(b.terminals, r.PathValue("terminal"))
	b.tmu.Unlock()
	if t == nil {
		daemonProblem(w, 404, "NOT_FOUND", "PTY session not found")
		return
	}
	t.kill()
	answer(w, 200, map[string]any{"message": "PTY session deleted"})
}

func connectTerminal(w http.ResponseWriter, r *http.Request, b *box) {
	b.tmu.Lock()
	t := b.terminals[r.PathValue("terminal")]
	b.tmu.Unlock()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(largestInput)
	c := &watcher{conn: conn, pieces: make(chan []byte, waitingPieces), control: strings.Contains(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), "X-Daytona-Pty-Exit-Control")}
	if t == nil {
		c.say(map[string]any{"type": "control", "status": "error", "error": "Failed to connect to PTY session: PTY session not found"})
		return
	}
	t.mu.Lock()
	t.clients[c] = true
	t.mu.Unlock()
	c.say(map[string]any{"type": "control", "status": "connected"})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case p := <-c.pieces:
				wctx, done := context.WithTimeout(ctx, writeTime)
				err := conn.Write(wctx, websocket.MessageBinary, p)
				done()
				if err != nil {
					return
				}
				c.unsent.Add(-1)
			}
		}
	}()
	for {
		_, in, err := conn.Reader(ctx)
		if err != nil {
			break
		}
		p, err := io.ReadAll(in)
		if err != nil {
			break
		}
		select {
		case t.input <- p:
		case <-t.ended:
		}
	}
	t.mu.Lock()
	delete(t.clients, c)
	t.mu.Unlock()
}
