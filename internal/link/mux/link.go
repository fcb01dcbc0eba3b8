package mux

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// Link is the connection to the keeper of an environment over a far command, which a
// connection holder on this machine keeps running.
type Link struct {
	Dir string // the environment's, on this machine
	ID  string // the environment's
	// Command is asked for the far command when there is no holder. A nil Env
	// is this process's environment; its streams are not used.
	Command func(context.Context) (jobs.Cmd, error)
	// Node is the program that holds the connection: berth-node, or berth.
	Node string
	// Progress is told, for people, what takes long; it may be nil.
	Progress func(string)
	// Idle is how long a holder that this link starts stays without clients;
	// 0 is 10 minutes.
	Idle time.Duration
	// Interval is as in [Options].
	Interval time.Duration
}

const (
	defaultIdle = 10 * time.Minute
	fileLog     = "hold.log" // in the environment's directory
	maxLog      = 64 << 10
	answerWait  = 30 * time.Second
	signOfLife  = 5 * time.Second // to a client that waits
	tries       = 5
)

// What a client asks of a holder, besides [request].
const (
	kindWait = "wait" // until the link is open
	kindEnd  = "end"
)

// setup is what a holder is told on its standard input.
type setup struct {
	ID       string        `json:"id"`
	Argv     []string      `json:"argv"`
	Dir      string        `json:"dir,omitempty"`
	Env      []string      `json:"env"`
	Idle     time.Duration `json:"idle_ns"`
	Interval time.Duration `json:"interval_ns"`
}

// path is the holder's socket.
func (l Link) path() (string, error) {
	dir, err := socket.Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, socket.Name("hold", l.ID, l.Dir)), nil
}

// Dial begins a conversation with the environment's keeper, through the holder
// that stands, or one that it starts. The stream speaks the protocol of a guest,
// from its beginning, and has a method CloseWrite. The report is the far side's.
// The error is [keeper.ErrNotRunning] when there is no keeper any more, and
// what Command or the far command said when the link could not be opened.
func (l Link) Dial(ctx context.Context) (io.ReadWriteCloser, *keeper.Report, error) {
	conn, a, err := l.ask(ctx, request{Kind: kindKeeper}, true)
	if err != nil {
		return nil, nil, err
	}
	return conn, &a.Report, nil
}

// Join is Dial through a holder that stands; none is started.
func (l Link) Join(ctx context.Context) (io.ReadWriteCloser, *keeper.Report, error) {
	conn, a, err := l.ask(ctx, request{Kind: kindKeeper}, false)
	if err != nil {
		return nil, nil, err
	}
	return conn, &a.Report, nil
}

// Hold starts a holder and does not wait until its link is open: what goes wrong
// there is in its log.
func (l Link) Hold(ctx context.Context) error {
	out, err := l.detach(ctx)
	if err != nil {
		return err
	}
	return out.Close()
}

// End ends the holder, if there is one, and so all conversations through it;
// the keeper goes on. It waits until the holder has given up its place.
func (l Link) End(ctx context.Context) error {
	conn, _, err := l.ask(ctx, request{Kind: kindEnd}, false)
	if errors.Is(err, errNoHolder) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}

// errNoHolder says that no process holds the connection.
var errNoHolder = errors.New("no process holds the connection")

// ask sends a request to the holder and reads its answer; with start, one is
// started when there is none.
func (l Link) ask(ctx context.Context, req request, start bool) (*client, *answer, error) {
	path, err := l.path()
	if err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		conn, a, err := l.tryAsk(ctx, path, req)
		if !errors.Is(err, errNoHolder) {
			return conn, a, err
		}
		if !start {
			return nil, nil, err
		}
		if try > tries {
			return nil, nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "the connection to the environment's keeper ends as soon as it is open",
				Hint: "see " + filepath.Join(l.Dir, fileLog)}
		}
		conn, a, err = l.start(ctx, func() (*client, *answer, error) { return l.tryAsk(ctx, path, req) })
		if err != nil || conn != nil {
			return conn, a, err
		}
	}
}

// tryAsk asks the holder that stands. The error is errNoHolder when there is
// none, or it left before it has answered.
func (l Link) tryAsk(ctx context.Context, path string, req request) (*client, *answer, error) {
	f, err := socket.Dial(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, errNoHolder
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	c := &client{File: f, late: func() {
		_ = f.SetReadDeadline(time.Now().Add(answerWait))
		if ctx.Err() != nil {
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
	}}
	var a *answer
	if req.Kind == kindKeeper { // which asks no more of a client than the key of its frames
		c.first, err = session.NewFirst(session.Options{PingTimeout: -1})
	}
	if err == nil {
		a, err = c.ask(req, l.Progress)
	}
	switch {
	case !stop():
		err = context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "the holder of the connection to the environment's keeper does not answer",
			Hint: "was it stopped? its process is in " + filepath.Join(l.Dir, fileLog)}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	_ = f.SetReadDeadline(time.Time{})
	return c, a, nil
}

// client is a conversation through a holder.
type client struct {
	*os.File
	rest  []byte         // came behind the answer
	late  func()         // says until when the next line must come; nil is never
	first *session.First // went with the request; nil is none
}

// Sent implements [session.Ahead].
func (c *client) Sent() *session.First { return c.first }

// ask sends a request and reads the answer.
func (c *client) ask(req request, progress func(string)) (*answer, error) {
	said := line(req)
	if c.first != nil {
		said = append(said, c.first.Bytes()...)
	}
	if _, err := c.File.Write(said); err != nil {
		return nil, errNoHolder
	}
	return c.answer(progress)
}

// answer reads reports up to the last.
func (c *client) answer(progress func(string)) (*answer, error) {
	buf := make([]byte, 4<<10)
	for {
		i := bytes.IndexByte(c.rest, '\n')
		if i < 0 {
			if c.late != nil {
				c.late()
			}
			n, err := c.File.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, err
			}
			if err != nil || len(c.rest) > maxLine {
				return nil, errNoHolder
			}
			c.rest = append(c.rest, buf[:n]...)
			continue
		}
		var a answer
		if err := json.Unmarshal(c.rest[:i], &a); err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read what the holder of the connection says", Err: err}
		}
		c.rest = c.rest[i+1:]
		switch {
		case a.Report.Err() != nil:
			return nil, a.Report.Err()
		case a.Ready, a.Listens:
			return &a, nil
		case progress != nil && a.Progress != "":
			progress(a.Progress)
		}
	}
}

// Read reads what the far side says.
func (c *client) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.File.Read(p)
}

// CloseWrite tells the other side that no more comes.
func (c *client) CloseWrite() error {
	socket.ShutWrite(c.File)
	return nil
}

// start starts a holder and asks it, or waits until the link of another one is open
// that was first; then nothing is returned.
func (l Link) start(ctx context.Context, ask func() (*client, *answer, error)) (*client, *answer, error) {
	out, err := l.detach(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = out.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer stop()
	c := &client{File: out}
	a, err := c.answer(l.Progress)
	if err == nil && a.Listens {
		conn, a, aerr := ask()
		if !errors.Is(aerr, errNoHolder) {
			return conn, a, aerr
		}
		_, err = c.answer(nil) // it ended before it could be asked, and says why
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, errNoHolder):
		return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the holder of the connection to the environment's keeper ended before that was open",
			Hint: "see " + filepath.Join(l.Dir, fileLog)}
	}
	return nil, nil, err
}

// detach starts a holder; what it says of its opening is read from out.
func (l Link) detach(ctx context.Context) (out *os.File, err error) {
	cmd, err := l.Command(ctx)
	if err != nil {
		return nil, err
	}
	s := setup{ID: l.ID, Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Idle: l.Idle, Interval: l.Interval}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	log := filepath.Join(l.Dir, fileLog)
	if fi, err := os.Lstat(log); err == nil && fi.Size() > maxLog {
		_ = os.Remove(log)
	}
	if _, out, err = run.DetachFed([]string{l.Node, "hold", "--env", l.Dir}, holderEnv(), "/", log, line(s)); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start the holder of the connection to the environment's keeper", Err: err}
	}
	return out, nil
}

// holderEnv is what a holder gets of this process's environment; the far
// command has its own.
func holderEnv() []string {
	env := []string{}
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// opened is the answer to what needs no more.
func opened() answer { return answer{Report: keeper.Report{Version: wire.Version, Ready: true}} }

// notOurs is a request that a holder does not know.
func notOurs(kind string) answer {
	return refusal(&jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the holder of the connection is another version of berth: it knows no %q", kind),
		Hint: "it ends when it is not used any more; then try again"})
}
