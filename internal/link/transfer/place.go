package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// place is where a stream goes.
type place struct {
	root *os.Root
	dir  string // its path
	as   string // the top's name in it; "." is the directory itself
}

// resolve finds the place for a stream whose first entry is called top, "."
// for contents.
func resolve(dest, top string, dir bool, o Options) (place, error) {
	contents := top == "."
	fi, err := os.Stat(dest)
	switch {
	case err == nil && fi.IsDir():
		as := top
		if o.Name != "" {
			as = o.Name
		}
		root, err := os.OpenRoot(dest)
		return place{root: root, dir: dest, as: as}, err
	case err == nil && (dir || strings.HasSuffix(dest, "/")):
		return place{}, &fs.PathError{Op: "unpack", Path: dest, Err: syscall.ENOTDIR}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return place{}, err
	case err != nil && (o.Name != "" || strings.HasSuffix(dest, "/") && !dir):
		return place{}, err // a directory was meant, and is not there
	case contents && !dir:
		return place{}, badStream("contents of what is no directory")
	}
	clean := filepath.Clean(dest)
	parent, as := filepath.Dir(clean), filepath.Base(clean)
	if !oneComponent(as) {
		return place{}, &fs.PathError{Op: "unpack", Path: dest, Err: syscall.EINVAL}
	}
	root, err := os.OpenRoot(parent)
	return place{root: root, dir: parent, as: as}, err
}

// below returns where an entry of the stream goes, relative to the place's
// root. There is one top, and everything is below it.
func (p place) below(top, name string) (string, error) {
	switch {
	case top == ".":
		return path.Join(p.as, name), nil
	case name == top:
		return p.as, nil
	case strings.HasPrefix(name, top+"/"):
		return p.as + name[len(top):], nil
	}
	return "", badStream("name %q is not below %q", shorten(name), shorten(top))
}
