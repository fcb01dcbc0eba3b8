package provider

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"berth/backends/external/protocol"
)

// The verbs that not every provider has.

func missing(what string) error {
	return &protocol.Error{Kind: protocol.Unsupported, Message: "this service has no " + what}
}

// destroy removes a snapshot where one is named, else the sandbox.
func destroy(ctx context.Context, p Provider, r *protocol.Request, say Progress) error {
	if r.Snapshot == "" {
		return p.Destroy(ctx, r, say)
	}
	if s, ok := p.(Snapshotter); ok {
		return s.Forget(ctx, r, say)
	}
	return missing("snapshots")
}

// keep answers snapshot and restore.
func keep(ctx context.Context, p Provider, r *protocol.Request, say Progress) (any, error) {
	s, ok := p.(Snapshotter)
	switch {
	case !ok:
		return nil, missing("snapshots")
	case r.Snapshot == "":
		return nil, protocol.Errorf(protocol.Internal, "the request names no snapshot")
	case r.Verb == protocol.VerbRestore:
		return s.Restore(ctx, r, say)
	}
	made, err := s.Snapshot(ctx, r, say)
	if err != nil {
		return nil, err
	}
	return protocol.Snapshotted{Snapshot: *made}, nil
}

// exec runs a command. Its output is lines, and its exit code is no matter of
// this program's own.
func (a *answerer) exec(ctx context.Context, p Provider, r *protocol.Request, stdin io.Reader) int {
	e, ok := p.(Execer)
	if !ok {
		return a.fail(missing("commands of their own"))
	}
	out := &lines{w: a.w}
	exit, err := e.Exec(ctx, r, func() (io.Reader, io.Writer, io.Writer) {
		a.ok(struct{}{})
		return stdin, stream{out, false}, stream{out, true}
	})
	if err == nil && !a.answered() {
		err = protocol.Errorf(protocol.Internal, "the program has a defect: its command ended before it began")
	}
	if err == nil {
		err = out.line(protocol.ExecLine{Exit: &exit})
	}
	if err != nil {
		return a.fail(err)
	}
	return 0
}

// lines writes those of an exec, each whole.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) line(x protocol.ExecLine) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(b, '\n'))
	return err
}

// piece is how much of an output goes into a line at most, before its base64.
const piece = 256 << 10

// stream is standard output, or standard error.
type stream struct {
	to  *lines
	err bool
}

func (s stream) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), piece)]
		x := protocol.ExecLine{Stdout: part}
		if s.err {
			x = protocol.ExecLine{Stderr: part}
		}
		if err := s.to.line(x); err != nil {
			return n, err
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}
