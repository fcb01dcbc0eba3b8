package transfer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Unpack makes what a stream holds at dest, see the package comment, and
// returns the path of the top. It reads r to its end. An error that wraps
// [ErrStream] is the stream's fault; other errors are about a path at the
// destination, r, or the context, and end the work where it is.
func Unpack(ctx context.Context, r io.Reader, dest string, o Options) (Tally, string, error) {
	if o.Name != "" && !oneComponent(o.Name) {
		return Tally{}, dest, &fs.PathError{Op: "unpack", Path: o.Name, Err: syscall.EINVAL}
	}
	in := &watched{r: bufio.NewReaderSize(r, 64<<10)}
	u := &unpacker{
		mover: mover{ctx: ctx, buf: make([]byte, bufferSize), o: o},
		in:    tar.NewReader(in), under: in, pipe: pipeOf(r), made: map[string]made{}, files: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
	}
	defer u.close()
	err := u.all(dest)
	if err == nil && in.ended {
		err = badStream("it breaks off")
	}
	if err == nil {
		err = trailer(in)
	}
	// Directories get their modes in any case: what is there stays.
	if ferr := u.finish(); err == nil {
		err = ferr
	}
	at := dest
	if u.place.root != nil {
		at = u.full(u.place.as)
	}
	return u.tally, at, err
}

// watched knows whether the stream has ended: package tar takes an end without
// the two empty blocks for an archive's end.
type watched struct {
	r     *bufio.Reader
	ended bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if errors.Is(err, io.EOF) {
		w.ended = true
	}
	return n, err
}

// trailer reads what stands behind the archive; it is padding.
func trailer(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTrailer))
	if err == nil && n == maxTrailer {
		err = badStream("it goes on behind its end")
	}
	return err
}

// made is a directory that the stream has made.
type made struct {
	mode fs.FileMode
	time time.Time
}

type unpacker struct {
	mover
	in    *tar.Reader
	under *watched // what in reads from
	pipe  *os.File // what under reads from, if that is a pipe; or nil
	place place
	top   string // in the stream

	parent   *os.Root // of the entry before, which mostly is the next one's
	parentAt string

	made  map[string]made
	files map[uint64]struct{} // hashes of the files made, which links may name
	seed  maphash.Seed
}

func (u *unpacker) close() {
	if u.parent != nil {
		u.parent.Close()
	}
	if u.place.root != nil {
		u.place.root.Close()
	}
}

// all unpacks every entry.
func (u *unpacker) all(dest string) error {
	for {
		if u.ctx.Err() != nil {
			return context.Cause(u.ctx)
		}
		h, err := u.in.Next()
		if errors.Is(err, io.EOF) {
			if u.place.root == nil {
				return badStream("it is empty")
			}
			return nil
		}
		if err != nil {
			return streamError(err)
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return err
		}
		if u.place.root == nil {
			if strings.Contains(name, "/") {
				return badStream("it begins with %q", shorten(name))
			}
			if u.place, err = resolve(dest, name, h.Typeflag == tar.TypeDir, u.o); err != nil {
				u.place.root = nil
				return err
			}
			u.top = name
		}
		if u.tally.Entries >= maxEntries || len(u.made) >= maxDirectories {
			return badStream("it has too many entries")
		}
		at, err := u.place.below(u.top, name)
		if err != nil {
			return err
		}
		if err := u.entry(h, at); err != nil {
			return err
		}
	}
}

// streamError tells an archive that makes no sense from a stream that fails.
func streamError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badStream("%v", err)
	}
	return err
}

// entry makes one entry at a path below the place's root.
func (u *unpacker) entry(h *tar.Header, at string) error {
	if at == "." {
		if h.Typeflag != tar.TypeDir {
			return badStream("its top is no directory")
		}
		return nil // it is the destination, and stays as it is
	}
	if sparse(h) {
		return badStream("a sparse file")
	}
	parent, err := u.directoryAt(path.Dir(at))
	if err != nil {
		return err
	}
	base := path.Base(at)
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.directory(parent, base, at, h)
	case tar.TypeReg:
		err = u.file(parent, base, at, h)
	case tar.TypeSymlink:
		err = u.symlink(parent, base, h)
	case tar.TypeLink:
		err = u.link(parent, base, at, h)
	default: // devices, and what a foreign tar may write
		note(&u.tally.Special, &u.tally.special, at)
		return nil
	}
	if err != nil {
		return locate(err, u.full(at))
	}
	u.tally.Entries++
	return nil
}

// full is the path that people know.
func (u *unpacker) full(at string) string { return filepath.Join(u.place.dir, at) }

// locate gives an error the path that people know.
func locate(err error, at string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: at, Err: p.Err}
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return &fs.PathError{Op: l.Op, Path: at, Err: l.Err}
	}
	return err
}
