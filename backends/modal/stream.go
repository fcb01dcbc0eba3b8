package modal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"berth/backends/external/protocol"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/google/uuid"
)

// partLimit is for ending the command's input when this program must end.
const partLimit = 3 * time.Second

// Stream runs the guest in the sandbox. It needs one question to the control
// plane; what passes then costs none.
func (Provider) Stream(ctx context.Context, r *protocol.Request, connected func() (io.Reader, io.Writer)) (int, error) {
	c, err := connect(func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err != nil {
		return 0, err
	}
	defer c.Close()
	id, task := splitRef(r.Ref)
	if id == "" || task == "" || len(r.Argv) == 0 {
		return 0, protocol.Errorf(protocol.Internal, "the request names no sandbox, or nothing to run")
	}
	b := &box{Sandbox: &sdk.Sandbox{SandboxID: id}, task: task}
	begin, cancel := within(ctx, protocol.StreamTime)
	defer cancel()
	w, err := c.reach(begin, id, task, nil)
	if err != nil {
		return 0, asGone(c.gone(ctx, b, trouble("reach the sandbox "+id, err)), id)
	}
	defer w.close()
	run := uuid.NewString()
	argv := append([]string{"/bin/sh", "-c", enter, "sh", run, path.Join(path.Dir(r.Argv[0]), streamFile)}, r.Argv...)
	x, err := w.start(begin, run, argv)
	if err != nil {
		return 0, asGone(c.gone(ctx, b, trouble("start the guest in the sandbox "+id, err)), id)
	}
	in, out := connected()
	return x.attach(ctx, in, out, os.Stderr, func(err error) error {
		return c.gone(ctx, b, trouble("the stream of the sandbox "+id, err))
	})
}

// asGone is for a sandbox that was there when it was opened.
func asGone(err error, id string) error {
	if is(err, protocol.NotFound) {
		return &protocol.Error{Kind: protocol.Gone, Message: "the sandbox " + id + " is gone", Hint: "the next command makes it again"}
	}
	return err
}

// attach connects a command until it ends.
func (x *command) attach(ctx context.Context, in io.Reader, out, errs io.Writer, why func(error) error) (int, error) {
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_ = x.copyTo(all, stderr, errs)
	}()
	fed := make(chan error, 1)
	go func() {
		err := x.feed(all, in)
		fed <- err
		if err != nil && all.Err() == nil {
			cancel() // a command whose input has a hole must not go on
		}
	}()
	err := x.copyTo(all, stdout, out)
	if err == nil {
		var code int
		if code, err = x.wait(all); err == nil {
			select {
			case <-heard:
			case <-time.After(time.Second):
			}
			return code, nil
		}
	}
	select {
	case ferr := <-fed:
		if ferr != nil && !errors.Is(ferr, context.Canceled) {
			err = ferr
		}
	default:
	}
	// Whoever reads has gone, or this program is to end: the guest is told now,
	// and need not find out by the silence.
	end, stop := detached(ctx, partLimit)
	defer stop()
	_ = x.finish(end)
	return 0, why(err)
}
