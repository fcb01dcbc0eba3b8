package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"berth/backends/external/protocol"
)

func (c *client) openSandbox(ctx context.Context, r *protocol.Request) (*protocol.Opened, error) {
	if r.Guest == nil {
		return nil, protocol.Errorf(protocol.Internal, "the request names no guest program")
	}
	w, dropped, notes, err := c.wanted(r)
	if err != nil {
		return nil, err
	}
	o := &protocol.Opened{Dropped: dropped, Notes: notes, Arch: r.Guest.Arch}
	b, err := c.find(ctx, r, w, o)
	if err != nil {
		return nil, err
	}
	if o.Guest, err = c.installStarted(ctx, &b, o, r); err != nil {
		return nil, err
	}
	o.Ref, o.Cost = b.ref(), b.cost()
	o.Level = protocol.LevelFS
	switch {
	case c.here():
		o.Level = protocol.LevelNone
	case b.Class == "linux-vm":
		o.Level = protocol.LevelVM
	case w.NoNetwork || w.CIDRs != "" || w.Domains != "":
		o.Level = protocol.LevelEgress
	}
	if err := c.prolong(ctx, b, w, o); err != nil {
		return nil, err
	}
	for _, p := range c.ports {
		o.Notes = append(o.Notes, c.preview(ctx, b, p))
	}
	return o, nil
}

// find gives the sandbox, running. One that cannot be used any more is replaced,
// unless it may hold files.
func (c *client) find(ctx context.Context, r *protocol.Request, w *create, o *protocol.Opened) (*sandbox, error) {
	name := w.Name
	if c.hermes != "" {
		name = "hermes-" + c.hermes
	}
	b, _, err := c.ours(ctx, r)
	if err != nil {
		return nil, err
	}
	o.State = protocol.StateFound
	for {
		ours := false
		if b == nil || b.gone() {
			if c.hermes != "" {
				return nil, &protocol.Error{Kind: protocol.NotFound, Message: "there is no sandbox " + name + " of Hermes",
					Hint: "leave hermes_task out, and berth makes one of its own"}
			}
			if from := r.Spec.From; from != "" {
				if _, err := c.usable(ctx, from); err != nil {
					return nil, err
				}
			}
			c.say("making the sandbox %s", name)
			if b, ours, err = c.make(ctx, w, r.Tags); err != nil {
				return nil, err
			}
			if o.State != protocol.StateRebuilt {
				o.State = protocol.StateMade
			}
			if r.Ref != "" && r.Spec.Persistent && o.Why == "" {
				o.State, o.Why = protocol.StateRebuilt, "it was deleted, or had come to the end of its life"
			}
		}
		if c.hermes == "" && !b.has(r.Tags) {
			return nil, foreign(b)
		}
		if !sameNetwork(b, w) {
			if ours {
				c.dropCreated(name, r.Tags)
				return nil, noRules()
			}
			return nil, &protocol.Error{Kind: protocol.Changed,
				Message: "the sandbox " + b.Name + " has other rules for its network than those wanted",
				Hint:    "berth env rm, and open it again"}
		}
		now, woken, err := c.ready(ctx, b)
		var lost *lostError
		switch {
		case err == nil:
			if woken && o.State == protocol.StateFound {
				o.State = protocol.StateRestored
			}
			if w.NoNetwork == now.NoNetwork && w.CIDRs == "" && w.Domains == "" && now.CIDRs+now.Domains != "" {
				o.Notes = append(o.Notes, "Daytona lets it reach only "+now.CIDRs+now.Domains)
			}
			return now, nil
		case errors.As(err, &lost) && !ours && c.hermes == "" && (lost.b.State != "error" || !r.Spec.Persistent):
			o.State, o.Why = protocol.StateRebuilt, lost.Error()
			if err := c.destroy(ctx, lost.b); err != nil {
				return nil, err
			}
			b = nil
			continue
		case ours:
			// Nothing is in it yet, and no other process knows of it.
			c.dropCreated(name, r.Tags)
		}
		return nil, err
	}
}

func noRules() error {
	return unsupported("see what the organization allows in Daytona's dashboard", "Daytona did not take the rules for the network")
}

// installStarted installs the guest in a sandbox that was running when it was
// looked at, and may have stopped since.
func (c *client) installStarted(ctx context.Context, b **sandbox, o *protocol.Opened, r *protocol.Request) (string, error) {
	g, from := r.Guest, r.Spec.From != "" // a snapshot has it already
	made := o.State == protocol.StateMade || o.State == protocol.StateRebuilt
	path, err := c.install(ctx, *b, g, made && !from)
	if !notStarted(err) {
		return path, err
	}
	stale := **b
	stale.State = "stopped"
	now, _, err := c.ready(ctx, &stale)
	if err != nil {
		return "", err
	}
	if *b = now; o.State == protocol.StateFound {
		o.State = protocol.StateRestored
	}
	return c.install(ctx, now, g, false)
}

// prolong lets a sandbox that is ours live on for the time that is wanted from
// now on, when half of that or more is gone.
func (c *client) prolong(ctx context.Context, b *sandbox, w *create, o *protocol.Opened) error {
	ends := b.Ends
	if c.hermes != "" {
		if ends == nil {
			o.Notes = append(o.Notes, "the sandbox is one of Hermes', and has no end of its own: berth stops it, and does not delete it")
		}
	} else if now := time.Now(); ends == nil || ends.Sub(now) < time.Duration(w.TTL)*time.Minute/2 {
		minutes := b.age(now) + w.TTL
		if o.State == protocol.StateMade && ends == nil {
			// An older service, which says nothing of it, or does not know it.
			o.Notes = append(o.Notes, "this Daytona does not say when the sandbox ends")
		} else if err := c.setTTL(ctx, b, minutes); err != nil {
			return err
		}
		at := now.Add(time.Duration(w.TTL) * time.Minute)
		ends = &at
	}
	if ends != nil {
		o.Ends = *ends
	}
	return nil
}

// preview tells where a port of the sandbox is seen from outside.
func (c *client) preview(ctx context.Context, b *sandbox, port int) string {
	var p struct {
		URL string `json:"url"`
	}
	err := c.do(ctx, call{
		op:     "ask for the address of port " + strconv.Itoa(port),
		method: http.MethodGet,
		url:    c.one(b.ID, "ports", strconv.Itoa(port), "preview-url"),
		into:   &p,
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("port %d is at %s (it asks for the account, or for the header x-daytona-preview-token)", port, p.URL)
}
