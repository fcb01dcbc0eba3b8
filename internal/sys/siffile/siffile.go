// Package siffile reads what a SIF says of itself. It is the one place that
// calls the library of the format.
//
// A SIF is a foreign file. The library allocates as many descriptors as the
// header claims, so this package looks at that number first.
package siffile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/sylabs/sif/v2/pkg/sif"
)

// ErrNoSIF is returned for a file that does not begin with the header of a SIF.
var ErrNoSIF = errors.New("it is no SIF")

// What of the format must be known before the library reads descriptors: the
// length of the global header, where in it their number stands, and the length
// of one. See the types header and rawDescriptor of the library.
const (
	headerSize       = 128
	descriptorsTotal = 88
	descriptorSize   = 585
)

// maxDescriptors bounds what is allocated for a file. The programs that make
// SIFs reserve 48 descriptors. What is allocated stays below 10 MB.
const maxDescriptors = 4096

// maxData is more than any SIF has. It keeps the sum of two such sizes in an int64.
const maxData = 1 << 50

// Header is the header of a SIF.
type Header struct {
	// ID is the UUID that was made when the image was built, or "" of an image
	// that was built without one.
	ID string

	dataOffset, dataSize int64
}

// End returns how long the file must be by its header. It returns false when the
// numbers in the header cannot be those of a file.
func (h Header) End() (end int64, ok bool) {
	if h.dataOffset < 0 || h.dataSize < 0 || h.dataOffset > maxData || h.dataSize > maxData {
		return 0, false
	}
	return h.dataOffset + h.dataSize, true
}

// ReadHeader reads the header alone, so that it also tells of a file that is cut
// off behind it. The error wraps [ErrNoSIF] where there is no header.
func ReadHeader(r io.ReaderAt) (Header, error) {
	_, f, err := open(r)
	if err != nil {
		return Header{}, err
	}
	h := Header{dataOffset: f.DataOffset(), dataSize: f.DataSize()}
	if id := f.ID(); id != uuid.Nil.String() {
		h.ID = id
	}
	return h, nil
}

// Partition is the primary system partition of a SIF, which holds its root file
// system. It lies within the file.
type Partition struct {
	Kind   sif.FSType
	Offset int64
	Size   int64
}

// Root finds the primary system partition of a SIF that has size bytes.
func Root(r io.ReaderAt, size int64) (Partition, error) {
	v, f, err := open(r)
	if err != nil {
		return Partition{}, err
	}
	n, at := v.total, f.DescriptorsOffset()
	if n < 0 || n > maxDescriptors || at < headerSize || at > size || n*descriptorSize > size-at {
		return Partition{}, fmt.Errorf("its table of contents cannot be read: %d descriptors at %d in %d bytes", n, at, size)
	}
	binary.LittleEndian.PutUint64(v.head[descriptorsTotal:], uint64(n))
	if f, err = v.load(); err != nil {
		return Partition{}, fmt.Errorf("its table of contents cannot be read: %w", err)
	}
	d, err := f.GetDescriptor(sif.WithPartitionType(sif.PartPrimSys))
	if err != nil {
		return Partition{}, fmt.Errorf("it has no root file system: %w", err)
	}
	kind, _, _, err := d.PartitionMetadata()
	if err != nil {
		return Partition{}, fmt.Errorf("its root file system cannot be told: %w", err)
	}
	p := Partition{Kind: kind, Offset: d.Offset(), Size: d.Size()}
	if p.Offset < headerSize || p.Size < 0 || p.Offset > size || p.Size > size-p.Offset {
		return Partition{}, fmt.Errorf("its root file system is not within the file: %d bytes at %d in %d bytes", p.Size, p.Offset, size)
	}
	return p, nil
}

// Squashfs is [Root] of an image whose root file system must be a squashfs. One
// that is encrypted is refused, too.
func Squashfs(r io.ReaderAt, size int64) (Partition, error) {
	p, err := Root(r, size)
	if err != nil {
		return Partition{}, err
	}
	if p.Kind != sif.FsSquash {
		return Partition{}, fmt.Errorf("its root file system is no squashfs: its kind is %v", p.Kind)
	}
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], p.Offset); err != nil || string(magic[:]) != "hsqs" {
		return Partition{}, errors.Join(errors.New("its root file system is no squashfs"), err)
	}
	return p, nil
}

// view is a SIF as the library sees it. Its header is what was looked at, also
// when the file changes meanwhile.
type view struct {
	file  io.ReaderAt
	head  [headerSize]byte // says that there are no descriptors, until their number was looked at
	total int64            // how many the file claims
}

// open reads the header, and no descriptors.
func open(r io.ReaderAt) (*view, *sif.FileImage, error) {
	v := &view{file: r}
	if n, err := r.ReadAt(v.head[:], 0); n < headerSize && errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%w: it ends within its header", ErrNoSIF)
	} else if n < headerSize {
		return nil, nil, fmt.Errorf("read its header: %w", err)
	}
	v.total = int64(binary.LittleEndian.Uint64(v.head[descriptorsTotal:]))
	binary.LittleEndian.PutUint64(v.head[descriptorsTotal:], 0)
	f, err := v.load()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNoSIF, err)
	}
	return v, f, nil
}

func (v *view) load() (*sif.FileImage, error) {
	return sif.LoadContainer(v, sif.OptLoadWithCloseOnUnload(false))
}

func (v *view) ReadAt(p []byte, at int64) (int, error) {
	if at == 0 && len(p) <= headerSize {
		return copy(p, v.head[:]), nil
	}
	return v.file.ReadAt(p, at)
}

// The library asks for these of what it loads. Nothing is ever written.

func (v *view) Write([]byte) (int, error)      { return 0, errors.ErrUnsupported }
func (v *view) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }
func (v *view) Truncate(int64) error           { return errors.ErrUnsupported }
