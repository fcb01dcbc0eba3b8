package modaltest

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func itoa(n int) string { return strconv.Itoa(n) }

// router is the service of the workers.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	s *Server
}

func (s *Server) task(id string) (*Sandbox, error) {
	for _, b := range s.Sandboxes() {
		if b.Task == id {
			if b.Result() != nil {
				return nil, status.Error(codes.NotFound, "task is not running")
			}
			return b, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such task")
}

func (r *router) execution(task, id string) (*Sandbox, *execution, error) {
	b, err := r.s.task(task)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.execs[id]; x != nil {
		return b, x, nil
	}
	return nil, nil, status.Error(codes.NotFound, "no such exec")
}

// TaskExecStart starts a command once for each exec_id.
func (r *router) TaskExecStart(_ context.Context, q *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, err := r.s.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	size := 0
	for _, a := range q.GetCommandArgs() {
		size += len(a)
	}
	if size > 1<<16 || len(q.GetCommandArgs()) == 0 || q.GetExecId() == "" {
		return nil, status.Error(codes.InvalidArgument, "command_args or exec_id")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.execs[q.GetExecId()] != nil {
		return &pb.TaskExecStartResponse{}, nil
	}
	env := r.s.variables(q.GetSecretIds(), q.GetSecretSources())
	for k, v := range q.GetEnv() {
		env[k] = v
	}
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	b.idle.stop()
	x, err := r.s.begin(b, q.GetCommandArgs(), q.GetWorkdir(), list, time.Duration(q.GetTimeoutSecs())*time.Second,
		q.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE, q.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	b.execs[q.GetExecId()] = x
	return &pb.TaskExecStartResponse{}, nil
}

// TaskExecStdioRead sends what a command writes, from an offset to its end.
func (r *router) TaskExecStdioRead(q *pb.TaskExecStdioReadRequest, out grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	b, x, err := r.execution(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return err
	}
	from := x.out
	if q.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		from = x.err
	}
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	go func() {
		select {
		case <-b.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	for at := int64(q.GetOffset()); ; { //nolint:gosec // it is a length
		data, err := from.next(ctx, at)
		if err != nil {
			if b.Result() != nil {
				return status.Error(codes.Unavailable, "task is gone")
			}
			return err
		}
		if len(data) == 0 {
			return nil
		}
		if err := out.Send(pb.TaskExecStdioReadResponse_builder{Data: data}.Build()); err != nil {
			return err
		}
		at += int64(len(data))
	}
}

// feed writes to a command what comes at an offset of its input.
func (x *execution) feed(at uint64, data []byte, eof bool) error {
	x.write.Lock()
	defer x.write.Unlock()
	x.mu.Lock()
	have, closed, gone := x.written, x.closed, x.exit != nil
	x.mu.Unlock()
	switch {
	case gone:
		return status.Error(codes.FailedPrecondition, "the process has exited")
	case closed && len(data) == 0 && eof:
		return nil
	case closed:
		return status.Error(codes.FailedPrecondition, "stdin is closed")
	case at > have:
		return status.Errorf(codes.InvalidArgument, "offset %d is beyond %d", at, have)
	}
	if skip := have - at; skip < uint64(len(data)) {
		for data = data[skip:]; len(data) > 0; {
			n, err := x.in.Write(data[:min(len(data), 64<<10)])
			x.mu.Lock()
			x.written += uint64(n) //nolint:gosec // it is a length
			x.mu.Unlock()
			if err != nil {
				return status.Error(codes.FailedPrecondition, "the process does not read")
			}
			data = data[n:]
		}
	}
	if eof {
		x.mu.Lock()
		x.closed = true
		x.mu.Unlock()
		_ = x.in.Close()
	}
	return nil
}

// TaskExecStdinWrite is one piece of input.
func (r *router) TaskExecStdinWrite(_ context.Context, q *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	_, x, err := r.execution(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	return &pb.TaskExecStdinWriteResponse{}, x.feed(q.GetOffset(), q.GetData(), q.GetEof())
}

// TaskExecStdinWriteStream is input as it comes. Without its end the command's
// input stays open.
func (r *router) TaskExecStdinWriteStream(in grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	first, err := in.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return status.Error(codes.InvalidArgument, "the first message is not a start")
	}
	_, x, err := r.execution(start.GetTaskId(), start.GetExecId())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	x.mu.Lock()
	if x.evict != nil {
		x.evict()
	}
	x.evict = cancel
	x.mu.Unlock()
	messages := make(chan *pb.TaskExecStdinWriteStreamRequest)
	failed := make(chan error, 1)
	go func() {
		for {
			m, err := in.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for at := start.GetOffset(); ; {
		select {
		case <-x.done:
			return status.Error(codes.FailedPrecondition, "the process has exited")
		case <-ctx.Done():
			return status.Error(codes.Aborted, "another stream has taken over")
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return status.Error(codes.InvalidArgument, "the stream ended without an end")
			}
			return err
		case m := <-messages:
			if m.HasEnd() {
				if err := x.feed(at, nil, true); err != nil {
					return err
				}
				return in.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
			}
			if err := x.feed(at, m.GetData(), false); err != nil {
				return err
			}
			at += uint64(len(m.GetData()))
		}
	}
}

// TaskExecStdinStatus tells how much came, and ends a stream that is still there.
func (r *router) TaskExecStdinStatus(_ context.Context, q *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	_, x, err := r.execution(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	if x.evict != nil {
		x.evict()
		x.evict = nil
	}
	x.mu.Unlock()
	x.write.Lock()
	defer x.write.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: x.written, Closed: x.closed}.Build(), nil
}

// TaskExecWait waits for the end of a command.
func (r *router) TaskExecWait(ctx context.Context, q *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	b, x, err := r.execution(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-x.done:
	case <-b.ended:
		return nil, status.Error(codes.NotFound, "task is not running")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	code, sig := x.how()
	return pb.TaskExecWaitResponse_builder{Code: code, Signal: sig}.Build(), nil
}

// TaskExecPoll asks whether a command has ended.
func (r *router) TaskExecPoll(_ context.Context, q *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	_, x, err := r.execution(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	if !x.over() {
		return &pb.TaskExecPollResponse{}, nil
	}
	code, sig := x.how()
	return pb.TaskExecPollResponse_builder{Code: code, Signal: sig}.Build(), nil
}

func (x *execution) how() (code, sig *int32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.exit.Signal != 0 {
		n := int32(x.exit.Signal) //nolint:gosec // it is a signal
		return nil, &n
	}
	n := int32(x.exit.Code) //nolint:gosec // it is an exit code
	return &n, nil
}

// TaskSnapshotFilesystem makes an image of a sandbox's files, once for each
// snapshot_id.
func (r *router) TaskSnapshotFilesystem(_ context.Context, q *pb.TaskSnapshotFilesystemRequest) (*pb.TaskSnapshotFilesystemResponse, error) {
	b, err := r.s.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if t := q.GetTtlSeconds(); t == 0 || t < -1 {
		return nil, status.Error(codes.InvalidArgument, "ttl_seconds")
	}
	r.s.mu.Lock()
	id := r.s.snapshots[q.GetSnapshotId()]
	r.s.mu.Unlock()
	if id == "" {
		if id, err = r.s.snapshot(b); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		r.s.mu.Lock()
		r.s.snapshots[q.GetSnapshotId()] = id
		r.s.mu.Unlock()
	}
	return pb.TaskSnapshotFilesystemResponse_builder{ImageId: id}.Build(), nil
}

// TaskSetNetworkAccess replaces what a sandbox may reach.
func (r *router) TaskSetNetworkAccess(_ context.Context, q *pb.TaskSetNetworkAccessRequest) (*pb.TaskSetNetworkAccessResponse, error) {
	b, err := r.s.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if q.GetNetworkAccess().GetNetworkAccessType() != pb.NetworkAccess_ALLOWLIST {
		return nil, status.Error(codes.InvalidArgument, "only an allow-list can be set on a running sandbox")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Definition.SetNetworkAccess(q.GetNetworkAccess())
	return &pb.TaskSetNetworkAccessResponse{}, nil
}

// Has tells whether a sandbox that runs has a file of this path below HOME.
func (b *Sandbox) Has(path string) bool {
	_, err := os.Stat(b.Dir + "/" + path)
	return err == nil
}
