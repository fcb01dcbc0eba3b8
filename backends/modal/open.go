package modal

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// cleanupTime is what a program that is to end has to end what it has made. Tests
// have more.
var cleanupTime = protocol.LeaveTime - time.Second

// Open finds the sandbox that runs, or makes one: from the files of the last one,
// from a snapshot, or from the image.
func (Provider) Open(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Opened, error) {
	w, err := settle(r)
	if err != nil {
		return nil, err
	}
	ctx, c, done, err := begin(ctx, protocol.OpenTime, say)
	if err != nil {
		return nil, err
	}
	defer done()
	o := &opening{c: c, r: r, w: w, say: say, answer: &protocol.Opened{Dropped: w.dropped, Notes: w.notes, Cost: w.cost()}}
	b, err := o.find(ctx)
	if err != nil {
		return nil, err
	}
	if b == nil {
		if b, err = o.make(ctx); err != nil {
			return nil, err
		}
	}
	err = o.install(ctx, b)
	if err != nil && o.answer.State != protocol.StateFound {
		// Nothing is in it yet that anybody would miss: its files are where it
		// was made from.
		end, cancel := detached(ctx, cleanupTime)
		defer cancel()
		_ = c.terminate(end, b)
	}
	if err != nil {
		return nil, err
	}
	o.answer.Ref, o.answer.Ends = joinRef(b.SandboxID, b.task), endsOf(b.tags)
	return o.answer, nil
}

// opening is one open.
type opening struct {
	c      *conn
	r      *protocol.Request
	w      *want
	say    provider.Progress
	last   *box // that has ended, or nil
	answer *protocol.Opened
}

// find finds the sandbox that runs. One that ends soon makes place for the next
// one, which begins with its files.
func (o *opening) find(ctx context.Context) (*box, error) {
	// Of a sandbox with a GPU Modal does not know the last one.
	remembers := o.w.params.GPU == "" && o.r.Spec.Persistent
	b, err := o.c.byName(ctx, o.w.app, o.r.Name, remembers)
	if b == nil || err != nil {
		return nil, err
	}
	if b.result != nil {
		o.last = b
		return nil, nil
	}
	if err := o.c.ours(ctx, b, o.r); err != nil {
		return nil, err
	}
	if have := b.tags[tagSpec]; have != o.w.hash() {
		return nil, &protocol.Error{Kind: protocol.Changed,
			Message: fmt.Sprintf("the sandbox %s of %s was made with other values than those wanted now", b.SandboxID, o.r.Name),
			Hint:    "stop it, and the next command makes it again: berth env stop"}
	}
	if err := o.c.scheduled(ctx, b); err != nil {
		return nil, err
	}
	if b.result != nil { // in between
		o.last = b
		return nil, nil
	}
	if ends := endsOf(b.tags); o.r.Spec.Persistent && !ends.IsZero() && time.Until(ends) < min(minEndsLeft, o.w.params.Timeout/2) {
		o.say("Modal ends the sandbox at %s: it is made again with its files", ends.UTC().Format(time.TimeOnly))
		if err := o.c.save(ctx, b, o.r, o.say); err != nil {
			return nil, err
		}
		return nil, o.c.terminate(ctx, b)
	}
	o.answer.State = protocol.StateFound
	return b, nil
}

// origin is something that a sandbox can begin with.
type origin struct {
	image *sdk.Image
	what  string // for people; "" is the image that was asked for
}

// make makes the sandbox.
func (o *opening) make(ctx context.Context) (*box, error) {
	first, err := o.files(ctx)
	if err != nil {
		return nil, err
	}
	app, err := o.c.app(ctx, o.r, true)
	if err != nil {
		return nil, err
	}
	if first != nil {
		b, err := o.create(ctx, app, first.image)
		if err == nil {
			o.answer.State = protocol.StateRestored
			o.say("restored from %s", first.what)
			return b, nil
		}
		if !is(err, protocol.NotFound) {
			return nil, err
		}
		o.answer.Notes = append(o.answer.Notes, first.what+" is gone; the environment starts from the beginning")
	}
	image, err := o.build(ctx, app)
	if err != nil {
		return nil, err
	}
	b, err := o.create(ctx, app, image)
	if err != nil {
		return nil, err
	}
	o.answer.State = protocol.StateMade
	if o.r.Ref != "" {
		o.answer.State, o.answer.Why = protocol.StateRebuilt, "its sandbox has ended at Modal"
		if o.r.Spec.Persistent {
			o.answer.Why += ", and there is no snapshot of its files"
		}
		if o.last != nil {
			o.answer.Why += " (" + why(o.last.result) + ")"
		}
	}
	return b, nil
}

// files finds what the sandbox begins with in place of the image; nil is nothing.
func (o *opening) files(ctx context.Context) (*origin, error) {
	if o.r.Spec.Persistent {
		if own, err := o.own(ctx); own != nil || err != nil {
			return own, err
		}
	}
	if from := o.r.Spec.From; from != "" {
		image, err := o.c.named(ctx, from)
		if err != nil {
			return nil, err
		}
		return &origin{image, "the snapshot " + from}, nil
	}
	if !o.r.Spec.Persistent {
		return nil, nil
	}
	if shared := o.r.Options[optSnapshot]; shared != "" {
		image, err := o.c.saved(ctx, shared)
		if err != nil {
			return nil, err
		}
		if image != nil {
			return &origin{image, "the snapshot " + shared}, nil
		}
	}
	if id := hermesSnapshot(o.r); id != "" {
		return &origin{&sdk.Image{ImageID: id}, "the snapshot " + id + " of Hermes Agent"}, nil
	}
	return nil, nil
}

// own finds what the environment's own files are kept in; nil is nothing.
func (o *opening) own(ctx context.Context) (*origin, error) {
	if o.last != nil {
		image, err := o.c.last(ctx, o.last)
		if err != nil {
			return nil, err
		}
		if image != nil {
			// From now on it is found by its name, and deleted with the environment.
			err := o.c.publish(ctx, image, o.r, false)
			if err == nil {
				return &origin{image, "the files of its last sandbox"}, nil
			}
			if !is(err, protocol.NotFound) { // it was deleted with the environment
				return nil, err
			}
		}
	}
	image, err := o.c.saved(ctx, published(o.r))
	if image == nil || err != nil {
		return nil, err
	}
	return &origin{image, "the snapshot " + published(o.r)}, nil
}

// build makes the image that was asked for known to Modal. It is cached there.
func (o *opening) build(ctx context.Context, app *sdk.App) (*sdk.Image, error) {
	if len(o.w.image) > 3 && o.w.image[:3] == "im-" {
		return &sdk.Image{ImageID: o.w.image}, nil
	}
	defer alive(o.say, "waiting for Modal to build the image "+o.w.image)()
	for failed := 0; ; failed++ {
		image, err := patiently(ctx, o.say, func() (*sdk.Image, error) { return o.c.Images.FromRegistry(o.w.image, nil).Build(ctx, app, nil) })
		if err == nil {
			return image, nil
		}
		if !passing(err) || failed >= 3 || ctx.Err() != nil {
			return nil, trouble("build the image "+o.w.image, err)
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// create makes the sandbox, with its name and its limit of life. Of one that may
// have been made the name tells.
func (o *opening) create(ctx context.Context, app *sdk.App, image *sdk.Image) (*box, error) {
	p := o.w.params
	b := &box{tags: p.Tags}
	made := seen(ctx, func(reply any) {
		if m, ok := reply.(*pb.SandboxCreateV2Response); ok {
			b.task = m.GetTaskId()
			if m.HasCommandRouterAccess() {
				b.access = m.GetCommandRouterAccess()
			}
		}
	})
	o.say("making the sandbox %s", o.r.Name)
	var err error
	b.Sandbox, err = patiently(ctx, o.say, func() (*sdk.Sandbox, error) {
		if err := pace(ctx, o.say); err != nil {
			return nil, err
		}
		p.Tags[tagEnds] = strconv.FormatInt(time.Now().Add(p.Timeout).Unix(), 10)
		defer alive(o.say, "waiting for Modal to place the sandbox")()
		return o.c.Sandboxes.Create(made, app, image, &p)
	})
	if err == nil {
		return b, o.c.scheduled(ctx, b)
	}
	said := trouble("make the sandbox "+o.r.Name, err)
	if is(said, protocol.Rate) || ctx.Err() == nil && !is(said, protocol.Conflict) && !passing(err) {
		return nil, said
	}
	return o.perhaps(ctx, said)
}

// perhaps looks for a sandbox that may have been made, or that was there.
func (o *opening) perhaps(ctx context.Context, said error) (*box, error) {
	look, cancel := ctx, context.CancelFunc(func() {})
	if ctx.Err() != nil {
		look, cancel = detached(ctx, cleanupTime)
	}
	defer cancel()
	b, err := o.c.running(look, o.r)
	switch {
	case is(err, protocol.Conflict):
		return nil, err
	case err != nil:
		return nil, &protocol.Error{Kind: protocol.Unclear, Message: fmt.Sprintf("%v; whether there is one now cannot be found out: %v", said, err),
			Hint: "the next command finds it by its name; it ends by itself"}
	case b == nil:
		return nil, said
	case ctx.Err() != nil:
		return nil, errOr(trouble("take the sandbox back", o.c.terminate(look, b)), said)
	}
	return b, nil
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
