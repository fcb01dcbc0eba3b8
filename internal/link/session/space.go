package session

import (
	"context"
	"fmt"

	"berth/internal/link/wire"
	"berth/jobs"
)

// Space is what statfs(2) says of a file system.
type Space struct {
	Size, Free       int64 // in bytes; free for this user
	Files, FreeFiles int64 // inodes; both 0 where they are not counted
}

// Space tells how full the file system of a path inside is.
func (s *Session) Space(ctx context.Context, path string) (Space, error) {
	res, err := s.file(ctx, "", wire.FileRequest{Op: wire.FileSpace, Path: wire.Text(path)}, nil, nil)
	if err != nil || res.Space == nil {
		return Space{}, err
	}
	return Space(*res.Space), nil
}

// Below so much a file system is full: programs write in blocks, and clean up
// what they could not write whole.
const (
	fullLeast = jobs.MiB
	fullMost  = 16 * jobs.MiB
	fullShare = 128 // of all, the part that is as good as nothing
	fullFiles = 16
)

// Full tells what there is no more of, for people, or "".
func (s Space) Full() string {
	switch {
	case s.Size > 0 && s.Free < min(int64(fullMost), max(int64(fullLeast), s.Size/fullShare)):
		return fmt.Sprintf("is full (%s of %s free)", jobs.Bytes(max(s.Free, 0)>>20<<20), jobs.Bytes(s.Size>>20<<20))
	case s.Files > 0 && s.FreeFiles < fullFiles:
		return fmt.Sprintf("holds as many files as it can (%d)", s.Files)
	}
	return ""
}
