package modal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	callLimit = time.Minute // of one call to a worker that does not wait for anything
	waitLimit = time.Minute // of one call that waits for the end of a command
	chunk     = 256 << 10   // of input
	unsure    = 4 << 20     // of input that was sent and may have to be sent again
)

// command is a process in a sandbox, which lives on when the connection does not.
type command struct {
	w  *worker
	id string
}

// start starts a command. Its id, which is ours, makes a repeated start the same
// one; "" is a new id.
func (w *worker) start(ctx context.Context, id string, argv []string) (*command, error) {
	if id == "" {
		id = uuid.NewString()
	}
	req := pb.TaskExecStartRequest_builder{
		TaskId: w.task, ExecId: id, CommandArgs: argv,
		StdoutConfig: pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE, StderrConfig: pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE,
	}.Build()
	_, err := unary(ctx, w, callLimit, func(ctx context.Context) (*pb.TaskExecStartResponse, error) { return w.stub.TaskExecStart(ctx, req) })
	if err != nil {
		return nil, err
	}
	return &command{w: w, id: id}, nil
}

// The streams that a command writes.
const (
	stdout = pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
	stderr = pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
)

// copyTo copies what the command writes to its end, byte for byte, also when the
// connection breaks in between.
func (x *command) copyTo(ctx context.Context, fd pb.TaskExecStdioFileDescriptor, to io.Writer) error {
	var at uint64
	for a := (again{w: x.w}); ; {
		err := x.copyOnce(ctx, fd, to, &at, &a)
		var w writeError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &w):
			return w.error
		}
		if err := a.after(ctx, err); err != nil {
			return err
		}
	}
}

type writeError struct{ error }

func (x *command) copyOnce(ctx context.Context, fd pb.TaskExecStdioFileDescriptor, to io.Writer, at *uint64, a *again) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := x.w.stub.TaskExecStdioRead(x.w.with(ctx), pb.TaskExecStdioReadRequest_builder{
		TaskId:         x.w.task,
		ExecId:         x.id,
		Offset:         *at,
		FileDescriptor: fd,
	}.Build())
	if err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a.progress()
		if _, err := to.Write(m.GetData()); err != nil {
			return writeError{err}
		}
		*at += uint64(len(m.GetData()))
	}
}

// closed tells whether an error on a command's input says that it has no reader
// any more: the command has ended.
func closed(err error) bool {
	c := status.Code(err)
	return c == codes.FailedPrecondition || c == codes.Aborted
}

// feed gives the command what is read, and then its end. It goes on where it was
// cut when the connection breaks. What is read for a command that has ended is
// lost, which is no error.
//
// Modal acknowledges nothing while a stream of input lasts, so what was sent is
// kept until it is asked how much has come: after unsure bytes at the latest.
func (x *command) feed(ctx context.Context, from io.Reader) error {
	pieces := make(chan []byte)
	failed := make(chan error, 1)
	go func() { // a reader that blocks for ever must not hold up the end
		defer close(pieces)
		buf := make([]byte, chunk)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case pieces <- bytes.Clone(buf[:n]):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed <- err
				}
				return
			}
		}
	}()
	f := feeder{x: x}
	for a := (again{w: x.w}); ; {
		err := f.once(ctx, pieces, &a)
		switch {
		case err == nil:
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case closed(err):
			return nil
		}
		if !errors.Is(err, errAsk) {
			if err := a.after(ctx, err); err != nil {
				return err
			}
		}
		if err := f.ask(ctx); err != nil {
			if closed(err) {
				return nil
			}
			return err
		}
		if f.over {
			return nil
		}
	}
}

// errAsk ends a stream of input on purpose, to ask how much has come.
var errAsk = errors.New("ask")

// feeder is how far the input of a command is.
type feeder struct {
	x    *command
	base uint64   // where sent begins: that much is known to have come
	sent [][]byte // after it
	size int      // of sent
	eof  bool     // all was read
	over bool     // the command's input is closed
}

// keep keeps what is about to be sent. Many small pieces become few.
func (f *feeder) keep(b []byte) {
	f.size += len(b)
	if n := len(f.sent); n > 0 && len(f.sent[n-1])+len(b) <= chunk {
		f.sent[n-1] = append(f.sent[n-1], b...)
		return
	}
	f.sent = append(f.sent, b)
}

// ask asks how much has come, and drops it from what is kept.
func (f *feeder) ask(ctx context.Context) error {
	req := pb.TaskExecStdinStatusRequest_builder{TaskId: f.x.w.task, ExecId: f.x.id}.Build()
	st, err := unary(ctx, f.x.w, callLimit, func(ctx context.Context) (*pb.TaskExecStdinStatusResponse, error) {
		return f.x.w.stub.TaskExecStdinStatus(ctx, req)
	})
	if err != nil {
		return err
	}
	f.over = st.GetClosed()
	came := st.GetNumBytesWritten()
	if came < f.base || came > f.base+uint64(f.size) {
		return status.Errorf(codes.DataLoss, "Modal says that %d bytes of input have come, of %d to %d", came, f.base, f.base+uint64(f.size))
	}
	for drop := came - f.base; drop > 0; {
		n := min(drop, uint64(len(f.sent[0])))
		if f.sent[0] = f.sent[0][n:]; len(f.sent[0]) == 0 {
			f.sent = f.sent[1:]
		}
		drop -= n
		f.size -= int(n)
	}
	f.base = came
	return nil
}

// once is one stream of input: first what may not have come, then what is read.
func (f *feeder) once(ctx context.Context, pieces <-chan []byte, a *again) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := f.x.w.stub.TaskExecStdinWriteStream(f.x.w.with(ctx))
	if err != nil {
		return err
	}
	send := func(m *pb.TaskExecStdinWriteStreamRequest) error {
		err := s.Send(m)
		if errors.Is(err, io.EOF) { // the reason is what the other side has said
			if _, err = s.CloseAndRecv(); err == nil {
				err = status.Error(codes.Unavailable, "the stream of input has ended")
			}
		}
		return err
	}
	start := pb.TaskExecStdinWriteStreamStart_builder{TaskId: f.x.w.task, ExecId: f.x.id, Offset: f.base}.Build()
	if err := send(pb.TaskExecStdinWriteStreamRequest_builder{Start: start}.Build()); err != nil {
		return err
	}
	for _, b := range f.sent {
		if err := send(pb.TaskExecStdinWriteStreamRequest_builder{Data: b}.Build()); err != nil {
			return err
		}
	}
	// The stream ends by itself only when it fails: then a command that waits for
	// input must not wait for the next key.
	ended := make(chan error, 1)
	go func() {
		var m pb.TaskExecStdinWriteStreamResponse
		ended <- s.RecvMsg(&m)
	}()
	for !f.eof {
		if f.size >= unsure {
			if err := s.CloseSend(); err != nil {
				return err
			}
			select { // what is on its way comes first
			case err := <-ended:
				if closed(err) {
					return err
				}
			case <-time.After(callLimit):
			case <-ctx.Done():
			}
			a.progress()
			return errAsk
		}
		select {
		case b, ok := <-pieces:
			if !ok {
				f.eof = true
				break
			}
			f.keep(b)
			if err := s.Send(pb.TaskExecStdinWriteStreamRequest_builder{Data: b}.Build()); err != nil {
				return f.why(ctx, err, ended)
			}
		case err := <-ended:
			return orUnavailable(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.Send(pb.TaskExecStdinWriteStreamRequest_builder{End: &pb.TaskExecStdinWriteStreamEnd{}}.Build()); err != nil {
		return f.why(ctx, err, ended)
	}
	_ = s.CloseSend()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// why is the reason of a send that has failed: what the other side has said.
func (f *feeder) why(ctx context.Context, err error, ended <-chan error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case err := <-ended:
		return orUnavailable(err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// orUnavailable is for an unexpected end of a stream.
func orUnavailable(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the stream of input has ended")
	}
	return err
}

// wait waits for the end and returns the exit code, 128 and the signal for one
// that was killed.
func (x *command) wait(ctx context.Context) (int, error) {
	req := pb.TaskExecWaitRequest_builder{TaskId: x.w.task, ExecId: x.id}.Build()
	for a := (again{w: x.w}); ; {
		one, cancel := context.WithTimeout(ctx, waitLimit)
		r, err := x.w.stub.TaskExecWait(x.w.with(one), req)
		waited := errors.Is(one.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		cancel()
		switch {
		case err == nil && r.HasSignal():
			return 128 + int(r.GetSignal()), nil
		case err == nil:
			return int(r.GetCode()), nil
		case waited: // it runs
			a.progress()
			continue
		}
		if err := a.after(ctx, err); err != nil {
			return 0, err
		}
	}
}

// finish ends the command's input where it is, if the command still runs.
func (x *command) finish(ctx context.Context) error {
	f := feeder{x: x}
	req := pb.TaskExecStdinStatusRequest_builder{TaskId: x.w.task, ExecId: x.id}.Build()
	st, err := unary(ctx, x.w, callLimit, func(ctx context.Context) (*pb.TaskExecStdinStatusResponse, error) {
		return x.w.stub.TaskExecStdinStatus(ctx, req)
	})
	if err != nil || st.GetClosed() {
		return err
	}
	f.base = st.GetNumBytesWritten()
	_, err = unary(ctx, x.w, callLimit, func(ctx context.Context) (*pb.TaskExecStdinWriteResponse, error) {
		return x.w.stub.TaskExecStdinWrite(ctx, pb.TaskExecStdinWriteRequest_builder{TaskId: x.w.task, ExecId: x.id, Offset: f.base, Eof: true}.Build())
	})
	if closed(err) {
		return nil
	}
	return err
}
