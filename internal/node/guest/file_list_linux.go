package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// Limits of listings and of the answers that hold them.
const (
	listLimit = 1000
	listDepth = 100
	// answerLimit is how much of an answer its entries or matches may be; it
	// leaves room below wire.MaxMessage.
	answerLimit = 3 << 20
)

// answer counts what the elements of an answer need.
type answer struct {
	left int64 // elements
	room int   // bytes
}

// takes tells whether one more element fits in.
func (a *answer) takes(v any) bool {
	b, err := json.Marshal(v)
	if err != nil || a.left <= 0 || len(b)+1 > a.room {
		return false
	}
	a.left--
	a.room -= len(b) + 1
	return true
}

// lister goes through directories, in the order of their names.
type lister struct {
	o          *fileOp
	answer     answer
	filter     nameFilter
	res        *wire.FileResult
	unreadable int
}

func (o *fileOp) list(path string) (*wire.FileResult, error) {
	l := &lister{o: o, answer: answer{left: o.req.Limit, room: answerLimit}, res: &wire.FileResult{}}
	if l.answer.left <= 0 {
		l.answer.left = listLimit
	}
	var err error
	if l.filter, err = newNameFilter(string(o.req.Glob)); err != nil {
		return nil, refuse(wire.FileInvalid, "the pattern for names: %v", err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "list", Path: path, Err: unix.ENOTDIR}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	err = l.directory(root, "", min(max(o.req.Depth, 1), listDepth))
	if errors.Is(err, errFull) {
		l.res.Truncated, err = true, nil
	}
	l.res.Notes = unreadableNote(l.unreadable)
	l.res.Incomplete = l.unreadable > 0
	return l.res, err
}

func unreadableNote(n int) []string {
	switch n {
	case 0:
		return nil
	case 1:
		return []string{"one file or directory could not be read"}
	}
	return []string{fmt.Sprintf("%d files or directories could not be read", n)}
}

// errFull is an answer that takes no more.
var errFull = errors.New("that is enough")

// directory lists one directory. Only its caller's first error is an error.
func (l *lister) directory(root *os.Root, at string, depth int) error {
	names, more, err := sortedNames(l.o, root, l.most(depth))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.o.aborted(); err != nil {
			return err
		}
		if err := l.entry(root, name, at+name, depth); err != nil {
			return err
		}
	}
	if more {
		return errFull
	}
	return nil
}

// most is how many names of a directory can matter.
func (l *lister) most(depth int) int {
	if l.filter.re != nil || depth > 1 || l.answer.left > 1<<20 {
		return 1 << 20
	}
	return int(l.answer.left)
}

func (l *lister) entry(root *os.Root, name, path string, depth int) error {
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		l.unreadable++
		return nil
	}
	if l.filter.takes(path) {
		e := entryOf(path, fi)
		if e.Type == "symlink" {
			to, _ := root.Readlink(name)
			e.Target = wire.Text(to)
		}
		if !l.answer.takes(e) {
			return errFull
		}
		l.res.Entries = append(l.res.Entries, *e)
	}
	if depth <= 1 || !fi.IsDir() {
		return nil
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		l.unreadable++
		return nil
	}
	defer func() { _ = sub.Close() }()
	return l.directory(sub, path+"/", depth-1)
}

// sortedNames returns the first names of a directory in their order, and
// whether there are more. Its memory is bounded by most, and not by the
// directory.
func sortedNames(o *fileOp, root *os.Root, most int) (names []string, more bool, err error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	for {
		batch, err := f.Readdirnames(1024)
		names = append(names, batch...)
		done := errors.Is(err, io.EOF)
		if err != nil && !done {
			return nil, false, err
		}
		if done || len(names) > 2*most+4096 {
			slices.Sort(names)
			if len(names) > most {
				names, more = names[:most], true
			}
		}
		if done {
			return names, more, nil
		}
		if err := o.aborted(); err != nil {
			return nil, false, err
		}
	}
}
