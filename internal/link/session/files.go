package session

import (
	"context"
	"io"
	"io/fs"

	"berth/internal/link/wire"
	"berth/jobs"
)

// These are what files are described, and asked for, by.
type (
	// FileInfo is a file or directory.
	FileInfo = jobs.FileInfo
	// Content is what of a file was read or written.
	Content = jobs.FileContent
	// WriteOptions are how a file is written.
	WriteOptions = jobs.WriteOptions
	// Edit replaces a text.
	Edit = jobs.FileEdit
	// ListOptions say what is listed.
	ListOptions = jobs.ListOptions
	// Listing is what a directory holds.
	Listing = jobs.FileListing
	// Query says what to search for.
	Query = jobs.FileQuery
	// Match is a line that was found.
	Match = jobs.FileMatch
	// Found is what a search has found.
	Found = jobs.FilesFound
	// Copied is what was copied.
	Copied = jobs.Copied
)

// Stat describes what is at path. Here and below, a path is absolute, begins
// with ~/, or is relative to the directory of the session named sess; an error
// about a file is a [jobs.Error] around a [*FileError], and an operation whose
// context ends is given up.
func (s *Session) Stat(ctx context.Context, sess, path string) (FileInfo, error) {
	res, err := s.file(ctx, sess, wire.FileRequest{Op: wire.FileStat, Path: wire.Text(path)}, nil, nil)
	if err != nil {
		return FileInfo{}, err
	}
	return infoOf(res.Entry), nil
}

// ReadFile writes limit bytes of a file from offset to w; a limit of 0 is
// 1 MiB, a negative offset counts from the end. Bytes may have been written
// when it fails.
func (s *Session) ReadFile(ctx context.Context, sess, path string, offset, limit int64, w io.Writer) (Content, error) {
	res, err := s.file(ctx, sess, wire.FileRequest{Op: wire.FileRead, Path: wire.Text(path), Offset: offset, Limit: limit}, nil, w)
	if err != nil {
		return Content{}, err
	}
	return Content{File: infoOf(res.Entry), Bytes: res.Bytes, More: res.Truncated}, nil
}

// WriteFile makes what r holds the content of a file: all of it or, when
// anything fails, r too, nothing. Through a symbolic link it is the link's
// target that changes.
func (s *Session) WriteFile(ctx context.Context, sess, path string, r io.Reader, o WriteOptions) (Content, error) {
	if r == nil {
		r = eof{}
	}
	res, err := s.file(ctx, sess, wire.FileRequest{
		Op: wire.FileWrite, Path: wire.Text(path), Mode: uint32(o.Mode.Perm()), Parents: o.Parents,
	}, r, nil)
	if err != nil {
		return Content{}, err
	}
	return Content{File: infoOf(res.Entry), Bytes: res.Bytes}, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// infoOf takes what a guest says of a file.
func infoOf(e *wire.FileEntry) FileInfo {
	if e == nil {
		return FileInfo{}
	}
	i := FileInfo{Path: string(e.Path), Type: e.Type, Mode: fs.FileMode(e.Mode) & fs.ModePerm, Size: max(e.Size, 0), Time: e.Time, Target: string(e.Target)}
	switch i.Type {
	case jobs.TypeFile, jobs.TypeDirectory, jobs.TypeSymlink:
	default:
		i.Type = jobs.TypeOther
	}
	return i
}

// file sends a request and waits for its answer.
func (s *Session) file(ctx context.Context, sess string, req wire.FileRequest, r io.Reader, w io.Writer) (*wire.FileResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	in, out := newSource(r), &sink{w: w}
	var stdin io.Reader
	if r != nil {
		stdin = in
	}
	var stdout io.Writer // nothing comes: a pipe would cost more than the operation
	if w != nil {
		stdout = out
	}
	p, err := s.Do(wire.StartMessage{Session: sess, File: &req}, stdin, stdout)
	if err != nil {
		in.begin(nil)
		return nil, err
	}
	in.begin(p)
	select {
	case <-p.done:
	case <-ctx.Done():
		// The other side may hang; it cleans up when it can.
		_ = p.Terminate(0)
		out.shut(context.Cause(ctx))
		p.pipe().close()
		p.in.close()
		return nil, context.Cause(ctx)
	}
	res, err := p.Wait()
	if rerr := in.failed(); rerr != nil {
		return nil, rerr
	}
	if serr := p.notSent(); serr != nil {
		return nil, serr
	}
	if werr := out.failed(); werr != nil {
		return nil, werr
	}
	if err != nil {
		return nil, err
	}
	return answerOf(req, res)
}
