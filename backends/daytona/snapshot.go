package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"
)

var _ provider.Snapshotter = Provider{}

// snapshot is what the service says of one. It has no labels: the name is all
// that it is known by.
type snapshot struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	State   string     `json:"state"`
	Why     string     `json:"errorReason"`
	Created *time.Time `json:"createdAt"`
}

// snapshots finds those whose names begin with a word.
func (c *client) snapshots(ctx context.Context, prefix string) (all []snapshot, err error) {
	for page := 1; ; page++ {
		q := url.Values{"name": {prefix}, "limit": {"200"}, "page": {strconv.Itoa(page)}, "sort": {"name"}, "order": {"asc"}}
		var got struct {
			Items []snapshot `json:"items"`
			Pages int        `json:"totalPages"`
		}
		if err := c.do(ctx, call{op: "list the snapshots", method: http.MethodGet, url: c.url + "/snapshots?" + q.Encode(), into: &got}); err != nil {
			return nil, err
		}
		for _, s := range got.Items {
			if strings.HasPrefix(s.Name, prefix) && s.State != "removing" {
				all = append(all, s)
			}
		}
		if page >= got.Pages || len(got.Items) == 0 || len(all) > protocol.MaxEntries {
			return all, nil
		}
	}
}

// snapshot finds one by its name; nil is that there is none.
func (c *client) snapshot(ctx context.Context, name string) (*snapshot, error) {
	s := &snapshot{}
	q := call{op: "look for the snapshot " + name, method: http.MethodGet, url: c.url + "/snapshots/" + url.PathEscape(name), into: s}
	err := c.do(ctx, q)
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case s.ID == "" || s.Name != name:
		return nil, strange(q.op, "it does not name that snapshot")
	case s.State == "removing":
		return nil, nil
	}
	return s, nil
}

// usable waits until a snapshot can be used, and activates one that Daytona has
// deactivated because it was not used.
func (c *client) usable(ctx context.Context, name string) (*snapshot, error) {
	asked := false
	for look := unit / 5; ; look = min(look*13/10, lastLook) {
		s, err := c.snapshot(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case s == nil:
			return nil, &protocol.Error{Kind: protocol.NotFound, Message: "Daytona has no snapshot " + name}
		case s.State == "active":
			return s, nil
		case s.State == "error" || s.State == "build_failed":
			return s, &protocol.Error{Kind: protocol.Internal, Message: fmt.Sprintf("the snapshot %s is broken: %s", name, s.Why),
				Hint: "remove it, and make another one"}
		case s.State == "inactive" && !asked:
			asked = true
			c.say("activating the snapshot, which was not used for long")
			err := c.do(ctx, call{
				op:     "activate the snapshot " + name,
				method: http.MethodPost,
				url:    c.url + "/snapshots/" + url.PathEscape(s.ID) + "/activate",
			})
			if err != nil && !isStatus(err, http.StatusBadRequest) {
				return nil, err
			}
		default:
			c.say("the snapshot is %s", s.State)
		}
		if err := c.pause(ctx, look, "wait for the snapshot "+name); err != nil {
			return nil, err
		}
	}
}

// removeSnapshot deletes a snapshot.
func (c *client) removeSnapshot(ctx context.Context, s *snapshot) error {
	err := c.do(ctx, call{op: "delete the snapshot " + s.Name, method: http.MethodDelete, url: c.url + "/snapshots/" + url.PathEscape(s.ID)})
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// own settles who asks, and refuses sandboxes of Hermes': berth makes and removes
// nothing of theirs.
func own(r *protocol.Request, say provider.Progress) (*client, error) {
	c, err := open(r, say)
	if err == nil && c.hermes != "" {
		err = unsupported("leave hermes_task out, and berth makes a sandbox of its own", "berth makes no snapshots of the sandboxes of Hermes")
	}
	return c, err
}

// Snapshot has the service copy the sandbox.
func (Provider) Snapshot(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Snapshot, error) {
	c, err := own(r, say)
	if err != nil {
		return nil, err
	}
	s, err := c.take(ctx, r)
	if err != nil {
		return nil, explain(err)
	}
	out := &protocol.Snapshot{Name: s.Name, ID: s.ID}
	if s.Created != nil {
		out.Created = *s.Created
	}
	return out, nil
}

func (c *client) take(ctx context.Context, r *protocol.Request) (*snapshot, error) {
	b, _, err := c.ours(ctx, r)
	if err != nil {
		return nil, err
	}
	if b == nil || b.gone() {
		return nil, &protocol.Error{Kind: protocol.Gone, Message: "there is no sandbox " + r.Name, Hint: "the next command makes it again"}
	}
	there, err := c.snapshot(ctx, r.Snapshot)
	if err != nil {
		return nil, err
	}
	if there != nil {
		return nil, protocol.Errorf(protocol.Conflict, "there is a snapshot %s at Daytona already", r.Snapshot)
	}
	err = c.do(ctx, call{
		op:     "take a snapshot of " + b.Name,
		method: http.MethodPost,
		url:    c.one(b.ID, "snapshot"),
		policy: early,
		body:   map[string]string{"name": r.Snapshot},
	})
	var no *refusal
	if errors.As(err, &no) && no.status > 299 && no.status < 500 {
		return nil, err
	}
	lost := err // it may have been done
	told := time.Now()
	for look := unit / 5; ; look = min(look*13/10, lastLook) {
		now, gerr := c.get(ctx, b.ID)
		if gerr != nil {
			return nil, gerr
		}
		if s, serr := c.snapshot(ctx, r.Snapshot); serr != nil {
			return nil, serr
		} else if s != nil {
			s, err = c.usable(ctx, r.Snapshot)
			if s != nil && err != nil {
				return nil, errors.Join(err, c.removeSnapshot(ctx, s)) // it is of no use
			}
			return s, err
		}
		if now == nil || now.State != "snapshotting" {
			if lost != nil {
				return nil, &protocol.Error{Kind: protocol.Unclear,
					Message: fmt.Sprintf("%v; and there is no snapshot %s yet", lost, r.Snapshot)}
			}
			return nil, protocol.Errorf(protocol.Internal, "Daytona has taken no snapshot of %s, and does not say why", b.Name)
		}
		if time.Since(told) > tellAgain() {
			told = time.Now()
			c.say("waiting for the snapshot")
		}
		if err := c.pause(ctx, look, "take a snapshot of "+b.Name); err != nil {
			return nil, err
		}
	}
}

// Snapshots finds snapshots by what their names begin with. Not every key may
// know, and without that no key of berth's has made any.
func (Provider) Snapshots(ctx context.Context, r *protocol.Request, say provider.Progress) ([]protocol.Snapshot, error) {
	c, err := open(r, say)
	if err != nil {
		return nil, err
	}
	all, err := c.snapshots(ctx, r.Snapshot)
	if isStatus(err, http.StatusForbidden) {
		return nil, nil
	}
	var out []protocol.Snapshot
	for _, s := range all {
		o := protocol.Snapshot{Name: s.Name, ID: s.ID, Tags: proof(r)}
		if s.Created != nil {
			o.Created = *s.Created
		}
		out = append(out, o)
	}
	return out, explain(err)
}

// proof are the tags that the names which a request asks for stand for. Snapshots have
// none, but berth's have half of the owner's random digits in their names, which is as
// good as a label: no other user's begins so by chance.
func proof(r *protocol.Request) map[string]string {
	owner := r.Tags[protocol.TagOwner]
	if len(owner) < 16 || !strings.HasPrefix(r.Snapshot, "berth-snap-"+strings.ToLower(owner[:16])+"-") {
		return nil
	}
	return map[string]string{protocol.TagVersion: r.Tags[protocol.TagVersion], protocol.TagOwner: owner}
}

// Forget deletes a snapshot, and waits until it is.
func (Provider) Forget(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	c, err := open(r, say)
	if err != nil {
		return err
	}
	for look := unit / 5; ; look = min(look*13/10, lastLook) {
		s, err := c.snapshot(ctx, r.Snapshot)
		if s == nil || err != nil {
			return explain(err)
		}
		if err := c.removeSnapshot(ctx, s); err != nil && !isStatus(err, http.StatusConflict) {
			return explain(err)
		}
		if err := c.pause(ctx, look, "delete the snapshot "+r.Snapshot); err != nil {
			return err
		}
	}
}
