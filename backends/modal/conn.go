package modal

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// conn is a connection to Modal: the SDK's client, and the stubs of the same
// connection, with the SDK's keys, retries and waits.
type conn struct {
	*sdk.Client
	say func(format string, args ...any)

	mu sync.Mutex
	cc *grpc.ClientConn // of the SDK, seen when it is first used
	// environment is Modal's, as the SDK names it in its calls.
	environment string
}

// connect reads the keys as the SDK does, from MODAL_* and ~/.modal.toml. Nothing
// is sent yet. The SDK's own waits for the rate limit are off: they are silent, and
// wait only where Modal says how long ([patience]).
func connect(say func(format string, args ...any)) (*conn, error) {
	c := &conn{say: say}
	never := time.Duration(0)
	client, err := sdk.NewClientWithOptions(&sdk.ClientParams{
		Logger:                slog.New(slog.DiscardHandler),
		MaxThrottleWait:       &never,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{c.see},
	})
	if err != nil {
		return nil, &protocol.Error{Kind: protocol.Auth, Message: "Modal's configuration is no good: " + text(err),
			Hint: "look at ~/.modal.toml, or the file in MODAL_CONFIG_PATH, and at MODAL_SERVER_URL, which is unset or begins with https://"}
	}
	c.Client = client
	return c, nil
}

type wanted struct{}

// seen makes a context under which the raw answer of a call of the SDK is copied
// to f.
func seen(ctx context.Context, f func(reply any)) context.Context {
	return context.WithValue(ctx, wanted{}, f)
}

func (c *conn) see(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c.mu.Lock()
	c.cc = cc
	if r, ok := req.(interface{ GetEnvironmentName() string }); ok && r.GetEnvironmentName() != "" {
		c.environment = r.GetEnvironmentName()
	}
	c.mu.Unlock()
	if ctx.Value(unsent{}) != nil && method != pb.ModalClient_AuthTokenGet_FullMethodName {
		return errUnsent
	}
	err := c.invoke(ctx, method, req, reply, cc, invoke, opts...)
	if f, ok := ctx.Value(wanted{}).(func(any)); ok && err == nil {
		f(reply)
	}
	return err
}

// invoke makes a call, again as long as it is refused for the rate.
func (c *conn) invoke(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	limit := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	switch method {
	case pb.ModalClient_SandboxCreateV2_FullMethodName, pb.ModalClient_SandboxCreate_FullMethodName:
		// These take turns, and carry the time: see [opening.create].
		return invoke(ctx, method, req, reply, cc, opts...)
	case pb.ModalClient_AuthTokenGet_FullMethodName:
		// The SDK gives a token less time than a wait may take.
		if all, ok := ctx.Value(whole{}).(context.Context); ok && all.Err() == nil {
			outgoing, _ := metadata.FromOutgoingContext(ctx)
			ctx = metadata.NewOutgoingContext(all, outgoing)
			limit = func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, tokenLimit)
			}
		}
	}
	_, err := patiently(ctx, c.say, func() (struct{}, error) {
		one, cancel := limit(ctx)
		defer cancel()
		return struct{}{}, invoke(one, method, req, reply, cc, opts...)
	})
	return err
}

// tokenLimit is of one call for a token.
const tokenLimit = 5 * time.Second

type whole struct{}

// within bounds what a request takes by a little less than it has, so that its end
// is told by this program, which knows the reason.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit-min(limit/6, 15*time.Second))
	return context.WithValue(ctx, whole{}, ctx), cancel
}

// begin connects for a request that takes at most limit, see [within]. done is for its end.
func begin(ctx context.Context, limit time.Duration, say provider.Progress) (_ context.Context, c *conn, done func(), err error) {
	if c, err = connect(say); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := within(ctx, limit)
	return ctx, c, func() { c.Close(); cancel() }, nil
}

// raw is the control plane by its stubs.
func (c *conn) raw(ctx context.Context) (pb.ModalClientClient, error) {
	c.mu.Lock()
	cc := c.cc
	c.mu.Unlock()
	if cc == nil {
		// The SDK shows its connection only to a call. This one ends before it is
		// sent, when the SDK has its token.
		if _, err := c.Sandboxes.ExperimentalFromName(context.WithValue(ctx, unsent{}, true), "", "", nil); !errors.Is(err, errUnsent) {
			return nil, err
		}
		c.mu.Lock()
		cc = c.cc
		c.mu.Unlock()
	}
	return pb.NewModalClientClient(cc), nil
}

type unsent struct{}

var errUnsent = errors.New("not sent")

// loopback tells whether the server is a stand-in on this machine, whose workers
// are reached without TLS: the SDK's rule.
func (c *conn) loopback() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc == nil {
		return false
	}
	host, _, err := net.SplitHostPort(c.cc.Target())
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
