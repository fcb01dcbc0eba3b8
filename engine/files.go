package engine

import (
	"context"
	"io"

	"berth/internal/link/session"
	"berth/jobs"
)

// ask does something in the conversation with the keeper, and once more what
// came too late for it.
func ask[T any](ctx context.Context, v *Environment, do func(*session.Session) (T, error)) (out T, err error) {
	err = v.again(ctx, false, func(link *session.Session) (err error) {
		out, err = do(link)
		return err
	})
	return out, err
}

// Stat describes what is at path inside. Here and below, a path is absolute,
// begins with ~/, or is relative to the session's directory.
func (s *Session) Stat(ctx context.Context, path string) (jobs.FileInfo, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.FileInfo, error) {
		return link.Stat(ctx, s.name, path)
	})
}

// ReadFile writes limit bytes of a file from offset to w; a limit of 0 is
// 1 MiB, a negative offset counts from the end.
func (s *Session) ReadFile(ctx context.Context, path string, offset, limit int64, w io.Writer) (jobs.FileContent, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.FileContent, error) {
		return link.ReadFile(ctx, s.name, path, offset, limit, w)
	})
}

// WriteFile makes what r holds the content of a file: all of it or nothing. It
// is asked once: r may have been read.
func (s *Session) WriteFile(ctx context.Context, path string, r io.Reader, o jobs.WriteOptions) (jobs.FileContent, error) {
	link, err := s.env.open(ctx, false)
	if err != nil {
		return jobs.FileContent{}, err
	}
	return link.WriteFile(ctx, s.name, path, r, o)
}

// EditFile replaces a text in a file and returns how many times: it reads the
// file and replaces it as a whole, if nothing else has changed it meanwhile.
func (s *Session) EditFile(ctx context.Context, path string, e jobs.FileEdit) (int, error) {
	return ask(ctx, s.env, func(link *session.Session) (int, error) {
		return link.EditFile(ctx, s.name, path, e)
	})
}

// List lists a directory, with find(1) and stat(1) of the environment.
func (s *Session) List(ctx context.Context, path string, o jobs.ListOptions) (jobs.FileListing, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.FileListing, error) {
		return link.List(ctx, s.name, path, o)
	})
}

// Search searches a file, or all files below a directory, with find(1) and
// grep(1) of the environment.
func (s *Session) Search(ctx context.Context, path string, q jobs.FileQuery) (jobs.FilesFound, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.FilesFound, error) {
		return link.Search(ctx, s.name, path, q)
	})
}

// CopyIn copies a file or directory of this machine into the environment; the
// result says what was left out.
func (s *Session) CopyIn(ctx context.Context, local, inside string, progress func(bytes int64)) (jobs.Copied, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.Copied, error) {
		return link.CopyIn(ctx, s.name, local, inside, progress)
	})
}

// CopyOut copies a file or directory out of the environment.
func (s *Session) CopyOut(ctx context.Context, inside, local string, progress func(bytes int64)) (jobs.Copied, error) {
	return ask(ctx, s.env, func(link *session.Session) (jobs.Copied, error) {
		return link.CopyOut(ctx, s.name, inside, local, progress)
	})
}
