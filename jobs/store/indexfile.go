package store

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"berth/jobs"
)

// The file of an index is a head, chunks of records in the form of
// encoding/gob, a table of the chunks and of a row for each record, and a tail
// that tells where the table begins. Table and chunks have checksums of their
// own, so that a listing reads the table and the chunks that it needs. Numbers
// are big endian.
const (
	// indexHead begins the file. Its number changes with the meaning of what is in
	// the file, and with that of [jobs.AtRest].
	indexHead = "berth index 3\n"
	// chunkOf is the number of records in a chunk, and so how many a listing
	// that writes an index has in memory beside those that it returns. Each chunk
	// has its own decoder, so smaller chunks would be slower.
	chunkOf   = 500
	idSize    = 36
	rowSize   = idSize + len(stamps{})*16 + 1 + 4 + 4
	chunkSize = 8 + 4 + 4
	tailSize  = 8 + 4
)

// firstAttempt is the name of the only attempt that a row can have.
var firstAttempt = attemptName(1)

// ours is what the table begins with: another ledger's index is of no use, and
// neither is one of a program whose records have other fields, which would read
// zeros for what it does not find.
func ours(home string) string {
	var b bytes.Buffer
	describe(&b, reflect.TypeFor[jobs.Record](), map[reflect.Type]bool{})
	return fmt.Sprintf("%s\x00%08x", home, crc32.ChecksumIEEE(b.Bytes()))
}

// describe writes down the fields of a type and of all that it holds.
func describe(b *bytes.Buffer, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintln(b, t, t.Kind())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		describe(b, t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			fmt.Fprintln(b, t.Field(i).Name)
			describe(b, t.Field(i).Type, seen)
		}
	default:
	}
}

// indexWriter makes the file of an index, and has two chunks of it in memory
// at a time: of records at rest, and of the others.
type indexWriter struct {
	path   string
	mu     sync.Mutex
	rows   []row
	chunks []chunk
	open   [2]batch
	file   *os.File // from the first full chunk on
	at     int64
	err    error
}

func (w *indexWriter) add(r row, rec *jobs.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	which := 0
	if r.rest {
		which = 1
	}
	b := &w.open[which]
	if b.recs == nil {
		b.no = uint32(len(w.chunks))
		w.chunks = append(w.chunks, chunk{})
	}
	r.chunk, r.pos = b.no, uint32(len(b.recs))
	w.rows = append(w.rows, r)
	if b.recs = append(b.recs, rec); len(b.recs) == chunkOf {
		w.flush(b)
	}
}

// batch is a chunk that is being made.
type batch struct {
	no   uint32
	recs []*jobs.Record
}

func (w *indexWriter) flush(b *batch) {
	if b.recs == nil || w.err != nil {
		return
	}
	var data bytes.Buffer
	w.err = gob.NewEncoder(&data).Encode(b.recs)
	c := &w.chunks[b.no]
	c.size, c.sum = uint32(data.Len()), crc32.ChecksumIEEE(data.Bytes())
	c.at = w.write(data.Bytes())
	b.recs = nil
}

// write appends to the file and tells where that stands in it.
func (w *indexWriter) write(data []byte) (at int64) {
	if w.file == nil && w.err == nil {
		dir := filepath.Dir(w.path)
		if w.err = os.MkdirAll(dir, 0o700); w.err == nil {
			w.file, w.err = os.CreateTemp(dir, ".index-*")
		}
		data = append([]byte(indexHead), data...)
		at = int64(len(indexHead))
	}
	at += w.at
	if w.err == nil {
		_, w.err = w.file.Write(data)
	}
	w.at += int64(len(data))
	return at
}

// finish adds the table and puts the file in place of the one before. Two
// processes that do so at once do no harm: either file is whole and true.
func (w *indexWriter) finish(home string) {
	for i := range w.open {
		w.flush(&w.open[i])
	}
	table := w.table(home)
	at := w.write(table)
	tail := binary.BigEndian.AppendUint64(nil, uint64(at))
	w.write(binary.BigEndian.AppendUint32(tail, crc32.ChecksumIEEE(table)))
	if w.err == nil {
		w.err = errors.Join(w.file.Close(), os.Rename(w.file.Name(), w.path))
	}
	if w.err == nil {
		w.file = nil
	}
}

// drop removes what was not finished.
func (w *indexWriter) drop() {
	if w.file != nil {
		_ = w.file.Close() // a second time, maybe
		_ = os.Remove(w.file.Name())
	}
}

func (w *indexWriter) table(home string) []byte {
	b := append(make([]byte, 0, len(w.rows)*rowSize+len(w.chunks)*chunkSize+1024), ours(home)...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.chunks)))
	for i := range w.chunks {
		c := &w.chunks[i]
		b = binary.BigEndian.AppendUint64(b, uint64(c.at))
		b = binary.BigEndian.AppendUint32(b, c.size)
		b = binary.BigEndian.AppendUint32(b, c.sum)
	}
	for i := range w.rows {
		r := &w.rows[i]
		b = append(b, r.id...)
		for _, s := range r.stamps {
			b = binary.BigEndian.AppendUint64(b, s.inode)
			b = binary.BigEndian.AppendUint64(b, uint64(s.changed))
		}
		rest := byte(0)
		if r.rest {
			rest = 1
		}
		b = append(b, rest)
		b = binary.BigEndian.AppendUint32(b, r.chunk)
		b = binary.BigEndian.AppendUint32(b, r.pos)
	}
	return b
}

// readTable reads the table of a file. Its checksum tells a torn one.
func readTable(f io.ReaderAt, size int64, home string) ([]row, []chunk, bool) {
	head := make([]byte, len(indexHead))
	tail := make([]byte, tailSize)
	end := size - tailSize
	if end < int64(len(head)) || !readAt(f, head, 0) || string(head) != indexHead || !readAt(f, tail, end) {
		return nil, nil, false
	}
	at := int64(binary.BigEndian.Uint64(tail))
	if at < int64(len(head)) || at > end {
		return nil, nil, false
	}
	b := make([]byte, end-at)
	if !readAt(f, b, at) || binary.BigEndian.Uint32(tail[8:]) != crc32.ChecksumIEEE(b) {
		return nil, nil, false
	}
	b, ok := bytes.CutPrefix(b, []byte(ours(home)))
	if !ok || len(b) < 4 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > len(b)/chunkSize || (len(b)-n*chunkSize)%rowSize != 0 {
		return nil, nil, false
	}
	chunks := make([]chunk, n)
	for i := range chunks {
		c := &chunks[i]
		c.at, c.size, c.sum = int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		if b = b[chunkSize:]; c.at < 0 || c.at > at-int64(c.size) {
			return nil, nil, false
		}
	}
	text := string(b) // the ids of all rows are parts of it
	rows := make([]row, len(b)/rowSize)
	for i := range rows {
		r, p := &rows[i], b[i*rowSize+idSize:]
		r.id = text[i*rowSize:][:idSize]
		for k := range r.stamps {
			r.stamps[k] = stamp{inode: binary.BigEndian.Uint64(p), changed: int64(binary.BigEndian.Uint64(p[8:]))}
			p = p[16:]
		}
		r.rest, r.chunk, r.pos = p[0] == 1, binary.BigEndian.Uint32(p[1:]), binary.BigEndian.Uint32(p[5:])
		if int(r.chunk) >= n {
			return nil, nil, false
		}
	}
	return rows, chunks, true
}

// readChunk reads the records of a chunk.
func readChunk(f io.ReaderAt, c *chunk) (recs []*jobs.Record, ok bool) {
	b := make([]byte, c.size)
	if !readAt(f, b, c.at) || crc32.ChecksumIEEE(b) != c.sum {
		return nil, false
	}
	if gob.NewDecoder(bytes.NewReader(b)).Decode(&recs) != nil {
		return nil, false
	}
	return recs, true
}

func readAt(f io.ReaderAt, b []byte, at int64) bool {
	n, err := f.ReadAt(b, at)
	return n == len(b) && (err == nil || err == io.EOF)
}
