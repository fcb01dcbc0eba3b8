package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"
)

// refusal is an error whose kind is known where it happens.
type refusal struct{ kind, text string }

func (r *refusal) Error() string { return r.text }

func refuse(kind, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

// troubleOf is the answer of an operation that failed.
func troubleOf(path string, err error) *wire.FileResult {
	return &wire.FileResult{Kind: kindOf(err), Error: sentence(path, err)}
}

// fileKinds says which errors have which kind; the first that fits counts.
var fileKinds = []struct {
	kind string
	errs []error
}{
	{wire.FileNotFound, []error{fs.ErrNotExist}},
	{wire.FileIsDir, []error{syscall.EISDIR}},
	{wire.FileNotDir, []error{syscall.ENOTDIR}},
	{wire.FilePermission, []error{fs.ErrPermission, syscall.EROFS}},
	{wire.FileNoSpace, []error{syscall.ENOSPC, syscall.EDQUOT}},
	{wire.FileExists, []error{fs.ErrExist}},
	{wire.FileTooLarge, []error{syscall.EFBIG}},
	{wire.FileNotRegular, []error{transfer.ErrSpecial, syscall.ENXIO}},
	{wire.FileInvalid, []error{transfer.ErrStream, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP}},
}

func kindOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.kind
	}
	for _, k := range fileKinds {
		for _, e := range k.errs {
			if errors.Is(err, e) {
				return k.kind
			}
		}
	}
	return wire.FileFailed
}

// sentence says what happened to which path.
func sentence(path string, err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.text
	}
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		if strings.HasPrefix(p.Path, "/") {
			path = p.Path
		}
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	return quoted(path) + ": " + err.Error()
}

// quoted makes a path one that a line of text can hold.
func quoted(path string) string {
	path = shownPath(path)
	if q := strconv.Quote(path); q != `"`+path+`"` {
		return q
	}
	return path
}
