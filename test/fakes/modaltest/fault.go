package modaltest

import (
	"context"
	"sync/atomic"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault is what goes wrong with the next calls of a method.
type Fault struct {
	Method string // without its service
	Times  int    // how many calls; 0 is one, less is all
	Err    error  // what they get instead of their answer
	After  bool   // the call is carried out, and only its answer is lost
	Bytes  int    // of a stream: how many bytes pass before it is cut
	Wait   time.Duration
	Met    func() // runs when a call has come, before Err; nil is nothing
}

// Inject adds a fault. Of several for one method the first is used up first.
func (s *Server) Inject(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Code is an error of the wire.
func Code(c codes.Code, text string) error { return status.Error(c, text) }

// Throttled is Modal's word that a call may be repeated after a while.
func Throttled(after time.Duration) error {
	st, err := status.New(codes.ResourceExhausted, "Sandbox creation rate limit exceeded").WithDetails(
		pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(after.Seconds())}.Build())
	if err != nil {
		return err
	}
	return st.Err()
}

func (s *Server) fault(method string, stream bool) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Method != method || f.Bytes > 0 && !stream {
			continue
		}
		if f.Times--; f.Times == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return f
	}
	return nil
}

func (f *Fault) wait(ctx context.Context) {
	if f.Met != nil {
		f.Met()
	}
	if f.Wait > 0 {
		t := time.NewTimer(f.Wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// cutStream breaks after a number of bytes, in whichever direction they go.
type cutStream struct {
	grpc.ServerStream
	f    *Fault
	n    int
	done atomic.Bool
}

func (c *cutStream) SendMsg(m any) error {
	if out, ok := m.(*pb.TaskExecStdioReadResponse); ok {
		if left := c.f.Bytes - c.n; len(out.GetData()) >= left {
			if left > 0 {
				_ = c.ServerStream.SendMsg(pb.TaskExecStdioReadResponse_builder{Data: out.GetData()[:left]}.Build())
			}
			c.done.Store(true)
			return c.f.Err
		}
		c.n += len(out.GetData())
	}
	return c.ServerStream.SendMsg(m)
}

func (c *cutStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if in, ok := m.(*pb.TaskExecStdinWriteStreamRequest); ok {
		if c.n += len(in.GetData()); c.n > c.f.Bytes {
			c.done.Store(true)
			return c.f.Err
		}
	}
	return nil
}
