package daytona

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"berth/backends/external/protocol"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	// apiVersion is that of the API this was written for. The daemon in a sandbox
	// answers in another form to older ones.
	apiVersion = "0.205.1"
	// askTime bounds a request, with its repetitions where no answer comes; a create
	// is answered within half of it.
	askTime = 2 * time.Minute
)

// client speaks to one service with one key.
type client struct {
	*settings
	http  *retryablehttp.Client
	say   func(format string, args ...any) // never nil
	until time.Time                        // until when it waits for a service that refuses
}

func newClient(s *settings, verb string, say func(string, ...any)) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 90 * time.Second
	if say == nil {
		say = func(string, ...any) {}
	}
	tries := attempts
	if patience(verb) < time.Minute {
		tries = hasty
	}
	return &client{settings: s, http: httpClient(t, tries), say: say, until: time.Now().Add(patience(verb))}
}

// patience is how long a verb waits for a service that refuses: nearly as long as
// berth waits for its answer.
func patience(verb string) time.Duration {
	most := protocol.OpenTime
	switch verb {
	case protocol.VerbCheck:
		most = protocol.CheckTime
	case protocol.VerbList:
		most = protocol.ListTime
	case protocol.VerbDestroy:
		most = protocol.DestroyTime
	case protocol.VerbStop:
		most = protocol.StopTime
	case protocol.VerbSnapshot:
		most = protocol.SnapshotTime
	case protocol.VerbStream:
		most = protocol.StreamTime
	}
	return most * 9 / 10
}

// header is what every request has.
func (c *client) header(h http.Header) {
	h.Set("Authorization", "Bearer "+c.key)
	if c.org != "" {
		h.Set("X-Daytona-Organization-ID", c.org)
	}
	h.Set("X-Daytona-Source", "berth")
	h.Set("X-Daytona-SDK-Version", apiVersion)
	h.Set("User-Agent", "berth ("+runtime.GOOS+")")
}

// call is one request. op names it for people: "start the sandbox".
type call struct {
	op     string
	method string
	url    string // whole
	policy policy
	body   any // nil; what is sent as JSON; or open, below
	// open gives a body of a known size from its beginning, each time.
	open func() (io.Reader, error)
	size int64
	typ  string        // of that body
	into any           // takes the answer; nil is not read
	time time.Duration // 0 is askTime
}

// do sends a request and reads the answer. What is no success is a *refusal.
func (c *client) do(ctx context.Context, q call) error {
	return c.patiently(ctx, q.policy, func() error { return c.once(ctx, q) })
}

// patiently does something again when it was refused for the rate of requests.
func (c *client) patiently(ctx context.Context, p policy, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		var no *refusal
		if !errors.As(err, &no) || !no.later(p) {
			return err
		}
		if err := c.calm(ctx, no, n); err != nil {
			return err
		}
	}
}

func (c *client) once(ctx context.Context, q call) error {
	if q.time == 0 {
		q.time = askTime
	}
	ctx, stop := context.WithTimeout(ctx, q.time)
	defer stop()
	ctx = context.WithValue(context.WithValue(ctx, policyKey{}, q.policy), sayKey{}, c.say)
	var body any
	switch {
	case q.open != nil:
		body = retryablehttp.ReaderFunc(q.open)
	case q.body != nil:
		b, err := json.Marshal(q.body)
		if err != nil {
			return err
		}
		body, q.typ = b, "application/json"
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, q.method, q.url, body)
	if err != nil {
		return fmt.Errorf("%s: %w", q.op, err)
	}
	if q.open != nil {
		req.ContentLength = q.size
	}
	if err := mayHaveKey(q.url); err != nil {
		return err
	}
	c.header(req.Header)
	req.Header.Set("Accept", "application/json")
	if q.typ != "" {
		req.Header.Set("Content-Type", q.typ)
	}
	resp, err := c.http.Do(req)
	if resp != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	if err != nil && resp == nil {
		return fmt.Errorf("%s: %w", q.op, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refused(q.op, resp)
	}
	if q.into == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", q.op, err)
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(q.into); err != nil {
		return strange(q.op, err.Error())
	}
	return nil
}

// strange is an answer that this berth does not understand.
func strange(op, why string) *refusal {
	return &refusal{op: op, status: statusStrange, message: why}
}

// statusStrange is of an answer that was a success, and makes no sense.
const statusStrange = 299
