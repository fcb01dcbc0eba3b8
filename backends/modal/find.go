package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/backends/external/protocol"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// box is a sandbox that was found, or made.
type box struct {
	*sdk.Sandbox
	task   string
	tags   map[string]string
	result *pb.GenericResult // how it ended; nil is that it runs
	access access            // from the answer that made it, or nil
}

// ended tells whether a result is one.
func ended(r *pb.GenericResult) bool {
	return r != nil && r.GetStatus() != pb.GenericResult_GENERIC_STATUS_UNSPECIFIED
}

// byName finds the sandbox with a name: the running one, else, where last is set
// and Modal keeps it, the last one that has ended. Nil is that there is none.
func (c *conn) byName(ctx context.Context, app, name string, last bool) (*box, error) {
	b := &box{}
	look := seen(ctx, func(reply any) {
		if r, ok := reply.(*pb.SandboxGetFromNameResponse); ok && ended(r.GetMetadata().GetResult()) {
			b.result = r.GetMetadata().GetResult()
		}
	})
	var err error
	if last {
		b.Sandbox, err = c.Sandboxes.ExperimentalFromName(look, app, name, &sdk.SandboxExperimentalFromNameParams{IncludeTerminated: true})
	} else {
		b.Sandbox, err = c.Sandboxes.FromName(look, app, name, nil)
	}
	var missing sdk.NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, trouble("look for the sandbox "+name, err)
	}
	return b, nil
}

// ours reads the tags of a sandbox and checks that they are the request's.
func (c *conn) ours(ctx context.Context, b *box, r *protocol.Request) error {
	tags, err := b.GetTags(ctx, nil)
	if err != nil {
		return trouble("read the tags of the sandbox "+b.SandboxID, err)
	}
	if !hasAll(tags, r.Tags) {
		return &protocol.Error{Kind: protocol.Conflict,
			Message: fmt.Sprintf("the sandbox %s is called %s and does not have the tags of this environment", b.SandboxID, r.Name),
			Hint:    "end it, if it is yours: modal sandbox terminate " + b.SandboxID}
	}
	b.tags = tags
	return nil
}

// scheduled waits until the sandbox is on a worker, and finds out whether it has
// ended.
func (c *conn) scheduled(ctx context.Context, b *box) error {
	if b.task != "" || b.result != nil {
		return nil
	}
	raw, err := c.raw(ctx)
	if err != nil {
		return err
	}
	req := pb.SandboxGetTaskIdRequest_builder{SandboxId: b.SandboxID}.Build()
	for {
		get := raw.SandboxGetTaskIdV2
		if isV1(b.SandboxID) {
			get = raw.SandboxGetTaskId
		}
		resp, err := get(ctx, req)
		if err != nil {
			return trouble("look at the sandbox "+b.SandboxID, err)
		}
		if r := resp.GetTaskResult(); ended(r) {
			b.result = r
			return nil
		}
		if b.task = resp.GetTaskId(); b.task != "" {
			return nil
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// running finds the sandbox of a request that runs, and proves that it is the
// request's. Nil is that none does.
func (c *conn) running(ctx context.Context, r *protocol.Request) (*box, error) {
	b, err := c.byName(ctx, appOf(r), r.Name, false)
	if b == nil || err != nil {
		return nil, err
	}
	if err := c.ours(ctx, b, r); err != nil {
		return nil, err
	}
	if err := c.scheduled(ctx, b); err != nil || b.result != nil {
		return nil, err
	}
	return b, nil
}

// terminate ends a sandbox and waits until it has ended.
func (c *conn) terminate(ctx context.Context, b *box) error {
	_, err := b.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true})
	if err = trouble("end the sandbox "+b.SandboxID, err); is(err, protocol.NotFound) {
		return nil
	}
	return err
}

// detached is a context for what must still be done when ctx has ended.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// alive says every now and then that something is still waited for.
func alive(say func(format string, args ...any), what string) (stop func()) {
	done := make(chan struct{})
	began := time.Now()
	go func() {
		t := time.NewTicker(20 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				say("%s, for %v now", what, time.Since(began).Round(time.Second))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
