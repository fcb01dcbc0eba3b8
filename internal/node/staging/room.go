//go:build linux

package staging

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"berth/internal/sys/siffile"
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
	packed, inodes, err := squashfs(f, fi.Size())
	if err != nil {
		return need{}, fmt.Errorf("%s: %w", path, err)
	}
	n.bytes, n.inodes = packed*unpackedTimes+inodes*halfBlock, inodes+8
	return n, nil
}

// squashfs reads the superblock of a SIF's root file system (the kernel's
// Documentation/filesystems/squashfs): how long it is, and how many inodes it has.
func squashfs(f io.ReaderAt, size int64) (packed, inodes int64, err error) {
	root, err := siffile.Squashfs(f, size)
	if err != nil {
		return 0, 0, err
	}
	super := make([]byte, 48)
	if _, err := f.ReadAt(super, root.Offset); err != nil {
		return 0, 0, fmt.Errorf("read the superblock of its root file system: %w", err)
	}
	packed = int64(min(binary.LittleEndian.Uint64(super[40:]), 1<<50))
	return packed, int64(binary.LittleEndian.Uint32(super[4:])), nil
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
