package overlay

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// The tar of an overlay is in PAX format. Whiteouts are character devices 0:0
// and opaque directories have their extended attribute, as the layer has them;
// where a layer has files for either they are written in this form. Ids are
// those of a container with --fakeroot: the user's own files are root's. Files
// with holes are written as GNU tar does (PAX, version 1.0). The global header's
// comment, which other programs pass over, is commentWord and a [tarMark].
const (
	commentWord = "berth overlay 1 "
	paxComment  = "comment"
	paxXattr    = "SCHILY.xattr."
)

// tarMark is what a tar tells of the overlay that it was made of.
type tarMark struct {
	Mark
	// IDs is [idsContainer] when the ids in the tar mean something.
	IDs string `json:"ids,omitempty"`
}

const idsContainer = "container"

// Export writes the overlay's files as a tar; extended attributes, hard links
// and holes are kept. Sockets and devices are left out, and counted. progress is told
// how many of how many bytes are written; it may be nil.
func (s *Set) Export(ctx context.Context, name string, w io.Writer, progress func(done, all int64)) (leftOut int, err error) {
	src, err := s.read(ctx, name, "export")
	if err != nil {
		return 0, err
	}
	defer src.release()
	t, err := s.survey(ctx, src)
	if err != nil {
		return 0, err
	}
	if err := s.writeAll(ctx, src, t, w, progress); err != nil {
		return 0, unreadable(name, err)
	}
	return t.leftOut(), nil
}

// through unpacks the files of a layer in a directory, by way of the tar that
// [Set.Export] writes. The error is that of the side that failed first.
func (s *Set) through(ctx context.Context, src *source, t tree, dir, how string, progress func(done, all int64)) (unpacked, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		defer close(wrote)
		err := s.writeAll(ctx, src, t, w, progress)
		wrote <- err // before the reader sees that it is over
		_ = w.CloseWithError(err)
	}()
	u, err := s.unpack(ctx, r, dir, how)
	if err == nil {
		if _, err = io.Copy(io.Discard, r); err != nil { // what follows the end of the tar
			err = unreadable(src.name, err)
		}
		return u, err
	}
	select {
	case werr := <-wrote:
		if werr != nil { // the unpacker says only that the tar was cut off
			err = unreadable(src.name, werr)
		}
	default:
		stop()
		_ = r.Close()
		for range wrote { // its error comes of that
		}
	}
	return u, err
}

// survey lists a layer before its files are read, and finds out whether that
// takes a user namespace.
func (s *Set) survey(ctx context.Context, src *source) (tree, error) {
	t, err := s.readTree(ctx, src.mark.Driver, src.layer)
	if err != nil {
		return t, unreadable(src.name, err)
	}
	t.inside = t.inside || src.mark.Driver != jobs.DriverExt3 && t.closed()
	if !t.inside {
		return t, nil
	}
	if can, all, why := run.OwnFiles(ctx); !can || !all && t.foreign() {
		return t, unreadable(src.name, denied(errors.New("it has files that this user cannot read"), why))
	}
	return t, nil
}

// closed tells whether there may be files that can be read as root of a user
// namespace alone.
func (t *tree) closed() bool {
	for _, e := range t.list {
		if e.mode&unix.S_IFMT != unix.S_IFREG || e.whiteout {
			continue
		}
		if e.uid == 0 && e.mode&0o400 == 0 || e.uid != 0 && e.mode&0o004 == 0 {
			return true
		}
	}
	return false
}

// foreign tells whether there are files of ids that are not this user's own.
func (t *tree) foreign() bool {
	for _, e := range t.list {
		if e.uid != 0 || e.gid != 0 {
			return true
		}
	}
	return false
}

// content is how many bytes the files have, and leftOut how many entries a tar
// does not take.
func (t *tree) content() (n int64) {
	for _, e := range t.list {
		if e.mode&unix.S_IFMT == unix.S_IFREG && !e.whiteout {
			n += e.size
		}
	}
	return n
}

func (t *tree) leftOut() (n int) {
	for _, e := range t.list {
		if !e.taken() {
			n++
		}
	}
	return n
}

// taken tells whether a tar takes an entry.
func (e *entry) taken() bool {
	switch e.mode & unix.S_IFMT {
	case unix.S_IFDIR, unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO:
		return true
	}
	return e.whiteout
}

// writeAll writes the tar of a layer. progress may be nil.
func (s *Set) writeAll(ctx context.Context, src *source, t tree, w io.Writer, progress func(done, all int64)) error {
	if err := writeHead(w, src.mark); err != nil {
		return err
	}
	return s.writeFiles(ctx, src, t, w, progress)
}

// writeFiles is [Set.writeAll] without what is told of the overlay in front of its files.
func (s *Set) writeFiles(ctx context.Context, src *source, t tree, w io.Writer, progress func(done, all int64)) error {
	all, done := t.content(), int64(0)
	told := func(n int64) {
		if done += n; progress != nil {
			progress(done, all)
		}
	}
	if !t.inside {
		return writeTar(ctx, src.mark.Driver, src.layer, w, told)
	}
	return s.inside(ctx, nil, &counted{w, told}, filesTar, src.mark.Driver, src.layer)
}

// counted tells how much is written.
type counted struct {
	w    io.Writer
	told func(int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.told(int64(n))
	return n, err
}

// writeTar writes the files of a layer as a tar.
func writeTar(ctx context.Context, driver, layer string, w io.Writer, told func(int64)) error {
	l, err := openLayer(driver, layer)
	if err != nil {
		return err
	}
	defer l.close()
	t := &tarWriter{Writer: tar.NewWriter(w), raw: w, l: l, first: map[uint64]string{}, told: told}
	err = l.walk(func(e *entry) error {
		if e.isOwn() || !e.taken() {
			return ctx.Err()
		}
		if err := t.put(e); err != nil {
			return fmt.Errorf("/%s: %w", e.path, err)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return t.Close()
}

type tarWriter struct {
	*tar.Writer
	raw   io.Writer // below
	l     layerReader
	first map[uint64]string // of hard links
	told  func(int64)
}

func (t *tarWriter) put(e *entry) error {
	h := &tar.Header{
		Name:       e.path,
		Mode:       int64(e.mode & 0o7777),
		Uid:        e.uid,
		Gid:        e.gid,
		ModTime:    time.Unix(0, e.mtime),
		Format:     tar.FormatPAX,
		PAXRecords: map[string]string{},
	}
	if e.whiteout {
		h.Typeflag, h.Mode = tar.TypeChar, 0
		return t.WriteHeader(h)
	}
	switch e.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, e.size
		if e.nlink > 1 {
			if to, ok := t.first[e.ino]; ok {
				h.Typeflag, h.Size, h.Linkname = tar.TypeLink, 0, to
				return t.WriteHeader(h)
			}
			t.first[e.ino] = e.path
		}
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	default:
		return fmt.Errorf("it is of no known type (mode %o)", e.mode)
	}
	x, err := t.l.xattrs(e)
	if err != nil {
		return err
	}
	for k, v := range x {
		h.PAXRecords[paxXattr+k] = v
	}
	if e.opaqueBy == "file" {
		h.PAXRecords[paxXattr+opaqueMarks[0].name] = "y"
	}
	if h.Typeflag != tar.TypeReg {
		return t.WriteHeader(h)
	}
	f, err := t.l.open(e)
	if err != nil {
		return err
	}
	defer f.Close()
	runs, err := dataOf(f, e.size)
	if err != nil {
		return err
	}
	if runs != nil {
		return t.putSparse(h, f, runs)
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(&counted{t.Writer, t.told}, f)
	return err
}
