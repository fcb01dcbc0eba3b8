package modal

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// window is how much of a stream is on its way at most. The SDK's own 64 MiB would
// be memory of each program whose reader is slow.
const window = 2 << 20

// tries bounds how often something is asked again that may be, without progress.
const tries = 10

// worker is the machine that a sandbox is on: commands, their streams, snapshots.
type worker struct {
	c       *conn
	sandbox string // id
	task    string
	cc      *grpc.ClientConn
	stub    pb.TaskCommandRouterClient

	mu  sync.Mutex
	jwt string
}

// access is how a worker is reached, by the control plane's word.
type access interface {
	GetJwt() string
	GetUrl() string
}

// ask asks the control plane for the access to a sandbox's worker.
func (c *conn) ask(ctx context.Context, sandbox, task string) (access, error) {
	raw, err := c.raw(ctx)
	if err != nil {
		return nil, err
	}
	if isV1(sandbox) {
		return raw.TaskGetCommandRouterAccess(ctx, pb.TaskGetCommandRouterAccessRequest_builder{TaskId: task}.Build())
	}
	return raw.SandboxGetCommandRouterAccess(ctx, pb.SandboxGetCommandRouterAccessRequest_builder{SandboxId: &sandbox}.Build())
}

// isV1 tells the sandboxes of Modal's first kind, which have all the GPUs, by the
// form of their ids, as the SDK does.
func isV1(id string) bool {
	rest, ok := strings.CutPrefix(id, "sb-")
	if !ok || len(rest) != 22 {
		return false
	}
	for _, r := range rest {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return true
}

// reach connects to the worker of a sandbox; a may be nil, and is then asked for.
func (c *conn) reach(ctx context.Context, sandbox, task string, a access) (*worker, error) {
	if a == nil {
		var err error
		if a, err = c.ask(ctx, sandbox, task); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(a.GetUrl())
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("the worker's address %q is none", a.GetUrl())
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	keys := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	if c.loopback() {
		keys = insecure.NewCredentials()
	}
	cc, err := grpc.NewClient(net.JoinHostPort(u.Hostname(), port), grpc.WithTransportCredentials(keys),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2*window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(100<<20), grpc.MaxCallSendMsgSize(100<<20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		return nil, err
	}
	return &worker{c: c, sandbox: sandbox, task: task, cc: cc, stub: pb.NewTaskCommandRouterClient(cc), jwt: a.GetJwt()}, nil
}

func (w *worker) close() { _ = w.cc.Close() }

// with is a context that carries the token.
func (w *worker) with(ctx context.Context) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.jwt)
}

// renew gets another token.
func (w *worker) renew(ctx context.Context) error {
	a, err := w.c.ask(ctx, w.sandbox, w.task)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jwt = a.GetJwt()
	return nil
}

// again decides about the next try of something that may be tried again: a token
// that has ended is renewed once, a fault that may pass is waited out.
type again struct {
	w       *worker
	renewed bool
	failed  int
	refused patience
}

func (a *again) after(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if status.Code(err) == codes.Unauthenticated && !a.renewed {
		a.renewed = true
		return a.w.renew(ctx)
	}
	if _, is := refused(err); is {
		a.refused.say = a.w.c.say
		return a.refused.wait(ctx, err)
	}
	if !passing(err) || a.failed >= tries {
		return err
	}
	delay := min(10*time.Millisecond<<a.failed, 5*time.Second)
	a.failed++
	return pause(ctx, delay)
}

// progress forgets what failed before.
func (a *again) progress() { a.renewed, a.failed, a.refused = false, 0, patience{} }

// unary makes a call that may be made again: it carries an id, or only asks.
func unary[T any](ctx context.Context, w *worker, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	for a := (again{w: w}); ; {
		one, cancel := context.WithTimeout(ctx, limit)
		v, err := call(w.with(one))
		cancel()
		if err == nil {
			return v, nil
		}
		if err := a.after(ctx, err); err != nil {
			return v, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
