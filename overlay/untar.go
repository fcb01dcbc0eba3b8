package overlay

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// How a tar is unpacked: over the files of an image, from which what is marked
// as deleted is removed; else as the upper directory of a layer of a driver, or
// of the one that the tar tells of.
const (
	unpackApply = "apply"
	unpackAuto  = "auto"
)

// unpacked is what a tar has said and become.
type unpacked struct {
	Mark   *tarMark
	Hard   bool // there are files that their owner may not read
	Others int  // files that belonged to others and are this user's now
}

// maxHoles bounds what the files of a tar have more in size than the tar has:
// holes are read as zeros, at some GiB in a second.
const maxHoles = int64(1) << 40

// unpacker puts the content of a tar into a directory, out of which no name in
// it leads.
type unpacker struct {
	unpacked
	root  *os.Root
	size  int64 // of all files
	come  int64 // bytes that have come
	how   string
	apply bool
	own   bool // ids are set
	first *int // the user of the first file
	dirs  []dirEnd
	// made are the paths of this tar: in a tree that it is applied to, these
	// stay when a directory turns out to be a new one.
	made map[string]bool
}

// dirEnd are a directory's mode and time, which are set when nothing is put
// into it any more.
type dirEnd struct {
	name string
	mode fs.FileMode
	time time.Time
}

type countedReader struct {
	r io.Reader
	n *int64
}

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

func refused(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...), Hint: "look at it: tar -tvf FILE"}
}

// unpackTar unpacks a tar that may be anybody's.
func unpackTar(ctx context.Context, r io.Reader, dir, how string) (unpacked, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unpacked{}, err
	}
	defer root.Close()
	u := &unpacker{root: root, how: how, apply: how == unpackApply, made: map[string]bool{}}
	t := tar.NewReader(countedReader{r, &u.come})
	for {
		if err := ctx.Err(); err != nil {
			return u.unpacked, err
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.unpacked, &jobs.Error{Kind: jobs.KindUsage, Msg: "it is no tar, or one that is cut off", Err: err}
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			u.global(h)
			continue
		}
		if err := u.entry(t, h); err != nil {
			return u.unpacked, err
		}
	}
	for _, d := range slices.Backward(u.dirs) {
		if err := errors.Join(root.Chtimes(d.name, d.time, d.time), root.Chmod(d.name, d.mode)); err != nil {
			return u.unpacked, err
		}
	}
	return u.unpacked, nil
}

// global reads what [Set.Export] says of the overlay.
func (u *unpacker) global(h *tar.Header) {
	text, ok := strings.CutPrefix(h.PAXRecords[paxComment], commentWord)
	if !ok || u.Mark != nil {
		return
	}
	var m tarMark
	if json.Unmarshal([]byte(text), &m) != nil || m.Version > markVersion {
		return
	}
	u.Mark = &m
	if u.how == unpackAuto {
		u.how = m.Driver
	}
	// As root of this machine or of a namespace, ids can be given; which of them
	// an ext3 image is to have is not the same everywhere.
	u.own = m.IDs == idsContainer && os.Geteuid() == 0 && u.how != jobs.DriverExt3
}

func (u *unpacker) entry(content io.Reader, h *tar.Header) error {
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) || strings.Contains(h.Name, "\x00") {
		return refused("the tar has the path %q, which leads out of the overlay", h.Name)
	}
	if u.made[name] && h.Typeflag != tar.TypeDir {
		return refused("the tar has %q twice", h.Name)
	}
	u.size += h.Size
	if h.Size < 0 || h.Size > maxHoles || u.size-u.come > maxHoles {
		return refused("the tar has %q with a size of %s, and is much smaller itself", h.Name, jobs.Bytes(h.Size))
	}
	if err := u.place(content, h, name); err != nil {
		return fmt.Errorf("%q: %w", h.Name, err)
	}
	u.made[name] = true
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, dirEnd{name, mode, h.ModTime})
		u.Hard = u.Hard || mode.Perm()&0o500 != 0o500
	case tar.TypeReg:
		u.Hard = u.Hard || mode.Perm()&0o400 == 0
	}
	return nil
}

// place makes one entry of a tar.
func (u *unpacker) place(content io.Reader, h *tar.Header, name string) error {
	root, mode := u.root, h.FileInfo().Mode()
	if err := u.way(name, h.Typeflag); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(h, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = copyHoles(f, content, h.Size)
		if err == nil {
			err = u.owner(name, h)
		}
		if err == nil {
			err = u.setXattrs(f, name, h)
		}
		err = errors.Join(err, f.Close())
		if err == nil { // the mode last: a new owner ends setuid
			err = errors.Join(root.Chtimes(name, h.ModTime, h.ModTime), root.Chmod(name, mode))
		}
		return err
	case tar.TypeSymlink:
		if err := root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return errors.Join(u.owner(name, h), setLinkTime(root, name, h.ModTime))
	case tar.TypeLink:
		to := path.Clean(h.Linkname)
		if !filepath.IsLocal(to) {
			return refused("it is a link to %q, which leads out of the overlay", h.Linkname)
		}
		if !u.made[to] {
			return refused("it is a link to %q, which the tar does not have before it", h.Linkname)
		}
		return root.Link(to, name)
	case tar.TypeChar:
		switch {
		case h.Devmajor != 0 || h.Devminor != 0:
			return refused("it is a device (%d:%d), which an overlay does not hold", h.Devmajor, h.Devminor)
		case u.apply:
			return nil // the way has removed it
		}
		if u.how == jobs.DriverKernel { // a file would be seen
			if err := makeNode(root, name, unix.S_IFCHR); err != nil {
				return &jobs.Error{Kind: jobs.KindConfig, Msg: "mark a path as deleted for the driver kernel", Err: err,
					Hint: "that takes Linux 5.8 and a file system with device nodes; the driver fuse does without"}
			}
			return nil
		}
		return placeWhiteout(root, name)
	case tar.TypeBlock:
		return refused("it is a device (%d:%d), which an overlay does not hold", h.Devmajor, h.Devminor)
	case tar.TypeFifo:
		if err := makeNode(root, name, unix.S_IFIFO|uint32(mode.Perm())); err != nil {
			return err
		}
		return u.owner(name, h)
	}
	return refused("it is of a type (%q) that an overlay does not hold", h.Typeflag)
}

// way makes the directories that lead to a name, and in a tree removes what
// stands in its place; a directory stays for one.
func (u *unpacker) way(name string, kind byte) error {
	if dir := path.Dir(name); dir != "." {
		if u.apply {
			if err := u.replaceLinks(dir); err != nil {
				return err
			}
		}
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if u.apply && kind != tar.TypeDir {
		return u.root.RemoveAll(name)
	}
	return nil
}

// replaceLinks makes the way to a name consist of directories: what an image
// has as a link there, the layer has as a directory.
func (u *unpacker) replaceLinks(dir string) error {
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		fi, err := u.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			if u.made[at] {
				return refused("the tar has something in %q, which it has as no directory", at)
			}
			return u.root.RemoveAll(at)
		}
	}
	return nil
}

func (u *unpacker) directory(h *tar.Header, name string) error {
	opaque := slices.ContainsFunc(opaqueMarks, func(m struct{ name, by string }) bool { return h.PAXRecords[paxXattr+m.name] == "y" })
	if fi, err := u.root.Lstat(name); u.apply && err == nil && (opaque || !fi.IsDir()) {
		if err := u.root.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := u.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := u.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if u.apply { // an image's directory of mode 0500 is written into
		if err := d.Chmod(0o700); err != nil {
			return err
		}
	}
	return errors.Join(u.owner(name, h), u.setXattrs(d, name, h))
}

// owner gives a file its owner where that means something, and else counts it.
func (u *unpacker) owner(name string, h *tar.Header) error {
	if u.first == nil {
		u.first = &h.Uid
	}
	if u.own && h.Uid == 0 && h.Gid == 0 || !u.own && h.Uid == *u.first {
		return nil
	}
	if u.own {
		err := u.root.Lchown(name, h.Uid, h.Gid)
		if err == nil || !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	u.Others++
	return nil
}

// copyHoles writes a file; what is zero in whole chunks becomes a hole.
func copyHoles(f *os.File, r io.Reader, size int64) error {
	buf, zero := make([]byte, sparseChunk), make([]byte, sparseChunk)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), size-at)])
		if err != nil {
			return err
		}
		if !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return f.Truncate(size)
}

// placeWhiteout marks a path as deleted: as a device node, or as a file where
// there can be none.
func placeWhiteout(root *os.Root, name string) error {
	if makeNode(root, name, unix.S_IFCHR) == nil {
		return nil
	}
	return emptyFile(root, path.Join(path.Dir(name), prefixWhiteout+path.Base(name)))
}

func emptyFile(root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// foreignAttr tells whether an attribute is one of overlays that the driver does
// not read.
func (u *unpacker) foreignAttr(attr string) bool {
	return strings.HasPrefix(attr, "user.overlay.") && (u.apply || u.how != jobs.DriverKernel) ||
		strings.HasPrefix(attr, "user.fuseoverlayfs.") && (u.apply || u.how == jobs.DriverKernel)
}

// setXattrs gives a file the attributes that an ordinary user may set. Opaque
// marks of any driver become that of the driver that is to read them; over an
// image's files there are none.
func (u *unpacker) setXattrs(f *os.File, name string, h *tar.Header) error {
	opaque := false
	for k, v := range h.PAXRecords {
		attr, ok := strings.CutPrefix(k, paxXattr)
		if !ok {
			continue
		}
		if slices.ContainsFunc(opaqueMarks, func(m struct{ name, by string }) bool { return m.name == attr }) {
			opaque = opaque || v == "y"
			continue
		}
		if strings.HasPrefix(attr, "user.") && !u.foreignAttr(attr) {
			if err := unix.Fsetxattr(int(f.Fd()), attr, []byte(v), 0); err != nil {
				return fmt.Errorf("set its attribute %s: %w", attr, err)
			}
		}
	}
	if !opaque || u.apply || h.Typeflag != tar.TypeDir {
		return nil
	}
	if u.how == jobs.DriverKernel {
		return unix.Fsetxattr(int(f.Fd()), "user.overlay.opaque", []byte("y"), 0)
	}
	if unix.Fsetxattr(int(f.Fd()), opaqueMarks[0].name, []byte("y"), 0) == nil {
		return nil
	}
	return emptyFile(u.root, path.Join(name, fileOpaque))
}
