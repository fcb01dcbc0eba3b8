package modal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

var _ provider.Snapshotter = Provider{}

// Snapshot publishes an image of the sandbox's files under the name that is
// wanted. Modal has no tags for images: the name is all that it is known by.
func (Provider) Snapshot(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Snapshot, error) {
	ctx, c, done, err := begin(ctx, protocol.SnapshotTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := c.running(ctx, r)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, &protocol.Error{Kind: protocol.Gone, Message: "there is no sandbox " + r.Name + " that runs",
			Hint: "the next command opens it again"}
	}
	name := fullName(r.Snapshot)
	if there, err := c.saved(ctx, name); err != nil {
		return nil, err
	} else if there != nil {
		return nil, protocol.Errorf(protocol.Conflict, "there is an image %s at Modal already", name)
	}
	image, err := c.image(ctx, b, r, say)
	if err != nil {
		return nil, err
	}
	if err := image.Publish(ctx, name, nil); err != nil {
		err = trouble("publish the snapshot as "+name, err)
		look, cancel := detached(ctx, protocol.LeaveTime-time.Second)
		defer cancel()
		if there, lerr := c.saved(look, name); lerr == nil && there != nil && there.ImageID == image.ImageID && ctx.Err() == nil {
			err = nil // its answer was lost
		} else if derr := c.forget(look, image.ImageID); derr != nil {
			return nil, &protocol.Error{Kind: protocol.Unclear, Message: fmt.Sprintf("%v; and the image %s is left: %v", err, image.ImageID, derr),
				Hint: "modal image delete " + image.ImageID}
		}
		if err != nil {
			return nil, err
		}
	}
	return &protocol.Snapshot{Name: r.Snapshot, ID: image.ImageID, Created: time.Now().UTC()}, nil
}

// named finds the image of a snapshot, which must be there.
func (c *conn) named(ctx context.Context, name string) (*sdk.Image, error) {
	image, err := c.saved(ctx, fullName(name))
	if err == nil && image == nil {
		err = &protocol.Error{Kind: protocol.NotFound, Message: "Modal has no snapshot " + name}
	}
	return image, err
}

// Restore makes a sandbox of the image, and has that be its last files, too.
func (Provider) Restore(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Restored, error) {
	w, err := settle(r)
	if err != nil {
		return nil, err
	}
	ctx, c, done, err := begin(ctx, protocol.OpenTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	image, err := c.named(ctx, r.Snapshot)
	if err != nil {
		return nil, err
	}
	app, err := c.app(ctx, r, true)
	if err != nil {
		return nil, err
	}
	if b, err := c.running(ctx, r); err != nil {
		return nil, err
	} else if b != nil {
		if err := c.terminate(ctx, b); err != nil {
			return nil, err
		}
	}
	var old *box // whose files Modal has kept by itself
	if w.params.GPU == "" && r.Spec.Persistent {
		if old, err = c.byName(ctx, w.app, r.Name, true); err != nil {
			return nil, err
		}
	}
	o := &opening{c: c, r: r, w: w, say: say, answer: &protocol.Opened{}}
	b, err := o.create(ctx, app, image)
	if err != nil {
		return nil, err
	}
	back := &protocol.Restored{Ref: joinRef(b.SandboxID, b.task), Notes: w.notes}
	if old != nil && old.result != nil {
		kept, err := c.last(ctx, old)
		if err == nil && kept != nil {
			err = c.forget(ctx, kept.ImageID)
		}
		if err != nil {
			back.Notes = append(back.Notes, "what Modal has kept of the sandbox before is left there: "+err.Error())
		}
	}
	return back, nil
}

// Snapshots finds the images whose names begin as wanted.
func (Provider) Snapshots(ctx context.Context, r *protocol.Request, say provider.Progress) ([]protocol.Snapshot, error) {
	ctx, c, done, err := begin(ctx, protocol.ListTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	var out []protocol.Snapshot
	err = c.eachImage(ctx, r.Snapshot, func(t *pb.ImageListTagsItem) {
		if name, is := strings.CutSuffix(t.GetTag(), fullName("")); is && strings.HasPrefix(name, r.Snapshot) {
			out = append(out, protocol.Snapshot{Name: name, ID: t.GetImageId(), Created: time.UnixMicro(int64(t.GetCreatedAt() * 1e6)).UTC()})
		}
	})
	return out, err
}

// Forget deletes the image of a snapshot.
func (Provider) Forget(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	ctx, c, done, err := begin(ctx, protocol.DestroyTime, say)
	if err != nil {
		return err
	}
	defer done()
	image, err := c.saved(ctx, fullName(r.Snapshot))
	if image == nil || err != nil {
		return err
	}
	return c.forget(ctx, image.ImageID)
}
