package overlay

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// extent is a part of a file that is no hole; the end of a file with holes is
// an empty one.
type extent struct{ at, size int64 }

const (
	tarBlock    = 512
	sparseFrom  = 1 << 20 // smaller files are written as they are
	maxExtents  = 100_000 // of a file with more, holes are zeros
	sparseChunk = 64 << 10
)

// dataOf finds the holes of a file: nil is none that are worth it.
func dataOf(f io.Reader, size int64) (runs []extent, err error) {
	if size < sparseFrom {
		return nil, nil
	}
	switch f := f.(type) {
	case *os.File:
		runs, err = dataOfFile(f, size)
	case *ext3File:
		runs, err = f.data()
	}
	if err != nil || len(runs) > maxExtents {
		return nil, err
	}
	var data int64
	for _, r := range runs {
		data += r.size
	}
	if size-data < sparseChunk {
		return nil, nil
	}
	if n := len(runs); n == 0 || runs[n-1].at+runs[n-1].size < size {
		runs = append(runs, extent{size, 0})
	}
	return runs, nil
}

func dataOfFile(f *os.File, size int64) (runs []extent, err error) {
	fd := int(f.Fd())
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil { // the file system tells nothing
			runs = []extent{{0, size}}
			break
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		hole = min(hole, size)
		if hole <= data {
			break
		}
		runs = append(runs, extent{data, hole - data})
		at = hole
	}
	_, err = f.Seek(0, io.SeekStart)
	return runs, err
}

// data finds the blocks of a file that an image holds.
func (f *ext3File) data() (runs []extent, err error) {
	size := f.i.size()
	for n := int64(0); n*f.l.block < size; n++ {
		where, err := f.l.mapped(f.i, n)
		if err != nil {
			return nil, err
		}
		if where == 0 {
			continue
		}
		at := n * f.l.block
		length := min(f.l.block, size-at)
		if k := len(runs) - 1; k >= 0 && runs[k].at+runs[k].size == at {
			runs[k].size += length
		} else {
			runs = append(runs, extent{at, length})
		}
	}
	return runs, nil
}

// seekFile reads a file from a place.
func seekFile(f io.Reader, at int64) error {
	switch f := f.(type) {
	case *os.File:
		_, err := f.Seek(at, io.SeekStart)
		return err
	case *ext3File:
		f.at = at
		return nil
	}
	return fmt.Errorf("a %T has no places", f)
}

// putSparse writes a file with holes in the form of GNU tar ("PAX Format,
// Version 1.0" in its manual), which archive/tar reads and does not write: the
// headers are made here.
func (t *tarWriter) putSparse(h *tar.Header, f io.Reader, runs []extent) error {
	if err := t.Flush(); err != nil {
		return err
	}
	var index bytes.Buffer
	fmt.Fprintf(&index, "%d\n", len(runs))
	size := int64(0)
	for _, r := range runs {
		fmt.Fprintf(&index, "%d\n%d\n", r.at, r.size)
		size += r.size
	}
	pad(&index)
	size += int64(index.Len())
	records := map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": h.Name, "GNU.sparse.realsize": strconv.FormatInt(h.Size, 10),
		"size":  strconv.FormatInt(size, 10),
		"mtime": fmt.Sprintf("%d.%09d", h.ModTime.Unix(), h.ModTime.Nanosecond()),
		"uid":   strconv.Itoa(h.Uid), "gid": strconv.Itoa(h.Gid),
	}
	for k, v := range h.PAXRecords {
		if strings.ContainsAny(k, "=\n") {
			return fmt.Errorf("its attribute %q cannot be in a tar", k)
		}
		records[k] = v
	}
	var pax bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(records)) {
		pax.WriteString(paxRecord(k, records[k]))
	}
	name := "GNUSparseFile.0/" + strconv.FormatUint(uint64(len(path.Base(h.Name))), 10) // for programs that know no better
	out := ustar(name, tar.TypeXHeader, 0o644, int64(pax.Len()))
	pad(&pax)
	out = append(out, pax.Bytes()...)
	out = append(out, ustar(name, tar.TypeReg, h.Mode, size)...)
	out = append(out, index.Bytes()...)
	if _, err := t.raw.Write(out); err != nil {
		return err
	}
	for _, r := range runs {
		if err := seekFile(f, r.at); err != nil {
			return err
		}
		if _, err := io.CopyN(&counted{t.raw, t.told}, f, r.size); err != nil {
			return err
		}
	}
	end := bytes.NewBuffer(make([]byte, 0, tarBlock))
	if over := size % tarBlock; over != 0 {
		end.Write(make([]byte, tarBlock-over))
	}
	_, err := t.raw.Write(end.Bytes())
	return err
}

// pad fills up to whole blocks.
func pad(b *bytes.Buffer) {
	if over := b.Len() % tarBlock; over != 0 {
		b.Write(make([]byte, tarBlock-over))
	}
}

// paxRecord is "LENGTH KEY=VALUE\n", whose length counts itself.
func paxRecord(k, v string) string {
	rest := " " + k + "=" + v + "\n"
	n := len(rest)
	for n != len(rest)+len(strconv.Itoa(n)) {
		n = len(rest) + len(strconv.Itoa(n))
	}
	return strconv.Itoa(n) + rest
}

// ustar is a header block; what does not fit stands in the records before it.
func ustar(name string, kind byte, mode, size int64) []byte {
	b := make([]byte, tarBlock)
	copy(b[0:100], name)
	octal := func(at, n int, v int64) {
		if s := strconv.FormatInt(v, 8); len(s) < n {
			copy(b[at:], strings.Repeat("0", n-1-len(s))+s)
		} else {
			copy(b[at:], strings.Repeat("7", n-1))
		}
	}
	octal(100, 8, mode)
	octal(108, 8, 0)
	octal(116, 8, 0)
	octal(124, 12, size)
	octal(136, 12, 0)
	copy(b[148:], "        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}
