package transfer

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
)

// content packs a file that was seen and is open.
func (p *packer) content(f *os.File, seen fs.FileInfo, name string) error {
	fi, err := f.Stat()
	if err == nil && !os.SameFile(fi, seen) {
		err = errReplaced
	}
	if err != nil {
		p.failed(name, err)
		return nil
	}
	id, shared := inodeOf(fi)
	if shared = shared && id.links > 1; shared {
		id.links = 0 // it may change
		if first, ok := p.links[id]; ok {
			return p.header(&tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: first}, fi)
		}
	}
	// Bytes that were never read cannot be promised: whether it can be read
	// shows before the header goes out. The kernel's files say that they are
	// empty, and are not; as much of these is taken as the buffer holds.
	size, want := fi.Size(), fi.Size()
	if size == 0 {
		want = int64(len(p.buf))
	}
	n, err := io.ReadAtLeast(f, p.buf[:min(int64(len(p.buf)), want)], 1)
	for size == 0 && err == nil && n < len(p.buf) {
		var more int
		more, err = f.Read(p.buf[n:])
		n += more
	}
	if err != nil && !errors.Is(err, io.EOF) {
		p.failed(name, err)
		return nil
	}
	size = max(size, int64(n))
	if err := p.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}, fi); err != nil {
		return err
	}
	if shared {
		p.links[id] = name
	}
	return p.body(f, name, n, size)
}

// body writes the size bytes of a file whose header has gone out and whose
// first n bytes stand in the buffer. The kernel moves large ones into a pipe,
// which package tar knows nothing of: it goes on behind them.
func (p *packer) body(f *os.File, name string, n int, size int64) error {
	var to io.Writer = p.out
	past := p.pipe != nil && size-int64(n) >= bufferSize
	if past {
		to = p.under
	}
	if err := p.first(to, n); err != nil {
		return err
	}
	rest := size - int64(n)
	if past {
		if err := p.under.Flush(); err != nil {
			return err
		}
		rest -= p.splice(p.pipe, f, rest, toPipe)
	}
	moved, rerr, werr := p.move(to, f, rest)
	if werr != nil {
		return werr
	}
	if rest -= moved; rest > 0 {
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			note(&p.tally.Unreadable, &p.tally.unreadable, name)
		} else {
			note(&p.tally.Shrunk, &p.tally.shrunk, name)
		}
		if _, _, err := p.move(to, zeros{}, rest); err != nil {
			return err
		}
	}
	if !past {
		return nil
	}
	p.out = tar.NewWriter(p.under)
	_, err := p.under.Write(make([]byte, padding(size)))
	return err
}

// first writes what stands in the buffer.
func (p *packer) first(to io.Writer, n int) error {
	if _, err := to.Write(p.buf[:n]); err != nil {
		return err
	}
	p.count(int64(n))
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// body reads the size bytes of a file whose header was read last; see the
// packer's.
func (u *unpacker) body(f *os.File, size int64) (rerr, werr error) {
	if u.pipe == nil || size < bufferSize {
		_, rerr, werr = u.move(f, u.in, size)
		return rerr, werr
	}
	rest := size
	// Package tar reads no further than the header; what is behind that, and
	// was read from the pipe with it, stands in the buffer.
	moved, rerr, werr := u.move(f, u.under, min(rest, int64(u.under.r.Buffered())))
	if rest -= moved; rerr == nil && werr == nil {
		rest -= u.splice(u.pipe, f, rest, fromPipe)
		moved, rerr, werr = u.move(f, u.under, rest)
		rest -= moved
	}
	if rest > 0 && errors.Is(rerr, io.EOF) {
		rerr = io.ErrUnexpectedEOF
	}
	if rerr != nil || werr != nil {
		return rerr, werr
	}
	u.in = tar.NewReader(u.under)
	_, rerr = io.CopyN(io.Discard, u.under, padding(size))
	return rerr, nil
}

// padding is how many bytes fill up the last block of a file.
func padding(size int64) int64 { return -size & (blockSize - 1) }

// blockSize is that of an archive.
const blockSize = 512

// piped is a stream that comes out of a pipe, or goes into one.
type piped interface{ Pipe() *os.File }

// pipeOf returns the pipe of a stream, or nil.
func pipeOf(stream any) *os.File {
	f, _ := stream.(*os.File)
	if p, ok := stream.(piped); ok {
		f = p.Pipe()
	}
	if f == nil {
		return nil
	}
	if fi, err := f.Stat(); err != nil || fi.Mode().Type() != fs.ModeNamedPipe {
		return nil
	}
	return f
}
