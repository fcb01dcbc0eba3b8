//go:build linux

package staging

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
)

// Room is what a file system has left for this user.
type Room struct {
	Bytes  int64
	Inodes int64 // math.MaxInt64 where they are not counted
	Total  int64 // bytes of the whole file system
}

// need is what a copy takes.
type need struct {
	sif    int64 // size of the image
	bytes  int64
	inodes int64
}

// A copy of an unpacked image takes what its files take. A SIF tells how many
// files there are, and how long they are packed; unpacked they are estimated to
// be this many times as long, and each to waste half a block.
const (
	unpackedTimes = 3
	halfBlock     = 2 << 10
)

// reserve is the part of the file system that a copy must leave free, for the
// tasks that run there.
const reserve = 20 // one part of

// needs says what a copy of a SIF will take.
func needs(path string, form Form) (need, error) {
	f, err := os.Open(path)
	if err != nil {
		return need{}, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return need{}, err
	}
	n := need{sif: fi.Size(), bytes: fi.Size(), inodes: 8}
	if form != Unpacked {
		return n, nil
	}
	packed, inodes, err := squashfs(f)
	if err != nil {
		return need{}, fmt.Errorf("%s: %w", path, err)
	}
	n.bytes, n.inodes = packed*unpackedTimes+inodes*halfBlock, inodes+8
	return n, nil
}

// What a SIF and a squashfs look like: the global header and the descriptors of
// github.com/sylabs/sif, and the superblock of Documentation/filesystems/squashfs.
const (
	sifHead        = 128
	sifTable       = 96 // where the descriptors begin
	sifUsed        = 88 // how many there may be
	sifDescriptor  = 585
	sifPartition   = 0x4004
	sifExtra       = 201
	sifSquashfs    = 1
	sifPrimary     = 2
	maxDescriptors = 4096
)

// squashfs reads the superblock of a SIF's root file system: how long it is, and
// how many inodes it has.
func squashfs(f io.ReaderAt) (packed, inodes int64, err error) {
	head := make([]byte, sifHead)
	if _, err := f.ReadAt(head, 0); err != nil || !bytes.Equal(head[32:41], []byte("SIF_MAGIC")) {
		return 0, 0, errors.New("it is no SIF")
	}
	count, table := binary.LittleEndian.Uint64(head[sifUsed:]), binary.LittleEndian.Uint64(head[sifTable:])
	for i := range min(count, maxDescriptors) {
		d := make([]byte, sifDescriptor)
		if _, err := f.ReadAt(d, int64(table)+int64(i)*sifDescriptor); err != nil {
			return 0, 0, errors.New("its table of contents cannot be read")
		}
		if binary.LittleEndian.Uint32(d) != sifPartition || d[4] == 0 || binary.LittleEndian.Uint32(d[sifExtra:]) != sifSquashfs || binary.LittleEndian.Uint32(d[sifExtra+4:]) != sifPrimary {
			continue
		}
		super := make([]byte, 48)
		if _, err := f.ReadAt(super, int64(binary.LittleEndian.Uint64(d[17:]))); err != nil || !bytes.Equal(super[:4], []byte("hsqs")) {
			return 0, 0, errors.New("its root file system is no squashfs")
		}
		packed = int64(min(binary.LittleEndian.Uint64(super[40:]), 1<<50))
		return packed, int64(binary.LittleEndian.Uint32(super[4:])), nil
	}
	return 0, 0, errors.New("it has no root file system in squashfs")
}

// room asks the file system of dir.
func (n *Node) room(dir string) (Room, error) {
	if n.Free != nil {
		return n.Free(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Room{}, err
	}
	r := Room{Bytes: int64(st.Bavail * uint64(st.Bsize)), Inodes: math.MaxInt64, Total: int64(st.Blocks * uint64(st.Bsize))}
	if st.Files != 0 {
		r.Inodes = int64(st.Ffree)
	}
	return r, nil
}

// lacks says what is missing for a copy, or "".
func (r Room) lacks(n need) string {
	switch {
	case r.Bytes-r.Total/reserve < n.bytes:
		return fmt.Sprintf("it takes %s, and %s are free, of which %s are left to others", mib(n.bytes), mib(r.Bytes), mib(r.Total/reserve))
	case r.Inodes < n.inodes:
		return fmt.Sprintf("it takes %d files, and there is room for %d", n.inodes, r.Inodes)
	}
	return ""
}
