package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"syscall"

	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// ext3Layer reads the directory upper of an ext3 image that nothing has
// mounted: by itself, because mounting needs FUSE, and debugfs(8) copies no
// extended attributes. The format is in the kernel's documentation (ext4 data
// structures); what ext3 does not have is refused. An image may have been
// written by an attacker, so every number in it is checked.
type ext3Layer struct {
	f              *os.File
	size           int64 // of the file
	block          int64 // bytes
	perGroup       uint32
	inodes         uint32
	inodeSize      int64
	tables         []uint32 // of each group
	seen           map[uint64]bool
	upper          uint32
	ids            func(uid, gid int) (int, int)
	indirectCached int64
	indirect       []byte
}

var errExt3 = errors.New("the ext3 image is damaged")

const (
	incompatFiletype = 0x2
	ext3RootInode    = 2
	maxDirBytes      = 1 << 30
	maxDepthExt3     = 4096
)

func openExt3(path string) (layerReader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	l := &ext3Layer{f: f, seen: map[uint64]bool{}, indirectCached: -1, ids: run.InsideIDs()}
	if err := l.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	return l, nil
}

var le = binary.LittleEndian

func (l *ext3Layer) begin() error {
	fi, err := l.f.Stat()
	if err != nil {
		return err
	}
	l.size = fi.Size()
	sb := make([]byte, 1024)
	if err := l.at(sb, superblockAt); err != nil {
		return err
	}
	if le.Uint16(sb[offsetMagic:]) != magicExt {
		return errors.New("it is no ext3 image")
	}
	if more := le.Uint32(sb[offsetIncompat:]) &^ (incompatFiletype | needsRecovery); more != 0 {
		return fmt.Errorf("it has features that ext3 has not (%#x)", more)
	}
	blocks, first := le.Uint32(sb[0x4:]), le.Uint32(sb[0x14:])
	log := le.Uint32(sb[0x18:])
	perGroup := le.Uint32(sb[0x20:])
	l.inodes, l.perGroup, l.inodeSize = le.Uint32(sb[0x0:]), le.Uint32(sb[0x28:]), int64(le.Uint16(sb[0x58:]))
	if le.Uint32(sb[0x4C:]) == 0 {
		l.inodeSize = 128
	}
	if log > 6 || perGroup == 0 || l.perGroup == 0 || first > 1 || blocks <= first || l.inodeSize < 128 || l.inodeSize > 4096 {
		return errExt3
	}
	l.block = 1024 << log
	if int64(blocks)*l.block > l.size+l.block {
		return fmt.Errorf("%w: it is cut off", errExt3)
	}
	groups := (int64(blocks) - int64(first) + int64(perGroup) - 1) / int64(perGroup)
	if groups*32 > l.size {
		return errExt3
	}
	desc := make([]byte, groups*32)
	if err := l.at(desc, int64(first+1)*l.block); err != nil {
		return err
	}
	for g := range groups {
		l.tables = append(l.tables, le.Uint32(desc[g*32+8:]))
	}
	root, err := l.inode(ext3RootInode)
	if err != nil {
		return err
	}
	return l.each(root, func(name string, ino uint32) error {
		if name == "upper" {
			l.upper = ino
		}
		return nil
	})
}

func (l *ext3Layer) close() { _ = l.f.Close() }

func (l *ext3Layer) at(b []byte, off int64) error {
	if off < 0 || off > l.size {
		return errExt3
	}
	if _, err := l.f.ReadAt(b, off); errors.Is(err, io.EOF) {
		return errExt3
	} else if err != nil {
		return err
	}
	return nil
}

// ext3Inode is an inode with its number.
type ext3Inode struct {
	n uint32
	b []byte
}

func (i ext3Inode) mode() uint32 { return uint32(le.Uint16(i.b)) }
func (i ext3Inode) size() int64  { return int64(le.Uint32(i.b[0x6C:]))<<32 | int64(le.Uint32(i.b[4:])) }

func (l *ext3Layer) inode(n uint32) (ext3Inode, error) {
	if n == 0 || n > l.inodes {
		return ext3Inode{}, errExt3
	}
	group := (n - 1) / l.perGroup
	if int(group) >= len(l.tables) {
		return ext3Inode{}, errExt3
	}
	i := ext3Inode{n: n, b: make([]byte, l.inodeSize)}
	return i, l.at(i.b, int64(l.tables[group])*l.block+int64((n-1)%l.perGroup)*l.inodeSize)
}

// mapped is the place of a file's block in the image, 0 for a hole.
func (l *ext3Layer) mapped(i ext3Inode, n int64) (int64, error) {
	const direct = 12
	per := l.block / 4
	if n < direct {
		return int64(le.Uint32(i.b[0x28+4*n:])), nil
	}
	n -= direct
	slot, span, levels := int64(direct), per, 1
	for n >= span {
		n -= span
		span *= per
		slot++
		if levels++; levels > 3 {
			return 0, errExt3
		}
	}
	at := int64(le.Uint32(i.b[0x28+4*slot:]))
	for ; levels > 0 && at != 0; levels-- {
		span /= per
		if l.indirectCached != at {
			b := make([]byte, l.block)
			if err := l.at(b, at*l.block); err != nil {
				return 0, err
			}
			l.indirect, l.indirectCached = b, at
		}
		at = int64(le.Uint32(l.indirect[4*(n/span):]))
		n %= span
	}
	return at, nil
}

// ext3File reads the content of a file.
type ext3File struct {
	l  *ext3Layer
	i  ext3Inode
	at int64
}

func (f *ext3File) Read(p []byte) (int, error) {
	left := f.i.size() - f.at
	if left <= 0 {
		return 0, io.EOF
	}
	in := f.at % f.l.block
	n := min(int64(len(p)), left, f.l.block-in)
	where, err := f.l.mapped(f.i, f.at/f.l.block)
	if err != nil {
		return 0, err
	}
	if where == 0 {
		clear(p[:n])
	} else if err := f.l.at(p[:n], where*f.l.block+in); err != nil {
		return 0, err
	}
	f.at += n
	return int(n), nil
}

func (f *ext3File) Close() error { return nil }

// each gives do the names in a directory.
func (l *ext3Layer) each(dir ext3Inode, do func(name string, ino uint32) error) error {
	if dir.mode()&unix.S_IFMT != unix.S_IFDIR || dir.size() > maxDirBytes {
		return errExt3
	}
	f := &ext3File{l: l, i: dir}
	b := make([]byte, l.block)
	for {
		if _, err := io.ReadFull(f, b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return errors.Join(errExt3, err)
		}
		for at := int64(0); at+8 <= l.block; {
			ino, length, n := le.Uint32(b[at:]), int64(le.Uint16(b[at+4:])), int64(b[at+6])
			if length == 0 && l.block == 1<<16 {
				length = 1 << 16
			}
			if length < 8 || at+length > l.block || 8+n > length {
				return errExt3
			}
			name := string(b[at+8 : at+8+n])
			if ino != 0 && name != "." && name != ".." {
				if name == "" || bytes.ContainsAny([]byte(name), "/\x00") {
					return errExt3
				}
				if err := do(name, ino); err != nil {
					return err
				}
			}
			at += length
		}
	}
}

func (l *ext3Layer) walk(do func(*entry) error) error {
	if l.upper == 0 {
		return errors.New("the image has no directory upper")
	}
	clear(l.seen)
	return walkIn(l, &entry{ino: uint64(l.upper)}, true, func(e *entry) error {
		if !e.whiteout && e.mode&unix.S_IFMT == unix.S_IFREG {
			if err := l.whole(e); err != nil {
				return err
			}
		}
		return do(e)
	})
}

// whole refuses a file whose content is elsewhere: a kernel that mounts the
// overlay as root may be told to write such.
func (l *ext3Layer) whole(e *entry) error {
	x, err := l.xattrs(e)
	if err != nil {
		return err
	}
	for name := range x {
		if isMark(name, markMetacopy) {
			return foreignMark(e.path, "was written by an overlayfs with metacopy, and its content is the image's")
		}
	}
	return nil
}

func (l *ext3Layer) list(dir *entry) (out []*entry, err error) {
	if l.seen[dir.ino] || strings.Count(dir.path, "/") >= maxDepthExt3 { // a directory within itself
		return nil, errExt3
	}
	l.seen[dir.ino] = true
	d, err := l.inode(uint32(dir.ino))
	if err != nil {
		return nil, err
	}
	err = l.each(d, func(name string, ino uint32) error {
		i, err := l.inode(ino)
		if err != nil {
			return err
		}
		b := i.b
		e := &entry{path: path.Join(dir.path, name), mode: i.mode(), size: i.size(), ino: uint64(ino), nlink: uint64(le.Uint16(b[0x1A:]))}
		e.uid, e.gid = l.owner(int(le.Uint16(b[2:]))|int(le.Uint16(b[0x78:]))<<16, int(le.Uint16(b[0x18:]))|int(le.Uint16(b[0x7A:]))<<16)
		e.mtime = int64(int32(le.Uint32(b[0x10:]))) * 1e9
		if len(b) >= 0x8C && le.Uint16(b[0x80:]) >= 0x8C-0x80 {
			extra := le.Uint32(b[0x88:])
			e.mtime += int64(extra&3)<<32*1e9 + int64(extra>>2)
		}
		switch e.mode & unix.S_IFMT {
		case unix.S_IFCHR, unix.S_IFBLK:
			if old := le.Uint32(b[0x28:]); old != 0 {
				e.rdev = unix.Mkdev(old>>8&0xff, old&0xff)
			} else {
				n := le.Uint32(b[0x2C:])
				e.rdev = unix.Mkdev(n>>8&0xfff, n&0xff|n>>12&0xfff00)
			}
		case unix.S_IFLNK:
			if e.link, err = l.readlink(i); err != nil {
				return err
			}
		}
		out = append(out, e)
		return nil
	})
	return out, err
}

// owner tells whose a file is. An image may hold ids as they are on this
// machine, and as they are in a container.
func (l *ext3Layer) owner(uid, gid int) (int, int) {
	u, g := l.ids(uid, gid)
	if u == run.Overflow {
		u = uid
	}
	if g == run.Overflow {
		g = gid
	}
	return u, g
}

func (l *ext3Layer) readlink(i ext3Inode) (string, error) {
	n := i.size()
	if n < 0 || n > 4096 {
		return "", errExt3
	}
	blocks := int64(le.Uint32(i.b[0x1C:])) * 512
	if le.Uint32(i.b[0x68:]) != 0 { // the block of extended attributes counts, too
		blocks -= l.block
	}
	if blocks <= 0 && n < 60 {
		return string(i.b[0x28 : 0x28+n]), nil
	}
	b, err := io.ReadAll(&ext3File{l: l, i: i})
	return string(b), err
}

func (l *ext3Layer) open(e *entry) (io.ReadCloser, error) {
	i, err := l.inode(uint32(e.ino))
	if err != nil {
		return nil, err
	}
	return &ext3File{l: l, i: i}, nil
}

const (
	xattrMagic  = 0xEA020000
	xattrHeader = 32 // of a block
)

// xattrPrefixes are what the format writes as a number.
var xattrPrefixes = map[byte]string{0: "", 1: "user.", 2: "system.posix_acl_access", 3: "system.posix_acl_default", 4: "trusted.", 6: "security.", 7: "system."}

func (l *ext3Layer) xattrs(e *entry) (map[string]string, error) {
	i, err := l.inode(uint32(e.ino))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	if len(i.b) > 0x84 {
		if at := 128 + int(le.Uint16(i.b[0x80:])); at+4 < len(i.b) && le.Uint32(i.b[at:]) == xattrMagic {
			in := i.b[at+4:]
			if err := parseXattrs(in, in, out); err != nil {
				return nil, err
			}
		}
	}
	if at := int64(le.Uint32(i.b[0x68:])); at != 0 {
		b := make([]byte, l.block)
		if err := l.at(b, at*l.block); err != nil {
			return nil, err
		}
		if le.Uint32(b) != xattrMagic {
			return nil, errExt3
		}
		if err := parseXattrs(b[xattrHeader:], b, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseXattrs reads entries; the places of their values count from values.
func parseXattrs(entries, values []byte, out map[string]string) error {
	for len(entries) >= 16 && le.Uint32(entries) != 0 {
		n, index := int(entries[0]), entries[1]
		at, inode, size := int(le.Uint16(entries[2:])), le.Uint32(entries[4:]), le.Uint32(entries[8:])
		if 16+n > len(entries) || inode != 0 || size > math.MaxUint16 || at+int(size) > len(values) {
			return errExt3
		}
		prefix, ok := xattrPrefixes[index]
		if ok {
			out[prefix+string(entries[16:16+n])] = string(values[at : at+int(size)])
		}
		next := (16 + n + 3) &^ 3
		if next > len(entries) {
			return errExt3
		}
		entries = entries[next:]
	}
	return nil
}
