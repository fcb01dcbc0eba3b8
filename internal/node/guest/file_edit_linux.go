package guest

import (
	"bytes"
	"errors"
	"io"
	"os"

	"berth/internal/link/wire"
)

// editLimit is the size of the largest file that is edited, before and after.
const editLimit = 16 << 20

// errChanged is a file that somebody else has written during an edit.
var errChanged = errors.New("something else changes it at the same time")

func (o *fileOp) edit(path string) (*wire.FileResult, error) {
	if o.req.Old == "" {
		return nil, refuse(wire.FileInvalid, "the text to replace is empty")
	}
	if o.req.Old == o.req.New {
		return nil, refuse(wire.FileInvalid, "the text to replace and the new one are the same")
	}
	release, err := o.weigh()
	if err != nil {
		return nil, err
	}
	defer release()
	target, err := leadsTo(path)
	if err != nil {
		return nil, err
	}
	defer lockFile(target)()
	for range 5 {
		var res *wire.FileResult
		if res, err = o.editOnce(path, target); !errors.Is(err, errChanged) {
			return res, err
		}
	}
	return nil, err
}

// editOnce fails with errChanged when the file is another one in the end than
// in the beginning.
func (o *fileOp) editOnce(path, target string) (*wire.FileResult, error) {
	f, before, err := openRegular(target)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, editLimit+1))
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	if len(text) > editLimit {
		return nil, refuse(wire.FileTooLarge, "%s: larger than %d MiB, which is the most that is edited", quoted(path), editLimit>>20)
	}
	text, count, err := o.replace(path, text)
	if err != nil {
		return nil, err
	}
	n, err := beginFile(target)
	if err != nil {
		return nil, err
	}
	defer n.discard()
	if _, err := n.f.Write(text); err != nil {
		return nil, namedBy(path, err)
	}
	if err := o.aborted(); err != nil {
		return nil, err
	}
	now, err := os.Lstat(target)
	if err != nil || !os.SameFile(now, before) || now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
		return nil, errChanged
	}
	fi, err := n.commit(o.req.Mode)
	if err != nil {
		return nil, namedBy(path, err)
	}
	return &wire.FileResult{Entry: entryOf(shownPath(path), fi), Count: count, Bytes: int64(len(text))}, nil
}

// replace does the edit in memory.
func (o *fileOp) replace(path string, text []byte) (out []byte, count int, err error) {
	old, fresh := []byte(o.req.Old), []byte(o.req.New)
	first := bytes.Index(text, old)
	if first < 0 {
		return nil, 0, refuse(wire.FileNoMatch, "%s: the text to replace is not in it", quoted(path))
	}
	count = 1
	switch {
	case o.req.All:
		count = bytes.Count(text, old)
	case bytes.Contains(text[first+1:], old): // overlapping ones, too: which is meant?
		return nil, 0, refuse(wire.FileAmbiguous, "%s: the text to replace is in it %d times", quoted(path), max(2, bytes.Count(text, old)))
	}
	if size := int64(len(text)) + int64(count)*int64(len(fresh)-len(old)); size > editLimit {
		return nil, 0, refuse(wire.FileTooLarge, "%s: it would have %d MiB, and %d are the most that is edited", quoted(path), size>>20, editLimit>>20)
	}
	return bytes.Replace(text, old, fresh, count), count, nil
}
