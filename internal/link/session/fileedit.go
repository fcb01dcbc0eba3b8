package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"berth/internal/link/wire"
	"berth/jobs"
)

// editTries is how often an edit is tried: at least one of those that are made
// at the same time succeeds each time.
const editTries = 100

// EditFile replaces a text in a file of at most 16 MiB and returns how many
// times. Of edits at the same time, none is lost.
func (s *Session) EditFile(ctx context.Context, sess, path string, e Edit) (n int, err error) {
	for range editTries {
		if n, err = s.editOnce(ctx, sess, path, e); FileKind(err) != wire.FileChanged {
			return n, err
		}
	}
	return 0, err
}

// editOnce reads the file and replaces it, if its content is still what was read.
func (s *Session) editOnce(ctx context.Context, sess, path string, e Edit) (int, error) {
	var read bytes.Buffer
	got, err := s.ReadFile(ctx, sess, path, 0, wire.MaxReplace, &read)
	if err != nil {
		return 0, err
	}
	old := read.String()
	count, first := strings.Count(old, e.Old), strings.Index(old, e.Old)
	size := int64(len(old)) + int64(count)*int64(len(e.New)-len(e.Old))
	refuse := func(kind, format string, args ...any) (int, error) {
		return 0, newFileError(kind, text(path)+": "+fmt.Sprintf(format, args...))
	}
	switch {
	case e.Old == "" || e.Old == e.New:
		return refuse(wire.FileInvalid, "the text to replace is empty, or the new one is the same")
	case got.More || size > wire.MaxReplace:
		return refuse(wire.FileTooLarge, "it is, or would be, larger than %d MiB, which is the most that is edited", wire.MaxReplace>>20)
	case count == 0:
		return refuse(wire.FileNoMatch, "the text to replace is not in it")
	case !e.All && strings.Contains(old[first+1:], e.Old): // overlapping ones, too: which is meant?
		return refuse(wire.FileAmbiguous, "the text to replace is in it %d times", max(2, count))
	}
	was := sha256.Sum256(read.Bytes())
	req := wire.FileRequest{Op: wire.FileReplace, Path: wire.Text(path), Was: was[:]}
	_, err = s.file(ctx, sess, req, strings.NewReader(strings.ReplaceAll(old, e.Old, e.New)), nil)
	switch {
	case FileKind(err) == wire.FileInvalid: // of a path that was just read: it is the operation that is not known
		return 0, &jobs.Error{Kind: jobs.KindConfig, Msg: "the environment was opened by a version of berth that cannot edit files for this one",
			Hint: "stop it, and it is opened by this one: berth env stop NAME"}
	case err != nil:
		return 0, err
	}
	return count, nil
}
