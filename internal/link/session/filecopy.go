package session

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"
	"berth/jobs"
)

// CopyIn copies a file or directory of this machine to a path inside, as cp -a
// has it, see package transfer. progress, which may be nil, is told how many
// bytes of files have gone out.
func (s *Session) CopyIn(ctx context.Context, sess, local, inside string, progress func(bytes int64)) (Copied, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := newDeparture(func(w io.Writer) packed {
		t, err := transfer.Pack(ctx, w, local, transfer.Options{Progress: progress})
		return packed{t, err}
	})
	res, err := s.file(ctx, sess, wire.FileRequest{Op: wire.FileUnpack, Path: wire.Text(inside)}, d, nil)
	stop(errEnded)
	p := d.end()
	// The guest has the better reason, unless it was this side's.
	if p.err != nil && !errors.Is(p.err, errEnded) && (err == nil || errors.Is(err, p.err)) {
		return Copied{}, localError(p.err)
	}
	if err != nil {
		return Copied{}, err
	}
	return Copied{
		Path: string(res.Path), Entries: p.tally.Entries, Bytes: p.tally.Bytes,
		Incomplete: p.tally.Unreadable > 0 || res.Incomplete, Notes: append(p.tally.Notes(), res.Notes...),
	}, nil
}

// errEnded is a stream whose other side has ended first.
var errEnded = errors.New("the other side has ended")

// CopyOut copies a file or directory inside to a path of this machine, as cp -a
// has it, see package transfer. What comes out is taken for hostile: nothing
// but the destination changes. progress, which may be nil, is told how many
// bytes of files have come in.
func (s *Session) CopyOut(ctx context.Context, sess, inside, local string, progress func(bytes int64)) (Copied, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := newArrival(func(r io.Reader) unpacked {
		t, at, err := transfer.Unpack(ctx, r, local, transfer.Options{Progress: progress})
		return unpacked{t, at, err}
	}, stop)
	res, err := s.file(ctx, sess, wire.FileRequest{Op: wire.FilePack, Path: wire.Text(inside)}, nil, a)
	if err != nil {
		stop(errEnded)
	}
	u := a.end(err)
	// This side's own failure, if it came first, also when the guest's answer to it, a
	// broken pipe, is here before the cancellation was seen.
	if u.err != nil && !errors.Is(u.err, errEnded) && (err == nil || errors.Is(err, u.err) || errors.Is(context.Cause(ctx), u.err)) {
		return Copied{}, localError(u.err)
	}
	if err != nil {
		return Copied{}, err
	}
	notes := append(textsOf(res.Notes), u.tally.Notes()...)
	return Copied{Path: u.at, Entries: u.tally.Entries, Bytes: u.tally.Bytes, Incomplete: res.Incomplete || u.tally.Unreadable > 0, Notes: notes}, nil
}

// localError classifies an error about a file of this machine.
func localError(err error) error {
	kind := jobs.KindInfra
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, transfer.ErrStream):
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "what came out of the environment cannot be unpacked", Err: err}
	case errors.Is(err, fs.ErrNotExist):
		kind = jobs.KindNotFound
	case isUsage(err):
		kind = jobs.KindUsage
	}
	return &jobs.Error{Kind: kind, Msg: "on this machine", Err: err}
}
