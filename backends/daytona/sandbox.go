package daytona

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// sandbox is what the service says of one. Other fields are none of our business.
type sandbox struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	State      string            `json:"state"`
	Desired    string            `json:"desiredState"`
	Why        string            `json:"errorReason"`
	Repairable bool              `json:"recoverable"`
	Labels     map[string]string `json:"labels"`
	CPU        float64           `json:"cpu"`
	Memory     float64           `json:"memory"` // GiB
	Disk       float64           `json:"disk"`   // GiB
	Region     string            `json:"target"`
	Class      string            `json:"sandboxClass"`
	Toolbox    string            `json:"toolboxProxyUrl"`
	Ends       *time.Time        `json:"autoDestroyAt"`
	Created    *time.Time        `json:"createdAt"`
	NoNetwork  bool              `json:"networkBlockAll"`
	CIDRs      string            `json:"networkAllowList"`
	Domains    string            `json:"domainAllowList"`
}

// has tells whether it carries every tag.
func (b *sandbox) has(tags map[string]string) bool {
	for k, v := range tags {
		if b.Labels[k] != v {
			return false
		}
	}
	return len(tags) > 0
}

// gone tells that nothing of it is left, or soon will not be.
func (b *sandbox) gone() bool {
	return b.State == "destroyed" || b.State == "destroying" || b.Desired == "destroyed"
}

// create is the body of the request that makes one. What is nil or "" is left to
// the service.
type create struct {
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Target    string            `json:"target,omitempty"`
	Snapshot  string            `json:"snapshot,omitempty"`
	Build     *build            `json:"buildInfo,omitempty"`
	CPU       int               `json:"cpu,omitempty"`
	Memory    int               `json:"memory,omitempty"` // GiB
	Disk      int               `json:"disk,omitempty"`   // GiB
	NoNetwork bool              `json:"networkBlockAll,omitempty"`
	CIDRs     string            `json:"networkAllowList,omitempty"`
	Domains   string            `json:"domainAllowList,omitempty"`
	Public    bool              `json:"public"`
	// Minutes, all always said.
	Stop    int `json:"autoStopInterval"`
	Archive int `json:"autoArchiveInterval"`
	Delete  int `json:"autoDeleteInterval"`
	TTL     int `json:"ttlMinutes"`
}

type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

func (c *client) one(idOrName string, more ...string) string {
	s := c.url + "/sandbox/" + url.PathEscape(idOrName)
	for _, m := range more {
		s += "/" + url.PathEscape(m)
	}
	return s
}

// get asks for one by its id or its name, which is always up to date. nil is
// that there is none.
func (c *client) get(ctx context.Context, idOrName string) (*sandbox, error) {
	b := &sandbox{}
	q := call{op: "look for the sandbox " + idOrName, method: http.MethodGet, url: c.one(idOrName), into: b}
	err := c.do(ctx, q)
	if isStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b, b.check(q.op)
}

// check refuses an answer that is about no sandbox.
func (b *sandbox) check(op string) error {
	if b.ID == "" || b.Name == "" {
		return strange(op, "it names no sandbox")
	}
	return nil
}

func (c *client) post(ctx context.Context, w *create) (*sandbox, error) {
	b := &sandbox{}
	q := call{op: "make the sandbox " + w.Name, method: http.MethodPost, url: c.url + "/sandbox", policy: never, body: w, into: b}
	if err := c.do(ctx, q); err != nil {
		return nil, err
	}
	return b, b.check(q.op)
}

// change asks for a change of state; policy again, since it is then what it is.
func (c *client) change(ctx context.Context, b *sandbox, verb string) error {
	return c.do(ctx, call{op: verb + " the sandbox " + b.Name, method: http.MethodPost, url: c.one(b.ID, verb)})
}

func (c *client) remove(ctx context.Context, b *sandbox) error {
	err := c.do(ctx, call{op: "delete the sandbox " + b.Name, method: http.MethodDelete, url: c.one(b.ID)})
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// setTTL sets when it ends, in minutes from when it was made.
func (c *client) setTTL(ctx context.Context, b *sandbox, minutes int) error {
	return c.do(ctx, call{op: "set the lifetime of the sandbox " + b.Name, method: http.MethodPost, url: c.one(b.ID, "ttl", strconv.Itoa(minutes))})
}

// relabel gives a sandbox these labels, and no others.
func (c *client) relabel(ctx context.Context, b *sandbox, labels map[string]string) error {
	return c.do(ctx, call{op: "label the sandbox " + b.Name, method: http.MethodPut, url: c.one(b.ID, "labels"), body: map[string]any{"labels": labels}})
}

// list finds those with the labels. What was made a moment ago may be missing.
func (c *client) list(ctx context.Context, labels map[string]string) (all []sandbox, err error) {
	j, err := json.Marshal(labels)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		q := url.Values{"labels": {string(j)}, "limit": {"200"}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Items []sandbox `json:"items"`
			Next  *string   `json:"nextCursor"`
		}
		if err := c.do(ctx, call{op: "list the sandboxes", method: http.MethodGet, url: c.url + "/sandbox?" + q.Encode(), into: &page}); err != nil {
			return nil, err
		}
		for _, b := range page.Items {
			if !seen[b.ID] {
				seen[b.ID] = true
				all = append(all, b)
			}
		}
		if page.Next == nil || *page.Next == "" || *page.Next == cursor {
			return all, nil
		}
		cursor = *page.Next
	}
}

// ref is what berth keeps of a sandbox: its id, and where its daemon is reached,
// so that a stream needs not ask for it.
func (b *sandbox) ref() string {
	if s := b.ID + "@" + strings.TrimRight(b.Toolbox, "/"); len(s) <= 256 {
		return s
	}
	return b.ID
}

// idOf is the id in a ref, or "".
func idOf(ref string) string {
	id, _, _ := strings.Cut(ref, "@")
	return id
}
