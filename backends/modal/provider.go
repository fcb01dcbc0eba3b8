package modal

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// Version is of the program, as it tells it.
const Version = "1"

// heap is how much memory the program takes before it looks harder for what it can
// give back: some hundred of them may run on a login node.
const heap = 24 << 20

// Main is the program.
func Main() int {
	debug.SetMemoryLimit(heap)
	return provider.Main(Provider{})
}

// Provider answers the requests. Its zero value is ready.
type Provider struct{}

var _ provider.Provider = Provider{}

// Check asks about the account, which needs keys that are good and makes nothing.
func (Provider) Check(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Checked, error) {
	ctx, c, done, err := begin(ctx, protocol.CheckTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	a := &protocol.Checked{
		Version: Version, Service: "Modal", Region: r.Options[optRegion], Level: protocol.LevelVM, Options: options(),
		Capabilities: protocol.Capabilities{
			Limits:  []string{protocol.LimitCPUs, protocol.LimitMemory},
			Network: []string{protocol.NetworkOpen, protocol.NetworkNone, protocol.NetworkAllow},
			GPU:     []string{"nvidia"}, Image: true, Persistent: true, MaxLifetimeSeconds: int64(maxLifetime / time.Second),
		},
	}
	if err := c.account(ctx, r, a); err != nil {
		return nil, err
	}
	if c.loopback() {
		// Whatever that is, it is not what Modal says of its sandboxes.
		a.Level = protocol.LevelNone
		a.Notes = append(a.Notes, "MODAL_SERVER_URL names this machine: that is a stand-in, whose sandboxes may contain nothing")
	}
	return a, nil
}

// app finds Modal's app of the sandboxes, or makes it. Nil is that there is none.
func (c *conn) app(ctx context.Context, r *protocol.Request, make bool) (*sdk.App, error) {
	app, err := c.Apps.FromName(ctx, appOf(r), &sdk.AppFromNameParams{CreateIfMissing: make})
	if err = trouble("reach Modal", err); is(err, protocol.NotFound) && !make {
		return nil, nil
	}
	return app, err
}

// each goes through the sandboxes of an app that run and have these tags.
func (c *conn) each(ctx context.Context, app *sdk.App, tags map[string]string, f func(*pb.SandboxInfo)) error {
	raw, err := c.raw(ctx)
	if err != nil {
		return trouble("list the sandboxes", err)
	}
	req := pb.SandboxListRequest_builder{AppId: app.AppID}
	for k, v := range tags {
		req.Tags = append(req.Tags, pb.SandboxTag_builder{TagName: k, TagValue: v}.Build())
	}
	for n := 0; n < protocol.MaxEntries; {
		page, err := raw.SandboxListV2(ctx, req.Build())
		if err != nil {
			return trouble("list the sandboxes", err)
		}
		found := page.GetSandboxes()
		if len(found) == 0 {
			return nil
		}
		for _, info := range found {
			f(info)
		}
		n += len(found)
		before := found[len(found)-1].GetCreatedAt()
		if req.BeforeTimestamp != 0 && before >= req.BeforeTimestamp {
			return protocol.Errorf(protocol.Unsupported, "list the sandboxes: Modal's pages do not go back in time")
		}
		req.BeforeTimestamp = before
	}
	return nil
}

// List finds the sandboxes that run, and of environments that are stopped the images
// of their files.
func (Provider) List(ctx context.Context, r *protocol.Request, say provider.Progress) ([]protocol.Found, error) {
	ctx, c, done, err := begin(ctx, protocol.ListTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	app, err := c.app(ctx, r, false)
	if err != nil {
		return nil, err
	}
	var all []protocol.Found
	add := func(info *pb.SandboxInfo) {
		f := protocol.Found{
			Ref:     joinRef(info.GetId(), info.GetTaskInfo().GetId()),
			Name:    info.GetName(),
			Tags:    map[string]string{},
			Running: true,
			Created: time.UnixMicro(int64(info.GetCreatedAt() * 1e6)).UTC(),
		}
		for _, t := range info.GetTags() {
			f.Tags[t.GetTagName()] = t.GetTagValue()
		}
		if hasAll(f.Tags, r.Tags) { // whatever the server understands by its filter
			all = append(all, f)
		}
	}
	if app != nil {
		if err := c.each(ctx, app, r.Tags, add); err != nil {
			return nil, err
		}
	}
	stopped, err := c.stopped(ctx, r.Tags, all)
	return append(all, stopped...), err
}

// Stop takes a snapshot of the files, publishes it and ends the sandbox. Where the
// snapshot fails the sandbox stays: it ends by itself, and Modal keeps its files
// then.
func (Provider) Stop(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	ctx, c, done, err := begin(ctx, protocol.StopTime, say)
	if err != nil {
		return err
	}
	defer done()
	b, err := c.running(ctx, r)
	if b == nil || err != nil {
		return err
	}
	if err := c.save(ctx, b, r, say); err != nil {
		return err
	}
	return c.terminate(ctx, b)
}

// Destroy ends the sandbox and deletes the images of its files.
func (Provider) Destroy(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	ctx, c, done, err := begin(ctx, protocol.DestroyTime, say)
	if err != nil {
		return err
	}
	defer done()
	b, err := c.running(ctx, r)
	if err != nil {
		return err
	}
	if b != nil {
		if err := c.terminate(ctx, b); err != nil {
			return err
		}
	}
	// Its name has the environment's id, and nothing else is published under it.
	image, err := c.saved(ctx, published(r))
	if err != nil {
		return err
	}
	if image != nil {
		if err := c.unpublish(ctx, image.ImageID, published(r)); err != nil {
			return err
		}
	}
	return c.forgetLast(ctx, r)
}

// forgetLast deletes what Modal has kept by itself of the last sandbox of a name.
func (c *conn) forgetLast(ctx context.Context, r *protocol.Request) error {
	b, err := c.byName(ctx, appOf(r), r.Name, true)
	if b == nil || b.result == nil || err != nil {
		return err
	}
	image, err := c.last(ctx, b)
	if image == nil || err != nil {
		return err
	}
	return c.forget(ctx, image.ImageID)
}

// why says how a sandbox ended.
func why(r *pb.GenericResult) string {
	word := strings.ToLower(strings.TrimPrefix(r.GetStatus().String(), "GENERIC_STATUS_"))
	if e := r.GetException(); e != "" {
		return fmt.Sprintf("%s: %s", word, e)
	}
	return word
}
