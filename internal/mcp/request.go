package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// A Request is a submission that waits for a person. Its id follows from its key, so that
// the same call finds the same one.
type Request struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Key     string `json:"key"`  // the client's idempotency key
	File    string `json:"file"` // the absolute path of the task file, or where one of this text would be
	Given   bool   `json:"given,omitempty"`
	Text    string `json:"text"`             // the task file
	Client  string `json:"client,omitempty"` // what the client calls itself
	Host    string `json:"host"`
	// Created is when it was asked for.
	Created time.Time `json:"created"`
	Answer  *Answer   `json:"-"` // nil is that it waits
}

// An Answer is what a person has said to a request.
type Answer struct {
	Version   int       `json:"version"`
	Confirmed bool      `json:"confirmed"`
	Way       string    `json:"way"` // how it was asked: "terminal", "client" or "configuration"
	By        string    `json:"by"`
	Host      string    `json:"host"`
	Time      time.Time `json:"time"`
	Shown     string    `json:"shown,omitempty"` // the SHA-256 of what was shown
}

const (
	requestPrefix = "req-"
	// mostTask is the longest text of a task file that is taken, in bytes.
	mostTask = 1 << 20
	// mostWaiting bounds the requests that wait: a model that asks without an end fills no disk.
	mostWaiting = 100
	// waits is how long a request can be confirmed, and kept is how long it is recorded.
	waits = 24 * time.Hour
	kept  = 30 * 24 * time.Hour

	fileRequest = "request.json"
	fileAnswer  = "answer.json"
)

// Requests are those in a state directory.
type Requests struct {
	dir string
	now func() time.Time
}

// RequestsIn returns the requests of the state directory home.
func RequestsIn(home string, now func() time.Time) *Requests {
	return &Requests{dir: filepath.Join(home, "mcp", "requests"), now: now}
}

// requestID is made of the client's key.
func requestID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return requestPrefix + hex.EncodeToString(sum[:6])
}

// isRequest reports whether a word is the id of a request, and not of a job.
func isRequest(word string) bool { return strings.HasPrefix(word, requestPrefix) }

// notRequest is the error for an id that none has.
func notRequest(word string) error {
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no request %q", jobs.Printable(word)),
		Hint: "berth mcp ls lists those that wait"}
}

// Load reads a request by its id.
func (q *Requests) Load(id string) (*Request, error) {
	digits := strings.TrimPrefix(id, requestPrefix)
	if b, err := hex.DecodeString(digits); err != nil || !isRequest(id) || len(b) != 6 || digits != strings.ToLower(digits) {
		return nil, notRequest(id)
	}
	dir := filepath.Join(q.dir, id)
	r := &Request{}
	if err := read(filepath.Join(dir, fileRequest), r); errors.Is(err, fs.ErrNotExist) {
		return nil, notRequest(id)
	} else if err != nil {
		return nil, err
	}
	a := &Answer{}
	if err := read(filepath.Join(dir, fileAnswer), a); err == nil {
		r.Answer = a
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return r, nil
}

func read(path string, into any) error {
	b, err := disk.ReadRegular(path, 8*mostTask) // JSON may write a byte as six
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " is damaged", Err: err,
			Hint: "rm -r " + filepath.Dir(path) + " forgets the request"}
	}
	return nil
}

// Expired reports whether a request has waited for too long to be confirmed.
func (q *Requests) Expired(r *Request) bool { return r.Answer == nil && q.now().Sub(r.Created) > waits }

// late reports whether a yes is too old to count: no job came of it in time.
func (q *Requests) late(r *Request) bool {
	return r.Answer != nil && r.Answer.Confirmed && q.now().Sub(r.Answer.Time) > waits
}

// The states of a request.
const (
	StateWaiting   = "waiting" // for a person
	stateConfirmed = "confirmed"
	stateRefused   = "refused"
	stateExpired   = "expired"
)

// State is how far a request is.
func (q *Requests) State(r *Request) string {
	switch {
	case r.Answer != nil && r.Answer.Confirmed:
		return stateConfirmed
	case r.Answer != nil:
		return stateRefused
	case q.Expired(r):
		return stateExpired
	}
	return StateWaiting
}

// List returns the requests, the oldest first; what cannot be read is in the error.
func (q *Requests) List() ([]*Request, error) {
	entries, err := os.ReadDir(q.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []*Request
	var errs []error
	for _, e := range entries {
		r, err := q.Load(e.Name())
		if err == nil {
			out = append(out, r)
		} else if jobs.KindOf(err) != jobs.KindNotFound {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(out, func(a, b *Request) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out, errors.Join(errs...)
}

// earlier returns the request of the same key that was made before; nil is that there is
// none that counts. Another task under its key is an error.
func (q *Requests) earlier(r *Request) (*Request, error) {
	o, err := q.Load(requestID(r.Key))
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound:
		return nil, nil //nolint:nilnil // there is none, and nothing is wrong
	case err != nil:
		return nil, err
	case q.Expired(o):
		return nil, disk.RemoveTree(filepath.Join(q.dir, o.ID))
	case o.Text != r.Text || o.File != r.File || o.Key != r.Key:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the idempotency key is that of another task, the request " + o.ID,
			Hint: "give another task another key"}
	}
	return o, nil
}

// add records a request, if not too many wait.
func (q *Requests) add(r Request) (*Request, error) {
	all, err := q.List()
	if err != nil {
		return nil, err
	}
	waiting := 0
	for _, o := range all {
		if q.now().Sub(o.Created) > kept {
			if err := disk.RemoveTree(filepath.Join(q.dir, o.ID)); err != nil {
				return nil, err
			}
		} else if q.State(o) == StateWaiting {
			waiting++
		}
	}
	if waiting >= mostWaiting {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("%d requests wait for a person", waiting),
			Hint: "berth mcp ls; berth mcp refuse ID"}
	}
	r.Version, r.ID, r.Created = 1, requestID(r.Key), q.now().UTC()
	r.Host, _ = os.Hostname()
	if err := os.MkdirAll(filepath.Join(q.dir, r.ID), 0o700); err != nil {
		return nil, err
	}
	if err := q.create(r.ID, fileRequest, r); err != nil {
		return nil, err
	}
	return q.earlier(&r) // another call may have been first
}

// create writes a record, if there is none yet.
func (q *Requests) create(id, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if _, err := store.CreateOnce(filepath.Join(q.dir, id, name), append(b, '\n')); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the request " + id, Err: err}
	}
	return nil
}

// AnswerTo records what a person has said. The first answer counts.
func (q *Requests) AnswerTo(r *Request, a Answer) error {
	a.Version, a.Time = 1, q.now().UTC()
	a.Host, _ = os.Hostname()
	if err := q.create(r.ID, fileAnswer, a); err != nil {
		return err
	}
	now, err := q.Load(r.ID)
	if err != nil {
		return err
	}
	if r.Answer = now.Answer; now.Answer == nil || now.Answer.Confirmed != a.Confirmed {
		return answered(now)
	}
	return nil
}

// answered is the error for a request that has its answer.
func answered(r *Request) error {
	word := stateRefused
	if r.Answer != nil && r.Answer.Confirmed {
		word = stateConfirmed
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "the request " + r.ID + " is " + word + " already",
		Hint: "another submission takes another idempotency key"}
}

// Open is the error of a request that cannot be answered any more; nil is that it can.
func (q *Requests) Open(r *Request) error {
	switch {
	case r.Answer != nil:
		return answered(r)
	case q.Expired(r):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the request " + r.ID + " was made more than a day ago", Hint: "have it submitted again"}
	}
	return nil
}

// wait waits until a request has its answer, or ctx ends.
func (q *Requests) wait(ctx context.Context, id string) (*Request, error) {
	for {
		r, err := q.Load(id)
		if err != nil || r.Answer != nil || q.Expired(r) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}
