package siffile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"berth/test/fakes/siftest"

	"github.com/google/uuid"
	"github.com/sylabs/sif/v2/pkg/sif"
)

// Where the table of contents of [siftest.New] and its second descriptor, which
// is of the root file system, stand, and what is in one.
const (
	table      = 4096
	rootAt     = table + descriptorSize
	dataOffset = 17
	dataSize   = 25
	kindAt     = 201
	typeAt     = 205
)

// put writes a number into a copy of a SIF.
func put(image []byte, at int, n int64) []byte {
	b := slices.Clone(image)
	binary.LittleEndian.PutUint64(b[at:], uint64(n))
	return b
}

func whole() []byte { return siftest.New(uuid.UUID{1}, siftest.Superblock(10, 100)) }

// hostile are SIFs that claim what is not so, and what Squashfs says of them. The
// length of the table in bytes does not matter: the number of descriptors does.
func hostile() map[string]struct {
	image []byte
	says  string
} {
	b := whole()
	second := slices.Clone(b)
	copy(second[table:], second[rootAt:rootAt+descriptorSize])
	return map[string]struct {
		image []byte
		says  string
	}{
		"huge number of descriptors": {put(b, descriptorsTotal, math.MaxInt64), "table of contents"},
		"more than the file holds":   {put(b, descriptorsTotal, maxDescriptors), "table of contents"},
		"negative number":            {put(b, descriptorsTotal, -1), "table of contents"},
		"length in bytes overflows":  {put(b, descriptorsTotal, math.MaxInt64/descriptorSize+2), "table of contents"},
		"table beyond the file":      {put(b, 96, math.MaxInt64), "table of contents"},
		"table before the file":      {put(b, 96, -4096), "table of contents"},
		"table over the header":      {put(b, 96, 0), "table of contents"},
		"table shorter than it is":   {put(b, 104, 1), "table of contents"},
		"table of negative length":   {put(b, 104, -1), ""},
		"table of any length":        {put(b, 104, math.MaxInt64), ""},
		"table cut off":              {b[:rootAt+9], "table of contents"},
		"no descriptors":             {put(b, descriptorsTotal, 0), "no root file system"},
		"root beyond the file":       {put(b, rootAt+dataOffset, math.MaxInt64), "not within the file"},
		"root before the file":       {put(b, rootAt+dataOffset, -1), "not within the file"},
		"root over the header":       {put(b, rootAt+dataOffset, 0), "not within the file"},
		"root over the table":        {put(b, rootAt+dataOffset, table), "no squashfs"},
		"root too long":              {put(b, rootAt+dataSize, math.MaxInt64), "not within the file"},
		"root of negative length":    {put(b, rootAt+dataSize, math.MinInt64), "not within the file"},
		"root cut off":               {b[:len(b)-1], "not within the file"},
		"two roots":                  {second, "multiple objects"},
	}
}

func TestHostile(t *testing.T) {
	for name, c := range hostile() {
		p, err := Squashfs(bytes.NewReader(c.image), int64(len(c.image)))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || p != Partition{}) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if h, err := ReadHeader(bytes.NewReader(c.image)); err != nil || h.ID == "" { // which is whole
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// What a file claims decides little of what is allocated for it.
func TestAllocates(t *testing.T) {
	big := append(put(put(whole(), descriptorsTotal, maxDescriptors), 104, maxDescriptors*descriptorSize), make([]byte, maxDescriptors*descriptorSize)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, c := range hostile() {
		_, _ = Root(bytes.NewReader(c.image), math.MaxInt64)
		_, _ = Root(bytes.NewReader(c.image), int64(len(c.image)))
	}
	if _, err := Root(bytes.NewReader(big), int64(len(big))); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes", n)
	}
}

func TestRoot(t *testing.T) {
	id := uuid.MustParse("0e1f2d3c-4b5a-4978-8695-a4b3c2d1e0f0")
	super := siftest.Superblock(10, 100)
	for _, c := range []struct {
		kind sif.FSType
		says string
	}{{sif.FsSquash, ""}, {sif.FsExt3, "Ext3"}, {sif.FsEncryptedSquashfs, "Encrypted squashfs"}} {
		b := siftest.WithKind(id, super, c.kind)
		p, err := Root(bytes.NewReader(b), int64(len(b)))
		if err != nil || p.Kind != c.kind || !bytes.Equal(b[p.Offset:p.Offset+p.Size], super) {
			t.Errorf("%v: %+v, %v", c.kind, p, err)
		}
		got, err := Squashfs(bytes.NewReader(b), int64(len(b)))
		if c.says == "" && (err != nil || got != p) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %+v, %v", c.kind, got, err)
		}
	}
	for name, b := range map[string][]byte{"no root": siftest.New(id, nil), "no squashfs": siftest.New(id, []byte("xxxxxxxx"))} {
		if p, err := Squashfs(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestReadHeader(t *testing.T) {
	id := uuid.MustParse("0e1f2d3c-4b5a-4978-8695-a4b3c2d1e0f0")
	b := siftest.New(id, []byte("xxxxxxxx"))
	h, err := ReadHeader(bytes.NewReader(b[:headerSize]))
	if err != nil || h.ID != id.String() {
		t.Errorf("%+v, %v", h, err)
	}
	if end, ok := h.End(); !ok || end != int64(len(b)) {
		t.Errorf("%d, %v", end, ok)
	}
	if h, err := ReadHeader(bytes.NewReader(siftest.New(uuid.Nil, nil))); err != nil || h.ID != "" {
		t.Errorf("%+v, %v", h, err)
	}
	for at, n := range map[int]int64{112: -1, 120: math.MaxInt64} {
		h, err := ReadHeader(bytes.NewReader(put(b, at, n)))
		if end, ok := h.End(); err != nil || ok {
			t.Errorf("%d: %d, %v", n, end, err)
		}
	}
	version := bytes.Replace(b, []byte("\x0001\x00"), []byte("\x0077\x00"), 1)
	for _, bad := range [][]byte{nil, b[:headerSize-1], bytes.Replace(b, []byte("MAGIC"), []byte("TRICK"), 1), version} {
		if _, err := ReadHeader(bytes.NewReader(bad)); !errors.Is(err, ErrNoSIF) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	if _, err := ReadHeader(broken{}); !errors.Is(err, io.ErrNoProgress) || errors.Is(err, ErrNoSIF) {
		t.Error(err)
	}
}

// broken is a file that cannot be read.
type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, io.ErrNoProgress }

// A file that may not be written can be read, and is not written when it may be.
func TestWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sif")
	b := whole()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Squashfs(f, int64(len(b))); err != nil {
		t.Error(err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 0 || err != nil { // it was not closed, either
		t.Errorf("%d, %v", at, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Errorf("it changed: %v", err)
	}
}

// FuzzSIF: whatever stands in a file, reading it ends, and what is found lies
// within the file.
func FuzzSIF(f *testing.F) {
	b := whole()
	f.Add(b)
	f.Add(b[:100])
	f.Add([]byte{})
	f.Add(siftest.WithKind(uuid.Nil, []byte("xxxxxxxx"), sif.FsEncryptedSquashfs))
	f.Add(put(b, rootAt+kindAt, -1))
	f.Add(put(b, rootAt+typeAt, -1))
	for _, c := range hostile() {
		f.Add(c.image)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		size := int64(len(b))
		h, err := ReadHeader(bytes.NewReader(b))
		if end, ok := h.End(); err == nil && ok && end < 0 {
			t.Errorf("it ends at %d", end)
		}
		p, err2 := Root(bytes.NewReader(b), size)
		if err != nil && err2 == nil {
			t.Errorf("it has no header, and the root %+v: %v", p, err)
		}
		if p.Offset < 0 || p.Size < 0 || p.Offset > size || p.Size > size-p.Offset {
			t.Errorf("%+v is not within %d bytes", p, size)
		}
		if q, err := Squashfs(bytes.NewReader(b), size); err == nil && q != p {
			t.Errorf("%+v is not %+v", q, p)
		}
	})
}
