package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"berth/internal/link/session"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Connect joins a connection and a service in the environment, see [Joined.Connect].
// It starts nothing: an environment that does not run is [ErrNotRunning].
func (v *Environment) Connect(ctx context.Context, port int, conn io.ReadWriter) error {
	return connect(ctx, v, port, conn)
}

// Connect joins a connection and a service beside the job's task, which listens on a
// TCP port of the loopback there, until the service has ended its side of it, or ctx
// ends. No network leads there: the bytes go the way of a command's streams. An error
// of [jobs.KindAgain] is that nothing listens there.
func (j *Joined) Connect(ctx context.Context, port int, conn io.ReadWriter) error {
	return connect(ctx, j, port, conn)
}

// Gone is closed when the environment, or the way to it that was opened, has ended.
func (v *Environment) Gone(ctx context.Context) (<-chan struct{}, error) {
	s, err := v.open(ctx, true)
	if err != nil {
		return nil, err
	}
	return s.Gone(), nil
}

// Gone is closed when the place of the job, or the way to it, has ended.
func (j *Joined) Gone(context.Context) (<-chan struct{}, error) { return j.link.Gone(), nil }

func connect(ctx context.Context, in room, port int, conn io.ReadWriter) error {
	// A client that left reads no more, and a service may go on writing for ever.
	ctx, left := context.WithCancelCause(ctx)
	defer left(nil)
	var said string
	var res session.Result
	err := in.again(ctx, true, func(link *session.Session) error {
		p, err := link.Start(session.StartRequest{Port: port, Stdin: conn,
			Env: in.variables(nil)}, &untilLeft{conn, left}, &run.Lines{Most: 1000, Take: func(line string) { said = line }})
		if err == nil {
			res, err = waitFor(ctx, p)
		}
		return err
	})
	switch {
	case errors.Is(context.Cause(ctx), errLeft):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return in.broken(err)
	case res.Exit.Code == jobs.CodeAgain:
		return &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("port %d inside: %s", port, jobs.Printable(said)),
			Hint: "does the service listen there, on 127.0.0.1 or on all addresses? berth forward goes on"}
	case !res.Exit.OK():
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("connect to port %d inside: %s", port, res.Exit),
			Hint: "the environment may have been started by an older berth: berth env stop, and the next command starts it again"}
	}
	return nil
}

var errLeft = errors.New("the client has closed its connection")

// untilLeft tells that its writer takes no more.
type untilLeft struct {
	io.Writer
	left context.CancelCauseFunc
}

func (u *untilLeft) Write(p []byte) (int, error) {
	n, err := u.Writer.Write(p)
	if err != nil {
		u.left(errLeft)
	}
	return n, err
}
