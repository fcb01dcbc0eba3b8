package guest

import (
	"io"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"
)

// pack sends a tree.
func (o *fileOp) pack(path string) (*wire.FileResult, error) {
	t, err := transfer.Pack(o.ctx, o.stdout, path, transfer.Options{Name: string(o.req.Name)})
	return tallied(t, path, err)
}

// unpack receives a tree.
func (o *fileOp) unpack(path string, in io.Reader) (*wire.FileResult, error) {
	t, at, err := transfer.Unpack(o.ctx, in, path, transfer.Options{Name: string(o.req.Name)})
	return tallied(t, at, err)
}

func tallied(t transfer.Tally, path string, err error) (*wire.FileResult, error) {
	if err != nil {
		return nil, err
	}
	return &wire.FileResult{
		Path: wire.Text(shownPath(path)), Count: int(t.Entries), Bytes: t.Bytes, Notes: t.Notes(), Incomplete: t.Unreadable > 0,
	}, nil
}
