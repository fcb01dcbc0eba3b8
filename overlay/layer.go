package overlay

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// entry is one name in the upper directory of a layer.
type entry struct {
	path  string // below the root of the container, "" is the root itself
	mode  uint32 // st_mode
	uid   int    // as in a container with --fakeroot: this user's is 0
	gid   int
	size  int64
	mtime int64 // nanoseconds since 1970
	rdev  uint64
	ino   uint64 // tells hard links, where nlink is above 1
	nlink uint64
	link  string // of a symbolic link
	// whiteout says that path is deleted; then nothing else of this counts.
	whiteout bool
	// opaque directories hide what the image has in them; opaqueBy is whose mark
	// says so: "overlay", "fuseoverlayfs" or "file".
	opaque   bool
	opaqueBy string
}

func (e *entry) isDir() bool { return e.mode&unix.S_IFMT == unix.S_IFDIR }

// ownPlace is where berth's own things are bound in a container.
const ownPlace = ".berth"

func (e *entry) isOwn() bool { return e.path == ownPlace || strings.HasPrefix(e.path, ownPlace+"/") }

// layerReader reads the upper directory of a layer that no process changes.
type layerReader interface {
	// walk gives do all entries but the root, a directory before what is in it,
	// in the order of their names.
	walk(do func(*entry) error) error
	open(e *entry) (io.ReadCloser, error)
	xattrs(e *entry) (map[string]string, error)
	close()
}

// dirLister lists the directories of a layer as they stand there.
type dirLister interface {
	list(dir *entry) ([]*entry, error)
	xattrs(e *entry) (map[string]string, error)
}

// walkIn gives do what is in a directory, see [layerReader]; byName is as for
// [settleNames].
func walkIn(l dirLister, dir *entry, byName bool, do func(*entry) error) error {
	entries, err := l.list(dir)
	if err != nil {
		return err
	}
	if dir.path != "" {
		x, err := l.xattrs(dir)
		if err != nil {
			return err
		}
		if err := dir.settleMarks(x, entries, l.xattrs); err != nil {
			return err
		}
		if !byName && dir.opaqueBy == "file" {
			dir.opaque, dir.opaqueBy = false, ""
		}
		if err := do(dir); err != nil {
			return err
		}
	}
	for _, e := range settleNames(entries, byName) {
		if !e.whiteout && e.isDir() {
			err = walkIn(l, e, byName, do)
		} else {
			err = do(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openLayer reads the layer of a driver.
func openLayer(driver, layer string) (layerReader, error) {
	if driver == jobs.DriverExt3 {
		return openExt3(layer)
	}
	root, err := os.OpenRoot(filepath.Join(layer, "upper"))
	if err != nil {
		return nil, err
	}
	return &upperDir{root: root, at: root.Name(), byName: driver != jobs.DriverKernel, ids: run.InsideIDs()}, nil
}

// Whiteouts and opaque marks as files (the FUSE driver where it cannot make
// device nodes; the form of the OCI image specification).
const (
	prefixWhiteout = ".wh."
	fileOpaque     = ".wh..wh..opq"
)

// opaqueMarks are the extended attributes of opaque directories, with whose
// they are: the kernel's overlayfs (with and without userxattr) and
// the FUSE driver's.
var opaqueMarks = []struct{ name, by string }{
	{"user.fuseoverlayfs.opaque", "fuseoverlayfs"}, {"user.overlay.opaque", "overlay"}, {"trusted.overlay.opaque", "overlay"},
}

// Marks of the kernel's overlayfs that berth's own mounts never write, by what
// follows "trusted." or "user.": "overlay.opaque" is "x" where empty files with
// the second are whiteouts; a directory with the third was renamed and shows
// another one of the image; a file with the fourth has its content there (the
// kernel's documentation of overlayfs).
const (
	opaqueFiles  = "x"
	markWhiteout = "overlay.whiteout"
	markRedirect = "overlay.redirect"
	markMetacopy = "overlay.metacopy"
)

func isMark(name, mark string) bool { return name == "user."+mark || name == "trusted."+mark }

// settleMarks finds out what a directory's extended attributes and what is in
// it make of it. attr reads the attributes of what is in it.
func (e *entry) settleMarks(x map[string]string, in []*entry, attr func(*entry) (map[string]string, error)) error {
	for _, m := range opaqueMarks {
		if x[m.name] == "y" {
			e.opaque, e.opaqueBy = true, m.by
			break
		}
	}
	if x["user.overlay.opaque"] == opaqueFiles || x["trusted.overlay.opaque"] == opaqueFiles {
		for _, f := range in {
			if f.mode&unix.S_IFMT != unix.S_IFREG || f.size != 0 {
				continue
			}
			of, err := attr(f)
			if err != nil {
				return err
			}
			for name := range of {
				f.whiteout = f.whiteout || isMark(name, markWhiteout)
			}
		}
	}
	for name, to := range x {
		if isMark(name, markRedirect) || name == "user.fuseoverlayfs.redirect" {
			return foreignMark(e.path, fmt.Sprintf("was renamed by an overlayfs with redirect_dir, and shows the image's %q", to))
		}
	}
	if !e.opaque && slices.ContainsFunc(in, (*entry).marksOpaque) {
		e.opaque, e.opaqueBy = true, "file"
	}
	return nil
}

// foreignMark is the error for what was written with options that berth's
// mounts do not have.
func foreignMark(p, what string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "/" + p + " " + what,
		Hint: "in a container with this overlay copy it to a new name (cp -a), remove it, and give the copy its name"}
}

func (e *entry) marksOpaque() bool {
	name := path.Base(e.path)
	return name == fileOpaque || name == prefixWhiteout+".opq"
}

// settleNames makes whiteouts of what are marks. entries are all of one
// directory; files are marks by their names unless the driver is the kernel's.
func settleNames(entries []*entry, byName bool) []*entry {
	kept := entries[:0]
	for _, e := range entries {
		if byName && e.marksOpaque() {
			continue
		}
		dir, name := path.Split(e.path)
		switch {
		case byName && strings.HasPrefix(name, prefixWhiteout) && len(name) > len(prefixWhiteout):
			e.path, e.whiteout = dir+name[len(prefixWhiteout):], true
		case e.mode&unix.S_IFMT == unix.S_IFCHR && e.rdev == 0:
			e.whiteout = true
		}
		kept = append(kept, e)
	}
	slices.SortFunc(kept, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	return kept
}

// upperDir is the upper directory of the drivers fuse and kernel.
type upperDir struct {
	root   *os.Root
	at     string
	byName bool // see [settleNames]
	ids    func(uid, gid int) (int, int)
}

func (l *upperDir) close() { _ = l.root.Close() }

func (l *upperDir) walk(do func(*entry) error) error {
	return walkIn(l, &entry{}, l.byName, do)
}

// list reads one directory.
func (l *upperDir) list(dir *entry) (out []*entry, err error) {
	f, err := l.root.OpenFile(path.Join(".", dir.path), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(int(f.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: path.Join(l.at, dir.path, n), Err: err}
		}
		e := &entry{path: path.Join(dir.path, n), size: st.Size, mtime: st.Mtim.Nano(), ino: st.Ino}
		e.uid, e.gid = l.ids(int(st.Uid), int(st.Gid))
		e.mode, e.rdev, e.nlink = uint32(st.Mode), uint64(st.Rdev), uint64(st.Nlink) //nolint:unconvert // other types elsewhere
		if e.mode&unix.S_IFMT == unix.S_IFLNK {
			if e.link, err = l.root.Readlink(e.path); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	return out, nil
}

func (l *upperDir) open(e *entry) (io.ReadCloser, error) {
	return l.root.OpenFile(e.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

func (l *upperDir) xattrs(e *entry) (map[string]string, error) {
	p := l.at + "/" + e.path
	n, err := unix.Llistxattr(p, nil)
	if err != nil || n == 0 {
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			err = nil
		}
		return nil, err
	}
	buf := make([]byte, n)
	if n, err = unix.Llistxattr(p, buf); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		out[name] = lgetxattr(p, name)
	}
	return out, nil
}

// lgetxattr returns one attribute, or "".
func lgetxattr(p, name string) string {
	var small [256]byte
	n, err := unix.Lgetxattr(p, name, small[:])
	if errors.Is(err, unix.ERANGE) {
		if n, err = unix.Lgetxattr(p, name, nil); err == nil {
			big := make([]byte, n)
			if n, err = unix.Lgetxattr(p, name, big); err == nil {
				return string(big[:n])
			}
		}
	}
	if err != nil {
		return ""
	}
	return string(small[:n])
}
