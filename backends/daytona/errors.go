package daytona

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"
)

// refusal is an answer that is no success.
type refusal struct {
	op      string // what was asked for, for people
	status  int
	message string
	code    string        // of the daemon in the sandbox
	wait    time.Duration // that it asks for
}

func (e *refusal) Error() string {
	text := e.message
	if text == "" {
		text = http.StatusText(e.status)
	}
	if e.status == statusStrange {
		return e.op + ": Daytona's answer makes no sense to berth: " + text
	}
	return fmt.Sprintf("%s: Daytona answers %d: %s", e.op, e.status, text)
}

// refused reads the body of an answer: JSON of the service or of the daemon in
// the sandbox, or what a proxy says in HTML, or nothing.
func refused(op string, resp *http.Response) *refusal {
	e := &refusal{op: op, status: resp.StatusCode, wait: told(resp)}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Message json.RawMessage
		Error   json.RawMessage
		Code    string
		Other   string `json:"error_code"`
	}
	if json.Unmarshal(b, &body) == nil {
		e.message, e.code = words(body.Message), body.Code
		if e.message == "" {
			e.message = words(body.Error)
		}
		if e.code == "" {
			e.code = body.Other
		}
	} else if !strings.Contains(strings.ToLower(resp.Header.Get("Content-Type")), "html") {
		e.message = string(b)
	}
	e.message = strings.Join(strings.Fields(e.message), " ")
	if len(e.message) > 600 {
		e.message = strings.ToValidUTF8(e.message[:600], "") + "..."
	}
	return e
}

// words is a text, or a list of them.
func words(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, "; ")
	}
	return ""
}

// notStarted tells that the sandbox did not run: the request did nothing.
func notStarted(err error) bool {
	var e *refusal
	return errors.As(err, &e) && e.status == http.StatusBadRequest && strings.Contains(e.message, "Is the Sandbox started?")
}

func isStatus(err error, status int) bool {
	var e *refusal
	return errors.As(err, &e) && e.status == status && !e.noRoute()
}

// noRoute tells that it is the address that the service does not have: what its router
// says.
func (e *refusal) noRoute() bool {
	return e.status == http.StatusNotFound && strings.HasPrefix(e.message, "Cannot ")
}

// explain gives an error the kind and the hint of the protocol.
func explain(err error) error {
	var p *protocol.Error
	var e *refusal
	var lost *lostError
	switch {
	case err == nil || errors.As(err, &p) || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &e):
		kind, hint := e.kind()
		return &protocol.Error{Kind: kind, Message: lower(err.Error()), Hint: hint}
	}
	if errors.As(err, &lost) {
		return lost.told()
	}
	return &protocol.Error{Kind: protocol.Unreachable, Message: lower(err.Error()),
		Hint: "does the service answer? see https://status.app.daytona.io, and DAYTONA_API_URL, HTTPS_PROXY"}
}

func lower(s string) string { return strings.TrimRight(s, ".") }

// kind is of the status, and of what the text of a 400 tells: the service says
// much by it.
func (e *refusal) kind() (protocol.Kind, string) {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(strings.ToLower(e.message), p) })
	}
	switch full := has("limit exceeded", "quota", "no available runners"); {
	case has("exceeds maximum") && e.status < 500:
		return protocol.Input, "ask for less: --cpus, --memory, --disk. " +
			"Daytona gives a sandbox 4 CPUs, 8GiB of memory and 10GiB of disk, if the organization has no other bounds"
	case full && (e.status == http.StatusForbidden || e.status == http.StatusBadRequest):
		return protocol.Quota, "stop or delete what is not needed (berth env ls, berth env gc), or raise the tier in Daytona's dashboard"
	case notStarted(e):
		return protocol.Gone, "the next command starts it again"
	case e.status == http.StatusBadRequest && has("not in valid state", "state change in progress"):
		return protocol.Conflict, "something else changes it just now: try again"
	case e.status == http.StatusTooManyRequests && e.wait > 0:
		return protocol.Rate, fmt.Sprintf("Daytona wants to be left alone for %v: try again then, and start fewer environments at once",
			e.wait.Round(time.Second))
	case e.status == http.StatusNotFound && has("snapshot"):
		return protocol.NotFound, "see Snapshots in Daytona's dashboard, and workspace_template in the configuration: berth config show"
	case e.status >= 500:
		return protocol.Unreachable, "the service has trouble: try again later, see https://status.app.daytona.io"
	}
	if a, known := answers[e.status]; known && !e.noRoute() {
		return a.kind, a.hint
	}
	return protocol.Changed, "is DAYTONA_API_URL the address of a Daytona, which mostly ends in /api? Then the service has changed: look for a newer berth"
}

// answers are what a status means where its text says no more.
var answers = map[int]struct {
	kind protocol.Kind
	hint string
}{
	http.StatusBadRequest:   {protocol.Input, ""},
	http.StatusUnauthorized: {protocol.Auth, "the key is not accepted: make one in Daytona's dashboard (Keys), then: export DAYTONA_API_KEY=dtn_..."},
	http.StatusForbidden: {protocol.Auth, "the key needs the permissions write:sandboxes and delete:sandboxes, " +
		"and its organization the region: see Keys in Daytona's dashboard"},
	http.StatusNotFound:            {protocol.NotFound, "look at what there is in Daytona's dashboard"},
	http.StatusRequestTimeout:      {protocol.Unclear, "it took too long, and may have been done"},
	http.StatusConflict:            {protocol.Conflict, "something else changes it just now, or has its name: try again, or look in Daytona's dashboard"},
	http.StatusGone:                {protocol.Gone, "the next command opens it again"},
	http.StatusUnprocessableEntity: {protocol.Unsupported, "this class of sandbox cannot do that"},
	http.StatusTooManyRequests:     {protocol.Rate, "try again in a few minutes, and start fewer environments at once"},
}
