package transfer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Pack writes the file or tree at source as a stream to w. A symbolic link is
// packed as such, unless source ends in a slash; only the contents of a
// directory are packed when source is "." or "..", or ends in "/." or "/..".
//
// What cannot be read below source is left out and counted; what vanishes
// meanwhile was never there. An error is about source itself, w, or the
// context.
func Pack(ctx context.Context, w io.Writer, source string, o Options) (Tally, error) {
	if o.Name != "" && !oneComponent(o.Name) {
		return Tally{}, &fs.PathError{Op: "pack", Path: o.Name, Err: syscall.EINVAL}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	p := &packer{
		mover: mover{ctx: ctx, buf: make([]byte, bufferSize), o: o},
		out:   tar.NewWriter(out), under: out, pipe: pipeOf(w), links: map[inode]string{},
	}
	err := p.top(source)
	if err == nil {
		err = p.out.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	return p.tally, err
}

type packer struct {
	mover
	out    *tar.Writer
	under  *bufio.Writer    // what out writes to
	pipe   *os.File         // what under writes to, if that is a pipe; or nil
	links  map[inode]string // names of files that have several
	device uint64           // of the directory that is packed
}

// top packs the source. It needs no right to read the directory above it.
func (p *packer) top(source string) error {
	contents, follow := isContents(source), strings.HasSuffix(source, "/")
	look := os.Lstat
	if contents || follow {
		look = os.Stat
	}
	fi, err := look(source)
	if err != nil {
		return err
	}
	if (contents || follow) && !fi.IsDir() {
		return &fs.PathError{Op: "pack", Path: source, Err: syscall.ENOTDIR}
	}
	name := p.o.Name
	switch {
	case name != "":
	case contents:
		name = "."
	default:
		if name = filepath.Base(source); !oneComponent(name) {
			name = "."
		}
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		root, err := os.OpenRoot(source)
		if err != nil {
			return err
		}
		defer root.Close()
		if err := p.directory(fi, name); err != nil {
			return err
		}
		return p.below(root, fi, name, 0)
	case 0:
		f, err := os.OpenFile(source, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := p.content(f, fi, name); err != nil || p.tally.Entries > 0 {
			return err
		}
		return &fs.PathError{Op: "pack", Path: source, Err: errUnreadable}
	case fs.ModeSymlink:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return p.symlink(fi, name, target)
	}
	return &fs.PathError{Op: "pack", Path: source, Err: ErrSpecial}
}

var errUnreadable = errors.New("it cannot be read")

// ErrSpecial is a source that is a socket, a device or a pipe.
var ErrSpecial = errors.New("neither a file nor a directory nor a symbolic link")

// isContents tells whether a source stands for what is in it.
func isContents(source string) bool {
	last := source[strings.LastIndexByte(source, '/')+1:]
	return last == "." || last == ".."
}

// failed sorts an error of an entry below the top: what is gone is gone, what
// cannot be read is counted.
func (p *packer) failed(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		note(&p.tally.Unreadable, &p.tally.unreadable, name)
	}
}

// below packs what is in a directory, a portion of its names at a time.
func (p *packer) below(root *os.Root, fi fs.FileInfo, name string, depth int) error {
	f, err := root.Open(".")
	if err != nil {
		p.failed(name, err)
		return nil
	}
	defer f.Close()
	id, _ := inodeOf(fi)
	for {
		names, err := f.Readdirnames(256)
		for _, n := range names {
			if err := p.ctx.Err(); err != nil {
				return context.Cause(p.ctx)
			}
			p.device = id.device
			if err := p.entry(root, n, name+"/"+n, depth); err != nil {
				return err
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.failed(name, err)
			}
			return nil
		}
	}
}

// entry packs one entry of a directory.
func (p *packer) entry(root *os.Root, base, name string, depth int) error {
	fi, err := root.Lstat(base)
	if err != nil {
		p.failed(name, err)
		return nil
	}
	if depth >= maxDepth || len(name) > maxName {
		note(&p.tally.Unreadable, &p.tally.unreadable, name)
		return nil
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		sub, err := openDirectory(root, base, fi)
		if err != nil {
			p.failed(name, err)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return p.directory(fi, name)
		}
		defer sub.Close()
		if id, ok := inodeOf(fi); ok && id.device != p.device && OfKernel(sub) {
			note(&p.tally.Special, &p.tally.special, name)
			return nil
		}
		if err := p.directory(fi, name); err != nil {
			return err
		}
		return p.below(sub, fi, name, depth+1)
	case 0:
		f, err := root.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			p.failed(name, err)
			return nil
		}
		defer f.Close()
		return p.content(f, fi, name)
	case fs.ModeSymlink:
		target, err := root.Readlink(base)
		if err != nil {
			p.failed(name, err)
			return nil
		}
		return p.symlink(fi, name, target)
	}
	note(&p.tally.Special, &p.tally.special, name)
	return nil
}

// openDirectory opens the directory that was seen, and nothing else: a name
// may become a link to another place at any time.
func openDirectory(root *os.Root, base string, seen fs.FileInfo) (*os.Root, error) {
	sub, err := root.OpenRoot(base + "/.") // so that it is opened with O_DIRECTORY, and never waits
	if err != nil {
		return nil, err
	}
	fi, err := sub.Stat(".")
	if err == nil && !os.SameFile(fi, seen) {
		err = &fs.PathError{Op: "open", Path: base, Err: errReplaced}
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

var errReplaced = errors.New("it was replaced by something else meanwhile")

// header writes the header of an entry.
func (p *packer) header(h *tar.Header, fi fs.FileInfo) error {
	h.Format = tar.FormatPAX
	h.Mode = int64(fi.Mode().Perm())
	// No time that a header cannot hold, and none before 1970.
	if t := fi.ModTime(); t.After(time.Unix(0, 0)) {
		h.ModTime = t
	}
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	p.tally.Entries++
	return nil
}

func (p *packer) directory(fi fs.FileInfo, name string) error {
	return p.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/"}, fi)
}

func (p *packer) symlink(fi fs.FileInfo, name, target string) error {
	return p.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, fi)
}
