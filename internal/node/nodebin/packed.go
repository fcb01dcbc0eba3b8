//go:build !berthnode

package nodebin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Packed is a program in an archive: all of them, one behind the other, as
// [Calls] writes them, compressed together. What two have in common is there once.
type Packed struct {
	Arch      string
	Sum       string // SHA-256 of the program, hexadecimal
	Size      int64  // of the program, in bytes
	Code, Len int64  // where its machine code begins, and how long it is
}

// String is the program's line in the archive's list.
func (p *Packed) String() string {
	return fmt.Sprintf("%s %s %d %d %d\n", p.Arch, p.Sum, p.Size, p.Code, p.Len)
}

// packed returns the program of an architecture in the archive of this program.
func packed(arch string) (Program, bool) { return packedIn(embedded, embeddedList, arch) }

func packedIn(archive []byte, list, arch string) (Program, bool) {
	var before int64
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) != 5 {
			return Program{}, false
		}
		p := Packed{Arch: f[0], Sum: f[1]}
		for i, n := range []*int64{&p.Size, &p.Code, &p.Len} {
			*n, _ = strconv.ParseInt(f[2+i], 10, 64) // the program's own list
		}
		if p.Arch == arch {
			return Program{name(p.Sum), p.Size, func() ([]byte, error) { return p.unpack(archive, before) }}, true
		}
		before += p.Size
	}
	return Program{}, false
}

// unpack reads a program that stands behind so many bytes of others.
func (p *Packed) unpack(archive []byte, before int64) ([]byte, error) {
	z, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if _, err := io.CopyN(io.Discard, z, before); err != nil {
		return nil, err
	}
	data := make([]byte, p.Size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, err
	}
	Calls(p.Arch, data[p.Code:][:p.Len], false)
	if sum(data) != p.Sum {
		return nil, errors.New("the program for " + p.Arch + " is damaged")
	}
	return data, nil
}
